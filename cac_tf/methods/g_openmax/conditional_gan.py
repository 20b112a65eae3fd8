# SPDX-License-Identifier: Apache-2.0
"""A generator of images of given classes, and its discriminator."""

import keras
import numpy as np
from keras import ops

from cac_tf.methods.g_openmax import conditional_networks
from cac_tf.methods.generated_unknowns.adversarial_training import (
    AdversarialTraining,
)
from cac_tf.methods.generated_unknowns.adversarial_training import unit_range
from cac_tf.methods.generated_unknowns.collapse import check_not_collapsed
from cac_tf.methods.generated_unknowns.gradients import with_frozen
from cac_tf.methods.generated_unknowns.outputs import outputs_of


def conditional_losses(real, fake):
    r"""The losses of discriminator and generator, binary cross-entropies.

    Discriminator: mean \\(-\log \sigma(D(x, y))\\) plus mean
    \\(-\log(1 - \sigma(D(G(z, y'), y')))\\). Generator: mean
    \\(-\log \sigma(D(G(z, y'), y'))\\).

    Args:
        real, fake: (B, 1) logits of the discriminator.

    Returns:
        Two scalars.

    Example:

    >>> zero = np.zeros((2, 1), "float32")
    >>> [round(float(one), 4) for one in conditional_losses(zero, zero)]
    [1.3863, 0.6931]
    """
    of_discriminator = ops.mean(ops.softplus(-real)) + ops.mean(
        ops.softplus(fake)
    )
    return of_discriminator, ops.mean(ops.softplus(-fake))


class ConditionalGAN(AdversarialTraining):
    """Generator G and discriminator D of images of a class.

    D learns to tell real images with their class from those that G makes of
    noise and a random class; G, that D takes them for real. Both learn in one
    step. In the re-implementation that the networks are from, one learns after
    the other, from noise of its own.

    Args:
        image_shape: (height, width, channels).
        num_classes: N.
        width: filters of the discriminator's first convolutions.
        seed: seed of initialization and noise.

    Call arguments:
        images: (B, H, W, C), of which only the number counts.

    Returns:
        (B, H, W, C) generated images in [0, 1], and the (B, N) one-hot vectors
        of their random classes.
    """

    PARTS = ("discriminator_loss", "generator_loss")

    def __init__(self, image_shape, num_classes, *, width=64, seed=None):
        super().__init__(name="conditional_gan", dtype="float32")
        seeds = np.random.SeedSequence(seed).generate_state(3) >> 1
        one, two, three = map(int, seeds)
        self.generator = conditional_networks.generator(
            image_shape, num_classes, width, one
        )
        self.discriminator = conditional_networks.discriminator(
            image_shape, num_classes, width, two
        )
        self.noise = keras.random.SeedGenerator(three, name="noise")
        self._num_classes = num_classes

    def call(self, images, training=False):
        count = ops.shape(images)[0]
        noise = keras.random.normal(
            (count, conditional_networks.NOISE), seed=self.noise
        )
        labels = keras.random.randint(
            (count,), 0, self._num_classes, seed=self.noise
        )
        vectors = self._one_hot(labels)
        return self.generator([noise, vectors], training=training), vectors

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The sum of the losses of both networks.

        Args:
            x: (B, H, W, C) images, 0...255.
            y: (B,) labels.
            y_pred: generated images and their class vectors, as a call gives
                them.
            sample_weight: not used.
            training: whether it is a training step.
        """
        judge, (fake, vectors) = self.discriminator, y_pred
        labels = self._one_hot(ops.reshape(y, (-1,)))
        of_judge, _ = conditional_losses(
            judge([unit_range(x), labels], training=training),
            judge([ops.stop_gradient(fake), vectors], training=training),
        )
        judged = with_frozen(judge, [fake, vectors], training=training)
        _, of_generator = conditional_losses(judged, judged)
        self.record(of_judge, of_generator)
        return of_judge + of_generator

    def _one_hot(self, labels):
        return ops.one_hot(labels, self._num_classes, dtype="float32")

    def samples(self, images):
        """New images, 0...255, a row for each of few classes by its index.

        Args:
            images: not used.
        """
        rng = np.random.default_rng(0)
        noise = np.float32(rng.standard_normal((8, conditional_networks.NOISE)))
        vectors = np.eye(self._num_classes, dtype="float32")[:2]
        made = [
            self.generator([noise, np.tile(one, (len(noise), 1))])
            for one in vectors
        ]
        return {
            f"class {index}": 255.0 * np.asarray(row)
            for index, row in enumerate(made)
        }

    def check_not_collapsed(self, images, labels, class_names):
        """Raises ValueError if the generator makes one image of a class.

        Args:
            images: (n, H, W, C) real images, 0...255.
            labels: (n,) their class indices.
            class_names: names of the N classes. Of a class with less than two
                of the images, nothing is said.
        """
        rng = np.random.default_rng(0)
        for index, name in enumerate(class_names):
            own = np.asarray(images)[np.asarray(labels) == index]
            if len(own) < 2:
                continue
            noise = rng.standard_normal((32, conditional_networks.NOISE))
            vectors = np.eye(len(class_names))[np.full(32, index)]
            made = outputs_of(
                self.generator, [np.float32(noise), np.float32(vectors)]
            )
            check_not_collapsed(
                made,
                own,
                what=f"32 generated images of class {name!r}",
                advice="Raise gan_epochs, or change gan_learning_rate.",
            )
