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


METHOD = Method(
    name="cac",
    recipe=Recipe,
    scores=("gamma", "min_distance", "max_logit"),
    loss=lambda recipe: CACLoss(recipe.anchor_weight),
    monitor=AnchorLoss,
    magnitude=lambda recipe: recipe.magnitude,
)
