# SPDX-License-Identifier: Apache-2.0
from .calibration import (
    threshold_for_false_positive_rate as threshold_for_false_positive_rate,
)
from .calibration import (
    threshold_for_true_positive_rate as threshold_for_true_positive_rate,
)
