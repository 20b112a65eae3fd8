# SPDX-License-Identifier: Apache-2.0
"""Class Anchor Clustering (Miller et al., WACV 2021)."""

import dataclasses

from cac_tf.layers import AnchoredDistance
from cac_tf.losses import CACLoss
from cac_tf.methods import recipe as recipes
from cac_tf.methods.method import Method
from cac_tf.metrics import AnchorLoss


@dataclasses.dataclass(frozen=True)
class Recipe(recipes.Recipe):
    """The common recipe with the two hyper-parameters of the CAC loss."""

    magnitude: float = 10.0
    anchor_weight: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        # These check their own arguments.
        AnchoredDistance(2, self.magnitude)
        CACLoss(self.anchor_weight)


def fit_class_means(model, examples, batch_size=128):
    """Re-centres a classifier on training images as the authors do.

    A model that was trained with mirrored images sees each image and its
    mirror image, else each image once.

    Args:
        model: `OpenSetClassifier`.
        examples: `Examples` of the training data.
        batch_size: of the predictions.

    Returns:
        (N,) int64 numbers of images that each mean was taken over.
    """
    with_mirrors = getattr(model.augmentation, "flip", 0.0) > 0

    def batches():
        for start in range(0, examples.size, batch_size):
            rows = slice(start, start + batch_size)
            images, labels = examples.images[rows], examples.labels[rows]
            yield images, labels
            if with_mirrors:
                yield images[:, :, ::-1], labels

    return model.fit_centres(batches())


METHOD = Method(
    name="cac",
    recipe=Recipe,
    scores=("gamma", "min_distance", "max_logit"),
    loss=lambda recipe: CACLoss(recipe.anchor_weight),
    monitor=AnchorLoss,
    finish=fit_class_means,
    magnitude=lambda recipe: recipe.magnitude,
)
