# SPDX-License-Identifier: Apache-2.0
"""Recipes whose values in the published code are others than of all methods."""

import dataclasses
from typing import Any

from cac_tf.methods.recipe import Recipe

# Of the code behind most rows of Table 1 (Neal et al., ECCV 2018), the same
# for every data set.
_PUBLISHED = {
    "network": "openset_cnn",
    "algorithm": "adam",
    # A constant learning rate.
    "schedule": "two_stage",
    "second_stage_epochs": 0,
    "epochs": 30,
    "learning_rate": 1e-4,
    "batch_size": 64,
    "weight_decay": 0.0,
    "dropout": 0.2,
    "scale": 1.0,
    "flip": 0.0,
    "rotation": 0.0,
}


@dataclasses.dataclass(frozen=True)
class PublishedRecipe(Recipe):
    """The common recipe, with published values as a preset.

    The network of the published code is that of CAC's authors (`openset_cnn`),
    but for its dropout, which is at the start of each block, on the image too,
    and for the initial values of its weights: N(0, 0.05), and N(1, 0.02) for
    the scales of batch normalization. Images are not normalized by their
    channels there, and those of MNIST have three. It keeps the last weights;
    with the schedule "two_stage", those with the best validation value are
    kept here. Its images have 32x32 pixels: for TinyImageNet, give
    `image_size=32`.
    """

    @classmethod
    def published(cls) -> dict[str, Any]:
        """As in `Recipe`; a method adds its own.

        Example:

        >>> from cac_tf import methods
        >>> c2ae = methods.get("c2ae")
        >>> c2ae.recipe_for("mnist", {"preset": "paper"}).epochs
        30
        """
        return dict(_PUBLISHED)
