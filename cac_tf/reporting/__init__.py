# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal, figures, and the HTML page of a run."""

from cac_tf.reporting.progress import TrainingProgress
from cac_tf.reporting.report import write_report
