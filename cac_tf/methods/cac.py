# SPDX-License-Identifier: Apache-2.0
"""Class Anchor Clustering (Miller et al., WACV 2021)."""

import dataclasses

from cac_tf import losses
from cac_tf.hyperparameters import ANCHOR_WEIGHT
from cac_tf.methods import around_centers
from cac_tf.methods import recipe as recipes
from cac_tf.methods.method import register


@dataclasses.dataclass(frozen=True)
class Recipe(around_centers.Recipe):
    """The recipe of methods with centers, with the weight of the CAC loss."""

    anchor_weight: float = recipes.field(
        ANCHOR_WEIGHT,
        "Weight of the anchor loss (the paper's lambda).",
        at_least=0,
        at_most=10**6,
    )


class ClassAnchorClustering(around_centers.AroundCentersMethod):
    """The CAC loss on distances to anchors; class means afterwards."""

    name = "cac"
    recipe = Recipe

    def loss(self, recipe):
        return losses.CACLoss(
            anchor_weight=recipe.anchor_weight, **self.centers(recipe)
        )


register(ClassAnchorClustering())
