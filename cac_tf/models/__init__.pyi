# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.models import authors_weights as authors_weights
from cac_tf.models import image_classifier as image_classifier
from cac_tf.models import networks as networks
from cac_tf.models import open_set_classifier as open_set_classifier
from cac_tf.models import prediction as prediction
from cac_tf.models import saving as saving
from cac_tf.models.authors_weights import import_authors_weights as import_authors_weights
from cac_tf.models.authors_weights import read_authors_weights as read_authors_weights
from cac_tf.models.image_classifier import ImageParts as ImageParts
from cac_tf.models.image_classifier import image_parts as image_parts
from cac_tf.models.networks.openset_cnn import openset_cnn as openset_cnn
from cac_tf.models.networks.resnet18 import resnet18 as resnet18
from cac_tf.models.open_set_classifier import OpenSetClassifier as OpenSetClassifier
from cac_tf.models.prediction import OpenSetPrediction as OpenSetPrediction
from cac_tf.models.prediction import OpenSetScores as OpenSetScores
from cac_tf.models.saving import load_model as load_model
