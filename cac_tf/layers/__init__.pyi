# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.layers import affine_augmentation as affine_augmentation
from cac_tf.layers import anchored_distance as anchored_distance
from cac_tf.layers import batch_normalization as batch_normalization
from cac_tf.layers import class_conditioned_reconstruction as class_conditioned_reconstruction
from cac_tf.layers import class_distances as class_distances
from cac_tf.layers import image_preprocessing as image_preprocessing
from cac_tf.layers import open_set_decision as open_set_decision
from cac_tf.layers import random_symmetry as random_symmetry
from cac_tf.layers import rejection_score as rejection_score
from cac_tf.layers.affine_augmentation import AffineAugmentation as AffineAugmentation
from cac_tf.layers.anchored_distance import AnchoredDistance as AnchoredDistance
from cac_tf.layers.anchored_distance import anchored_distances as anchored_distances
from cac_tf.layers.anchored_distance import dense_distances as dense_distances
from cac_tf.layers.batch_normalization import BatchNormalization as BatchNormalization
from cac_tf.layers.class_conditioned_reconstruction import ClassConditionedReconstruction as ClassConditionedReconstruction
from cac_tf.layers.class_conditioned_reconstruction import label_conditions as label_conditions
from cac_tf.layers.class_distances import ClassDistances as ClassDistances
from cac_tf.layers.image_preprocessing import ImagePreprocessing as ImagePreprocessing
from cac_tf.layers.image_preprocessing import channel_statistics as channel_statistics
from cac_tf.layers.image_preprocessing import normalization as normalization
from cac_tf.layers.open_set_decision import OpenSetDecision as OpenSetDecision
from cac_tf.layers.random_symmetry import RandomSymmetry as RandomSymmetry
from cac_tf.layers.random_symmetry import apply_symmetry as apply_symmetry
from cac_tf.layers.rejection_score import RejectionScore as RejectionScore
from cac_tf.layers.rejection_score import rejection_scores as rejection_scores
from cac_tf.layers.rejection_score import softmin as softmin
