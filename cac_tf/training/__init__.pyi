# SPDX-License-Identifier: Apache-2.0
from .classifier_training import ClassifierTraining as ClassifierTraining
from .computed_features import computed_features as computed_features
from .frozen_backbone import classifier_on_frozen as classifier_on_frozen
from .processes import Processes as Processes
from .stage import Stage as Stage
