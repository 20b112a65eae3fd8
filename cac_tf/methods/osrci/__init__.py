# SPDX-License-Identifier: Apache-2.0
"""OSRCI: Neal et al., "Open Set Learning with Counterfactual Images".

ECCV 2018. A row of Table 1 of the CAC paper. Each counterfactual image starts
as a reconstruction of a training image and is changed, in latent space, until
the classifier sees no known class in it (section 3.2); then the classifier
learns these images as one more class (section 3.3), and an input's unknown
score is P(unknown) - max P(known) (section 3.4).

By default, latents stay close by the squared distance of the paper, each image
follows its own loss, and networks are in evaluation mode. `preset="paper"` has
what the released code does instead: the squared difference of two mean values
of all latents of a batch, which hardly binds; steps by the batch's loss
(`counterfactuals.CounterfactualSearch`); training mode; and a gradient penalty
by pixel.
"""

import dataclasses
import warnings

import numpy as np

from cac_tf import lazy
from cac_tf.methods.generated_unknowns.method import GeneratedUnknowns
from cac_tf.methods.generated_unknowns.method import check_finite
from cac_tf.methods.generated_unknowns.method import logits_of
from cac_tf.methods.generated_unknowns.recipe import GeneratedUnknownsRecipe
from cac_tf.methods.method import register
from cac_tf.methods.recipe import field

outputs = lazy.module("cac_tf.methods.generated_unknowns.outputs")
counterfactuals = lazy.module("cac_tf.methods.osrci.counterfactuals")


# On scikit-learn's digits, a search for more images would take most of the
# time. The search was chosen by how many counterfactual images of training
# images show no known class to the classifier, on trial 0: with the defaults
# nearly none.
_DIGITS = {
    **GeneratedUnknowns.digits,
    "generated_unknowns": 320,
    "search_steps": 300,
    "search_speed": 0.03,
    "distance_weight": 0.1,
}


@dataclasses.dataclass(frozen=True)
class Recipe(GeneratedUnknownsRecipe):
    """How OSRCI searches for counterfactual images, besides the rest."""

    search_steps: int = field(
        100,
        "Gradient steps of the search for a counterfactual image.",
        at_least=1,
        at_most=10**5,
    )
    search_speed: float = field(
        0.1, "Step size of the search, as a factor.", above=0, at_most=1000
    )
    distance_weight: float = field(
        1.0,
        "Weight of the distance from the starting point in the search.",
        at_least=0,
        at_most=10**6,
    )
    latent_distance: str = field(
        "squared",
        "squared: the squared distance between two latent vectors (the "
        "paper's). means: the distance between their mean values (its "
        "code's), which is a very weak constraint.",
        choices=("squared", "means"),
    )
    search_step: str = field(
        "image",
        "image: each image follows its own loss. batch: the mean loss of "
        "gan_batch_size images, multiplied by this loss (the paper's code).",
        choices=("image", "batch"),
    )

    @classmethod
    def published(cls):
        return {
            **super().published(),
            "latent_distance": "means",
            "search_step": "batch",
        }


class OSRCI(GeneratedUnknowns):
    """Counterfactual images as one more class."""

    name = "osrci"
    recipe = Recipe
    digits = _DIGITS
    scores = ("unknown_class", "energy", "max_softmax")

    def unknowns(self, parts, auto_encoder, dataset, recipe, rng):
        rows = np.resize(
            rng.permutation(dataset.train.size), recipe.generated_unknowns
        )
        search = counterfactuals.CounterfactualSearch(
            auto_encoder.encoder,
            auto_encoder.generator,
            parts.normalize,
            parts.network,
            steps=recipe.search_steps,
            speed=recipe.search_speed,
            distance_weight=recipe.distance_weight,
            distance=recipe.latent_distance,
            step=recipe.search_step,
            in_training_mode=recipe.generation_mode == "training",
        )
        images = outputs.outputs_of(
            search, dataset.train.images[rows], recipe.gan_batch_size
        )
        check_finite(images)
        # The logit of "unknown" is 0.
        known = int((logits_of(parts, images).max(axis=-1) > 0.0).sum())
        if 2 * known > len(images):
            warnings.warn(
                f"{known} of the {len(images)} counterfactual images are "
                'still classified as a known class; the class "unknown" is '
                "trained on them too. Raise search_steps or search_speed, or "
                "lower distance_weight.",
                stacklevel=2,
            )
        return images, rows


register(OSRCI())
