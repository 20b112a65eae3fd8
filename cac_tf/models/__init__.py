# SPDX-License-Identifier: Apache-2.0
"""The open-set classifier and the benchmark's networks."""

from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.models.open_set_classifier import OpenSetPrediction
from cac_tf.models.open_set_classifier import OpenSetScores
from cac_tf.models.open_set_classifier import load_model
from cac_tf.models.openset_cnn import openset_cnn
from cac_tf.models.resnet18 import resnet18

# (num_classes, input_shape, dropout, weight_decay, seed) -> keras.Model
NETWORKS = {"openset_cnn": openset_cnn, "resnet18": resnet18}
