# SPDX-License-Identifier: Apache-2.0
"""CROSR: Yoshihashi et al., "Classification-Reconstruction Learning".

"... for Open-Set Recognition", CVPR 2019. A row of Table 1 of the CAC paper.
This is our re-implementation: the authors' code could not be found, and no
other known to us gives their figures.

One network learns to tell the classes and, through narrow latents at several
depths, to draw its input again. The unknown score is that of OpenMax, with the
distances of logits and latents together (`scores.LatentOpenMax`). The equations
are in the docstring of `hierarchy.with_hierarchical_reconstruction` and of
`losses.ReconstructionLoss`.

Where it differs from the paper: the network is `openset_cnn`, not one of VGG's
kind or a DenseNet; errors are means over pixels in [0, 1], and a sigmoid ends
the reconstruction. With `preset="fair"`, it is trained like all methods here.
With `preset="paper"`, it has the 30 epochs without augmentation of the code
behind most rows of Table 1, and from the re-implementation saketd403/CROSR: SGD
from 0.05, batches of 128, weight decay 5e-4, dropout 0.25. (That code has 500
epochs, halves the learning rate every 30, and changes colors; here, the rate
falls to 0 by a cosine.)
"""

import dataclasses
import functools

from cac_tf import lazy
from cac_tf import losses
from cac_tf.methods.method import register
from cac_tf.methods.published_recipe import PublishedRecipe
from cac_tf.methods.recipe import field
from cac_tf.methods.supervised import SupervisedMethod

hierarchy = lazy.module("cac_tf.methods.crosr.hierarchy")
training = lazy.module("cac_tf.methods.reconstruction.training")


@dataclasses.dataclass(frozen=True)
class Recipe(PublishedRecipe):
    """The classifier's recipe and that of its reconstruction."""

    reconstruction_weight: float = field(
        1.0,
        "Weight of the mean squared reconstruction error; the cross-entropy "
        "has weight 1.",
        at_least=0,
        at_most=10**6,
    )
    latent_channels: int = field(
        32,
        "Channels of the latents at each depth.",
        at_least=1,
        at_most=10**4,
    )

    @classmethod
    def published(cls):
        return {
            **super().published(),
            "algorithm": "sgd",
            "schedule": "cosine",
            "learning_rate": 0.05,
            "batch_size": 128,
            "weight_decay": 5e-4,
            "dropout": 0.25,
        }


class CROSR(SupervisedMethod):
    """A classifier that also reconstructs its inputs."""

    name = "crosr"
    recipe = Recipe
    scores = ("latent_openmax", "openmax", "max_softmax")

    def loss(self, recipe):
        return losses.ReconstructionLoss(recipe.reconstruction_weight)

    def backbone(self, dataset, recipe, run):
        return hierarchy.with_hierarchical_reconstruction(
            super().backbone(dataset, recipe, run),
            dataset.channel_statistics,
            latent_channels=recipe.latent_channels,
            weight_decay=recipe.weight_decay,
            seed=run.seed,
        )

    def train(self, dataset, recipe, run):
        classifier = self.parts(dataset, recipe, run).classifier()
        samples = functools.partial(training.reconstructed, classifier)
        self.fit_classifier(classifier, dataset, recipe, run, samples)
        return classifier


register(CROSR())
