# SPDX-License-Identifier: Apache-2.0
from . import networks as networks
from .authors_weights import import_authors_weights as import_authors_weights
from .authors_weights import read_authors_weights as read_authors_weights
from .image_classifier import ImageParts as ImageParts
from .image_classifier import image_parts as image_parts
from .networks.mlp import mlp as mlp
from .networks.openset_cnn import openset_cnn as openset_cnn
from .networks.resnet18 import resnet18 as resnet18
from .open_set_classifier import OpenSetClassifier as OpenSetClassifier
from .prediction import OpenSetPrediction as OpenSetPrediction
from .pretrained import pretrained_backbone as pretrained_backbone
from .saving import load_model as load_model
from .vector_classifier import vector_classifier as vector_classifier
