# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.training import classifier_training as classifier_training
from cac_tf.training import loop as loop
from cac_tf.training import pictures as pictures
from cac_tf.training import processes as processes
from cac_tf.training import run as run
from cac_tf.training import runtime as runtime
from cac_tf.training import stage as stage
from cac_tf.training.classifier_training import ClassifierTraining as ClassifierTraining
from cac_tf.training.classifier_training import StopOnNonFiniteLoss as StopOnNonFiniteLoss
from cac_tf.training.loop import TrainingRecord as TrainingRecord
from cac_tf.training.loop import fit_resumable as fit_resumable
from cac_tf.training.pictures import PICTURES_IN_A_ROW as PICTURES_IN_A_ROW
from cac_tf.training.pictures import add_rows as add_rows
from cac_tf.training.pictures import read_rows as read_rows
from cac_tf.training.processes import ProcessLostError as ProcessLostError
from cac_tf.training.processes import Processes as Processes
from cac_tf.training.run import TrainingRun as TrainingRun
from cac_tf.training.runtime import Runtime as Runtime
from cac_tf.training.stage import Stage as Stage
