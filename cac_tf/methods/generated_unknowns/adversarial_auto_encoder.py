# SPDX-License-Identifier: Apache-2.0
"""An auto-encoder whose generator a discriminator teaches (Neal et al., 2018).

Encoder, generator and discriminator are one Keras model with one loss, the sum
of their own. What the discriminator learns by is kept from the others by
stopping gradients. So the training is the stock one of Keras, and checkpoints,
exact resume and both backends are those of every other training.
"""

import keras
import numpy as np
from keras import ops

from cac_tf.methods.generated_unknowns import image_networks
from cac_tf.methods.generated_unknowns.adversarial_training import (
    AdversarialTraining,
)
from cac_tf.methods.generated_unknowns.adversarial_training import unit_range
from cac_tf.methods.generated_unknowns.collapse import check_not_collapsed
from cac_tf.methods.generated_unknowns.gradients import values_and_gradient
from cac_tf.methods.generated_unknowns.gradients import with_frozen
from cac_tf.methods.generated_unknowns.outputs import outputs_of


def adversarial_losses(real, fake, reconstructed, weight):
    r"""The losses of discriminator and generator.

    Discriminator: mean \\(\log(1 + e^{D(G(z))})\\) plus weight times mean
    \\(\log(1 + e^{-D(x)})\\). Generator: minus weight times mean
    \\(D(G(E(x)))\\). (The asymmetry is that of the released code.)

    Args:
        real, fake, reconstructed: (B, 1) logits of the discriminator.
        weight: a number.

    Returns:
        Two scalars.

    Example:

    >>> zero = np.zeros((2, 1), "float32")
    >>> both = adversarial_losses(zero, zero, zero, weight=1.0)
    >>> [round(float(one), 4) for one in both]
    [1.3863, -0.0]
    """
    of_discriminator = ops.mean(ops.softplus(fake)) + weight * ops.mean(
        ops.softplus(-real)
    )
    return of_discriminator, -weight * ops.mean(reconstructed)


def gradient_penalty(network, images, variables, norm):
    """Mean squared difference of the gradients' lengths from 1.

    Gulrajani et al., "Improved training of Wasserstein GANs" (NeurIPS 2017),
    equation 3.

    Args:
        network: function from images to (B, M) logits, whose sum counts.
        images: (B, H, W, C).
        variables: all that the network has.
        norm: "image", the length of the gradient by a whole image, as in that
            paper; or "pixel", by the channels of each pixel, as in the code of
            Neal et al.

    Returns:
        Scalar.
    """
    _, gradient, _ = values_and_gradient(
        lambda x: ops.sum(network(x), axis=-1), images, variables
    )
    axes = (1, 2, 3) if norm == "image" else (3,)
    squared = ops.sum(ops.square(gradient), axis=axes)
    # The root has no gradient at 0.
    lengths = ops.sqrt(ops.maximum(squared, 1e-12))
    return ops.mean(ops.square(lengths - 1.0))


class AdversarialAutoEncoder(AdversarialTraining):
    """Encoder E, generator G and discriminator D; a call reconstructs.

    E and G learn to reconstruct images (mean absolute difference), G that D
    takes reconstructions for real, and D to tell real images from those that
    G makes of noise, with a gradient penalty between the two.

    Deviations from the released code: the networks learn in one step, not one
    after another; what D says of reconstructions teaches E too, not only G.

    Args:
        image_shape: (height, width, channels).
        width: filters of the networks; 64 in the paper.
        dropout: of E and D.
        adversarial_weight: see `adversarial_losses`.
        penalty_weight, penalty_norm: see `gradient_penalty`.
        outputs: logits of D, of which the first judges images. The gradient
            penalty is of their sum, as in the released code, which has one for
            each class. The others learn nothing else, and share the gradient
            with the first. (With one logit, the norm "pixel" gives D a gradient
            of length 1 by each pixel. That outweighs the reconstruction's, as
            each pixel is a small part of an image.)
        seed: seed of initialization, dropout and noise.

    Call arguments:
        images: (B, H, W, C), values 0...255.

    Returns:
        (B, H, W, C) reconstructions in [0, 1].
    """

    PARTS = (
        "discriminator_loss",
        "gradient_penalty",
        "generator_loss",
        "reconstruction_error",
    )
    IF_NOT_FINITE = "Lower gan_learning_rate, or gradient_penalty."

    def __init__(
        self,
        image_shape,
        *,
        width=64,
        dropout=0.2,
        adversarial_weight=0.01,
        penalty_weight=10.0,
        penalty_norm="image",
        outputs=1,
        seed=None,
    ):
        super().__init__(name="auto_encoder", dtype="float32")
        seeds = np.random.SeedSequence(seed).generate_state(4) >> 1
        one, two, three, four = map(int, seeds)
        self.encoder = image_networks.encoder(image_shape, width, dropout, one)
        self.generator = image_networks.generator(image_shape, width, two)
        self.discriminator = image_networks.discriminator(
            image_shape, width, dropout, three, outputs
        )
        self.noise = keras.random.SeedGenerator(four, name="noise")
        self.unit = image_networks.UnitChunks(dtype="float32", name="unit")
        self.latent_width = image_networks.latent_width(image_shape)
        self._adversarial_weight = adversarial_weight
        self._penalty = (penalty_weight, penalty_norm)

    def call(self, images, training=False):
        latents = self.encoder(unit_range(images), training=training)
        return self.generator(latents, training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The sum of the losses of the three networks.

        Args:
            x: (B, H, W, C) images, 0...255.
            y: not used.
            y_pred: their reconstructions, as a call gives them.
            sample_weight: not used.
            training: whether it is a training step.
        """
        judge, real = self.discriminator, unit_range(x)
        count = ops.shape(real)[0]
        fake = ops.stop_gradient(
            self.generator(self.latent_noise(count), training=training)
        )
        of_judge, of_generator = adversarial_losses(
            judge(real, training=training)[:, :1],
            judge(fake, training=training)[:, :1],
            with_frozen(judge, y_pred, training=training)[:, :1],
            self._adversarial_weight,
        )
        share = keras.random.uniform((count, 1, 1, 1), seed=self.noise)
        weight, norm = self._penalty
        penalty = gradient_penalty(
            lambda images: judge(images, training=training),
            share * real + (1.0 - share) * fake,
            judge.variables,
            norm,
        )
        error = ops.mean(ops.abs(y_pred - real))
        self.record(of_judge, penalty, of_generator, error)
        return of_judge + weight * penalty + of_generator + error

    def latent_noise(self, count):
        """(count, `latent_width`) random latent vectors."""
        noise = keras.random.normal(
            (count, self.latent_width), seed=self.noise, dtype="float32"
        )
        return self.unit(noise)

    def samples(self, images):
        """Reconstructions of images, and new images: rows, 0...255, by name.

        Args:
            images: (n, H, W, C), 0...255.
        """
        noise = np.random.default_rng(0).normal(
            size=(len(images), self.latent_width)
        )
        made = {
            "reconstructed": self(images),
            "from noise": self.generator(
                self.unit(noise.astype("float32")), training=False
            ),
        }
        return {name: 255.0 * np.asarray(x) for name, x in made.items()}

    def check_not_collapsed(self, images):
        """Raises ValueError if the generator makes one image of everything.

        Args:
            images: (n, H, W, C) real images, 0...255, n at least 2.
        """
        made = outputs_of(self, np.asarray(images))
        check_not_collapsed(
            made,
            images,
            what=f"its reconstructions of {len(images)} training images",
            advice="Raise gan_epochs, or lower gan_learning_rate or "
            "adversarial_weight.",
        )
