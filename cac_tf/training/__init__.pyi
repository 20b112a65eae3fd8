# SPDX-License-Identifier: Apache-2.0
from .classifier_training import ClassifierTraining as ClassifierTraining
from .classifier_training import StopOnNonFiniteLoss as StopOnNonFiniteLoss
from .loop import TrainingRecord as TrainingRecord
from .loop import fit_resumable as fit_resumable
from .pictures import PICTURES_IN_A_ROW as PICTURES_IN_A_ROW
from .pictures import add_rows as add_rows
from .pictures import read_rows as read_rows
from .processes import Processes as Processes
from .processes import ProcessLostError as ProcessLostError
from .run import TrainingRun as TrainingRun
from .runtime import Runtime as Runtime
from .stage import Stage as Stage
