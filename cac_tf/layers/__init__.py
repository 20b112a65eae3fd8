# SPDX-License-Identifier: Apache-2.0
"""Keras layers of the open-set head, and what stands before the backbone."""

from cac_tf.layers.affine_augmentation import AffineAugmentation
from cac_tf.layers.anchored_distance import AnchoredDistance
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.layers.batch_normalization import BatchNormalization
from cac_tf.layers.decide_from_logits import LogitsDecision
from cac_tf.layers.decide_from_logits import decide_from_logits
from cac_tf.layers.image_preprocessing import ImagePreprocessing
from cac_tf.layers.open_set_decision import OpenSetDecision
from cac_tf.layers.rejection_score import RejectionScore
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.layers.rejection_score import softmin
