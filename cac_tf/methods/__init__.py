# SPDX-License-Identifier: Apache-2.0
"""How a model is trained: one file per method."""

from cac_tf.methods import cac
