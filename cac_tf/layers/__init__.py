# SPDX-License-Identifier: Apache-2.0
"""Keras layers of the open-set head, and those before the backbone."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "affine_augmentation": ["AffineAugmentation"],
        "anchored_distance": [
            "AnchoredDistance",
            "anchored_distances",
            "dense_distances",
        ],
        "batch_normalization": ["BatchNormalization"],
        "class_distances": ["ClassDistances"],
        "class_conditioned_reconstruction": [
            "ClassConditionedReconstruction",
            "label_conditions",
        ],
        "image_preprocessing": [
            "ImagePreprocessing",
            "channel_statistics",
            "normalization",
        ],
        "open_set_decision": ["OpenSetDecision"],
        "random_symmetry": ["RandomSymmetry", "apply_symmetry"],
        "rejection_score": ["RejectionScore", "rejection_scores", "softmin"],
    },
)
