# SPDX-License-Identifier: Apache-2.0
"""The open-set classifier and the benchmark's network."""

from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.models.open_set_classifier import OpenSetPrediction
from cac_tf.models.open_set_classifier import OpenSetScores
from cac_tf.models.open_set_classifier import load_model
from cac_tf.models.openset_cnn import openset_cnn
