# SPDX-License-Identifier: Apache-2.0
from .classifier_training import ClassifierTraining as ClassifierTraining
from .processes import Processes as Processes
from .stage import Stage as Stage
