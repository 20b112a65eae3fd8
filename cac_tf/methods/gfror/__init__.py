# SPDX-License-Identifier: Apache-2.0
"""GFROR: Perera et al., "Generative-discriminative Feature Representations".

"... for Open-set Recognition", CVPR 2020. A row of Table 1 of the CAC paper.
This is our re-implementation: the authors' code cannot be had.

An auto-encoder is trained first and then frozen. The classifier sees each image
together with its reconstruction, as twice as many channels: what the
auto-encoder cannot draw looks different there. It also learns which of the
eight symmetries of a square a second copy of both was changed by. The unknown
score is minus the largest logit.

Where it differs from the paper, as far as that is known: the auto-encoder has
no weight decay, a constant learning rate and the decoder of
`reconstruction.image_networks`. By `preset="fair"`, the network, the
augmentation and the schedule are those of all methods here; the published row
is that of a plain network like `openset_cnn`. The values of `preset="paper"`
are those of a re-implementation for images of 64x64 pixels, which has a
ResNet-18, a learning rate that falls at plateaus, and 100 epochs; here there
are `openset_cnn`, a constant rate and the 30 epochs of Neal et al., and the
best weights are those by validation cross-entropy.
"""

import dataclasses
import functools

from cac_tf import lazy
from cac_tf import losses
from cac_tf.methods.method import register
from cac_tf.methods.published_recipe import PublishedRecipe
from cac_tf.methods.recipe import field
from cac_tf.methods.supervised import SupervisedMethod
from cac_tf.training import Stage

keras = lazy.module("keras")
augmented = lazy.module("cac_tf.methods.gfror.augmented_inputs")
reconstruction = lazy.module("cac_tf.methods.reconstruction.training")

# scikit-learn's digits are few and small: as many steps as it takes until
# validation images of trial 0 are hardly reconstructed better.
_DIGITS = {
    "auto_encoder_epochs": 60,
    "auto_encoder_learning_rate": 1e-3,
    "auto_encoder_batch_size": 64,
    "auto_encoder_width": 16,
    "auto_encoder_latents": 16,
}


@dataclasses.dataclass(frozen=True)
class Recipe(PublishedRecipe):
    """The classifier's recipe and that of its auto-encoder."""

    symmetry_weight: float = field(
        0.2,
        "Weight of predicting how an image was rotated and mirrored; "
        "predicting its class has weight 1 minus this.",
        at_least=0,
        at_most=1,
    )
    auto_encoder_epochs: int = field(
        40, "Epochs for training the autoencoder.", at_least=1, at_most=10**6
    )
    auto_encoder_learning_rate: float = field(
        1e-4, "Learning rate of the autoencoder (Adam).", above=0, at_most=1000
    )
    auto_encoder_batch_size: int = field(
        256,
        "Batch size for training the autoencoder.",
        at_least=1,
        at_most=10**6,
    )
    auto_encoder_latents: int = field(
        200, "Width of the autoencoder's latents.", at_least=1
    )
    auto_encoder_width: int = field(
        64, "Filters of the autoencoder's first convolution.", at_least=1
    )

    @classmethod
    def published(cls):
        return {
            **super().published(),
            "algorithm": "adam",
            "learning_rate": 1e-3,
            "batch_size": 128,
            "weight_decay": 1e-4,
        }


class GFROR(SupervisedMethod):
    """A classifier of images and their reconstructions."""

    name = "gfror"
    recipe = Recipe
    digits = _DIGITS
    scores = ("max_logit", "max_softmax", "energy")
    takes_several_devices = False

    def loss(self, recipe):
        return losses.SymmetryLoss(recipe.symmetry_weight)

    def backbone(self, dataset, recipe, run):
        height, width, channels = dataset.image_shape
        return augmented.with_reconstruction_as_input(
            super().backbone(
                dataset, recipe, run, (height, width, 2 * channels)
            ),
            dataset.channel_statistics,
            latents=recipe.auto_encoder_latents,
            width=recipe.auto_encoder_width,
            weight_decay=recipe.weight_decay,
            seed=run.seed,
        )

    def train(self, dataset, recipe, run):
        parts = self.parts(dataset, recipe, run)
        classifier = parts.classifier()
        training = augmented.AutoEncoderTraining(
            parts, dropout=0.2, seed=run.seed
        )
        with training.learning():
            training.compile(
                keras.optimizers.Adam(
                    recipe.auto_encoder_learning_rate, beta_1=0.5
                )
            )
            run.fit(
                training,
                dataset.train,
                dataset.validation,
                stages=[Stage(recipe.auto_encoder_epochs)],
                batch_size=recipe.auto_encoder_batch_size,
                name="auto_encoder",
                samples=functools.partial(
                    reconstruction.reconstructed, classifier
                ),
            )
        self.fit_classifier(classifier, dataset, recipe, run)
        return classifier


register(GFROR())
