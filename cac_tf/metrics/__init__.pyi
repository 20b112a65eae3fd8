# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.metrics import bootstrap as bootstrap
from cac_tf.metrics import open_set as open_set
from cac_tf.metrics import paired as paired
from cac_tf.metrics import streaming as streaming
from cac_tf.metrics.bootstrap import bootstrap_intervals as bootstrap_intervals
from cac_tf.metrics.open_set import accuracy as accuracy
from cac_tf.metrics.open_set import aupr as aupr
from cac_tf.metrics.open_set import auroc as auroc
from cac_tf.metrics.open_set import bhattacharyya as bhattacharyya
from cac_tf.metrics.open_set import ccr_at_fpr as ccr_at_fpr
from cac_tf.metrics.open_set import fpr_at_tpr as fpr_at_tpr
from cac_tf.metrics.open_set import openness as openness
from cac_tf.metrics.open_set import oscr as oscr
from cac_tf.metrics.open_set import oscr_curve as oscr_curve
from cac_tf.metrics.open_set import roc_curve as roc_curve
from cac_tf.metrics.paired import auroc_difference_interval as auroc_difference_interval
from cac_tf.metrics.streaming import AnchorLoss as AnchorLoss
from cac_tf.metrics.streaming import CrossEntropy as CrossEntropy
from cac_tf.metrics.streaming import KnownAccuracy as KnownAccuracy
from cac_tf.metrics.streaming import OpenSetAUROC as OpenSetAUROC
from cac_tf.metrics.streaming import TupletLoss as TupletLoss
