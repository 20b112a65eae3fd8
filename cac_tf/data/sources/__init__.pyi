# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.data.sources import source as source
from cac_tf.data.sources.source import ClassChoice as ClassChoice
from cac_tf.data.sources.source import ClassIds as ClassIds
from cac_tf.data.sources.source import DataSource as DataSource
from cac_tf.data.sources.source import LabelledParts as LabelledParts
from cac_tf.data.sources.source import find as find
from cac_tf.data.sources.source import names as names
from cac_tf.data.sources.source import register as register
from cac_tf.data.sources.source import source_of as source_of
from cac_tf.data.sources.source import what_is_taken as what_is_taken
