# SPDX-License-Identifier: Apache-2.0
from .bootstrap import bootstrap_intervals as bootstrap_intervals
from .open_set import accuracy as accuracy
from .open_set import aupr as aupr
from .open_set import auroc as auroc
from .open_set import bhattacharyya as bhattacharyya
from .open_set import ccr_at_fpr as ccr_at_fpr
from .open_set import fpr_at_tpr as fpr_at_tpr
from .open_set import openness as openness
from .open_set import oscr as oscr
from .open_set import oscr_curve as oscr_curve
from .open_set import roc_curve as roc_curve
from .paired import auroc_difference_interval as auroc_difference_interval
from .streaming import AnchorLoss as AnchorLoss
from .streaming import CrossEntropy as CrossEntropy
from .streaming import KnownAccuracy as KnownAccuracy
from .streaming import OpenSetAUROC as OpenSetAUROC
from .streaming import TupletLoss as TupletLoss
