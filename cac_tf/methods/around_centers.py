# SPDX-License-Identifier: Apache-2.0
"""Methods whose loss is one of distances to class centers."""

import dataclasses

from cac_tf import layers
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.methods import recipe as recipes
from cac_tf.methods.supervised import SupervisedMethod


@dataclasses.dataclass(frozen=True)
class Recipe(recipes.Recipe):
    """The common recipe with the length of the anchors."""

    magnitude: float = recipes.field(
        MAGNITUDE,
        "Length of the anchors (the paper's alpha).",
        above=0,
        at_most=10**6,
    )


class AroundCentersMethod(SupervisedMethod):
    """Centers that start as anchors; scores of the distances to class means."""

    recipe = Recipe
    scores = ("gamma", "min_distance", "max_logit")
    # Whether training moves the centers away from the anchors.
    has_learnt_centers = False

    def head(self, recipe, num_classes):
        return layers.AnchoredDistance(
            num_classes,
            recipe.magnitude,
            learnt=self.has_learnt_centers,
            name="distance_head",
        )
