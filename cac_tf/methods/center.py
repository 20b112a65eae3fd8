# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy with a pull to the anchors: "Center" in the paper's Table 4."""

import dataclasses

from cac_tf import losses
from cac_tf.methods import around_centers
from cac_tf.methods import recipe as recipes
from cac_tf.methods.method import register


@dataclasses.dataclass(frozen=True)
class Recipe(around_centers.Recipe):
    """The recipe of methods with centers, with the weight of the pull."""

    center_weight: float = recipes.field(
        0.01,
        "Weight of half the squared distance to the center of the input's "
        "own class.",
        at_least=0,
        at_most=10**6,
    )


class Center(around_centers.AroundCentersMethod):
    """Cross-entropy on logits that are pulled to anchors.

    The paper does not state the weight of the pull. The default was chosen
    without looking at any results.
    """

    name = "center"
    recipe = Recipe
    has_cross_entropy = True

    def loss(self, recipe):
        return losses.CenterLoss(recipe.center_weight, **self.centers(recipe))


register(Center())
