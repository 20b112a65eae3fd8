# SPDX-License-Identifier: Apache-2.0
"""The Objectosphere loss, a row of the paper's Table 3."""

import dataclasses

from cac_tf import lazy
from cac_tf import losses
from cac_tf.hyperparameters import FEATURE_LENGTH
from cac_tf.hyperparameters import LENGTH_WEIGHT
from cac_tf.methods import recipe as recipes
from cac_tf.methods.method import register
from cac_tf.methods.supervised import SupervisedMethod

features = lazy.module("cac_tf.models.features")


@dataclasses.dataclass(frozen=True)
class Recipe(recipes.Recipe):
    """The common recipe with the two hyper-parameters of the loss.

    The defaults are those of the authors' code for MNIST. What the CAC paper
    took for CIFAR10 is not known.
    """

    feature_length: float = recipes.field(
        FEATURE_LENGTH,
        "Minimum feature length of known images (xi).",
        above=0,
        at_most=10**6,
    )
    length_weight: float = recipes.field(
        LENGTH_WEIGHT,
        "Weight of the feature-length terms (lambda).",
        at_least=0,
        at_most=10**6,
    )


class Objectosphere(SupervisedMethod):
    """Entropic open-set loss, and short features for negatives."""

    name = "objectosphere"
    trains_on_negatives = True
    recipe = Recipe
    scores = ("objectosphere", "max_softmax", "max_logit")

    def backbone(self, dataset, recipe, run, input_shape=None):
        network = super().backbone(dataset, recipe, run, input_shape)
        both, _ = features.with_features(network)
        return features.model_like(
            network,
            dict(zip(("features", "logits"), both.outputs, strict=True)),
            name="objectosphere",
        )

    def loss(self, recipe):
        return losses.ObjectosphereLoss(
            recipe.feature_length, recipe.length_weight
        )


register(Objectosphere())
