# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.models.networks import registry as registry
from cac_tf.models.networks.registry import find as find
from cac_tf.models.networks.registry import names as names
from cac_tf.models.networks.registry import register as register
