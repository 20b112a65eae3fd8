# SPDX-License-Identifier: Apache-2.0
from .calibration import (
    threshold_for_false_positive_rate as threshold_for_false_positive_rate,
)
from .calibration import (
    threshold_for_true_positive_rate as threshold_for_true_positive_rate,
)
from .calibration import thresholds_by_class as thresholds_by_class
from .rule import accepts as accepts
from .rule import check_threshold as check_threshold
from .rule import decide as decide
from .rule import threshold_of_rows as threshold_of_rows
