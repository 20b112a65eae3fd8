# SPDX-License-Identifier: Apache-2.0
"""Exact open-set measures on arrays, and streaming Keras metrics."""

from cac_tf.metrics.open_set import accuracy
from cac_tf.metrics.open_set import auroc
from cac_tf.metrics.open_set import bhattacharyya
from cac_tf.metrics.open_set import ccr_at_fpr
from cac_tf.metrics.open_set import openness
from cac_tf.metrics.open_set import oscr
from cac_tf.metrics.open_set import oscr_curve
from cac_tf.metrics.open_set import roc_curve
from cac_tf.metrics.streaming import AnchorLoss
from cac_tf.metrics.streaming import CrossEntropy
from cac_tf.metrics.streaming import NearestCentreAccuracy
from cac_tf.metrics.streaming import OpenSetAUROC
from cac_tf.metrics.streaming import TupletLoss
