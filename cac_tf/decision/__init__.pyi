# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.decision import calibration as calibration
from cac_tf.decision import rule as rule
from cac_tf.decision.calibration import threshold_for_false_positive_rate as threshold_for_false_positive_rate
from cac_tf.decision.calibration import threshold_for_true_positive_rate as threshold_for_true_positive_rate
from cac_tf.decision.calibration import thresholds_by_class as thresholds_by_class
from cac_tf.decision.rule import accepts as accepts
from cac_tf.decision.rule import check_threshold as check_threshold
from cac_tf.decision.rule import decide as decide
from cac_tf.decision.rule import threshold_of_rows as threshold_of_rows
