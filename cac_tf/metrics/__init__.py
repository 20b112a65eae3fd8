# SPDX-License-Identifier: Apache-2.0
"""Exact open-set measures on arrays, and streaming Keras metrics."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "bootstrap": ["bootstrap_intervals"],
        "open_set": [
            "accuracy",
            "aupr",
            "auroc",
            "bhattacharyya",
            "ccr_at_fpr",
            "fpr_at_tpr",
            "openness",
            "oscr",
            "oscr_curve",
            "roc_curve",
        ],
        "paired": ["auroc_difference_interval"],
        "streaming": [
            "AnchorLoss",
            "CrossEntropy",
            "KnownAccuracy",
            "OpenSetAUROC",
            "TupletLoss",
        ],
    },
)
