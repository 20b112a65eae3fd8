# SPDX-License-Identifier: Apache-2.0
"""Methods whose loss is one of distances to class centers."""

import dataclasses

from cac_tf import lazy
from cac_tf import metrics
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.hyperparameters import SCORE_OF_FEATURES
from cac_tf.hyperparameters import SCORE_OF_VECTORS
from cac_tf.methods import recipe as recipes
from cac_tf.methods.supervised import SupervisedMethod

checks = lazy.module("cac_tf.models.backbone_checks")
features = lazy.module("cac_tf.models.features")
layers = lazy.module("cac_tf.layers")


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
    """Centers that start as anchors; scores from distances to class means."""

    recipe = Recipe
    scores = ("gamma", "min_distance", "max_logit")
    score_of_vectors = SCORE_OF_VECTORS
    score_of_frozen_images = SCORE_OF_FEATURES
    # Whether training moves the centers away from the anchors.
    has_learnt_centers = False
    # Whether that is a part of the loss; on validation data it decides then.
    has_cross_entropy = False

    def centers(self, recipe):
        """What losses and metrics are told of the centers, as a dict."""
        return {
            "magnitude": recipe.magnitude,
            "from_distances": self.has_learnt_centers,
        }

    def backbone(self, dataset, recipe, run, input_shape=None):
        network = super().backbone(dataset, recipe, run, input_shape)
        if not self.has_learnt_centers:
            return network
        logits = checks.logits_of(network)
        distances = layers.ClassDistances(
            logits.shape[-1], recipe.magnitude, name="class_distances"
        )
        return features.model_like(
            network,
            {"logits": logits, "class_distances": distances(logits)},
            name="learnt_centers",
        )

    def accuracy(self):
        return metrics.KnownAccuracy(from_distances=self.has_learnt_centers)

    def watched(self, recipe):
        centers = self.centers(recipe)
        found = [metrics.AnchorLoss(**centers), metrics.TupletLoss(**centers)]
        return [metrics.CrossEntropy()] * self.has_cross_entropy + found
