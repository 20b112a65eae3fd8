# SPDX-License-Identifier: Apache-2.0
from .classifier_training import ClassifierTraining as ClassifierTraining
from .computed_features import computed_features as computed_features
from .computed_features import dataset_of_features as dataset_of_features
from .processes import Processes as Processes
from .stage import Stage as Stage
