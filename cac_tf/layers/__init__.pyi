# SPDX-License-Identifier: Apache-2.0
from .affine_augmentation import AffineAugmentation as AffineAugmentation
from .anchored_distance import AnchoredDistance as AnchoredDistance
from .anchored_distance import anchored_distances as anchored_distances
from .anchored_distance import dense_distances as dense_distances
from .batch_normalization import BatchNormalization as BatchNormalization
from .class_conditioned_reconstruction import (
    ClassConditionedReconstruction as ClassConditionedReconstruction,
)
from .class_conditioned_reconstruction import (
    label_conditions as label_conditions,
)
from .class_distances import ClassDistances as ClassDistances
from .image_preprocessing import ChannelNormalization as ChannelNormalization
from .image_preprocessing import ImagePreprocessing as ImagePreprocessing
from .image_preprocessing import channel_statistics as channel_statistics
from .open_set_decision import OpenSetDecision as OpenSetDecision
from .random_symmetry import RandomSymmetry as RandomSymmetry
from .random_symmetry import apply_symmetry as apply_symmetry
from .rejection_score import RejectionScore as RejectionScore
from .rejection_score import rejection_scores as rejection_scores
from .rejection_score import softmin as softmin
