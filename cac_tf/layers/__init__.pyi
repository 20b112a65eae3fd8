# SPDX-License-Identifier: Apache-2.0
from .affine_augmentation import AffineAugmentation as AffineAugmentation
from .anchored_distance import AnchoredDistance as AnchoredDistance
from .class_conditioned_reconstruction import (
    ClassConditionedReconstruction as ClassConditionedReconstruction,
)
from .class_distances import ClassDistances as ClassDistances
from .image_preprocessing import ChannelNormalization as ChannelNormalization
from .image_preprocessing import ImagePreprocessing as ImagePreprocessing
from .open_set_decision import OpenSetDecision as OpenSetDecision
from .random_symmetry import RandomSymmetry as RandomSymmetry
from .rejection_score import RejectionScore as RejectionScore
