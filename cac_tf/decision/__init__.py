# SPDX-License-Identifier: Apache-2.0
"""The decision between known classes and "unknown": rule and threshold."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "calibration": [
            "threshold_for_false_positive_rate",
            "threshold_for_true_positive_rate",
            "thresholds_by_class",
        ],
        "rule": [
            "accepts",
            "check_threshold",
            "decide",
            "threshold_of_rows",
        ],
    },
)
