# SPDX-License-Identifier: Apache-2.0
"""Exact open-set measures on arrays, and streaming Keras metrics."""

import lazy_loader

__all__ = [
    "AnchorLoss",
    "CrossEntropy",
    "KnownAccuracy",
    "OpenSetAUROC",
    "TupletLoss",
    "accuracy",
    "aupr",
    "auroc",
    "bhattacharyya",
    "bootstrap_intervals",
    "by_class",
    "ccr_at_fpr",
    "confusion_matrix",
    "fpr_at_tpr",
    "macro_f1",
    "openness",
    "oscr",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
