# SPDX-License-Identifier: Apache-2.0
"""Exact open-set measures on arrays, and streaming Keras metrics."""

import lazy_loader

__all__ = [
    "KnownAccuracy",
    "OpenSetAUROC",
    "aupr",
    "auroc",
    "bootstrap_intervals",
    "ccr_at_fpr",
    "fpr_at_tpr",
    "macro_f1",
    "openness",
    "oscr",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
