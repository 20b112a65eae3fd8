# SPDX-License-Identifier: Apache-2.0
"""The second training of C2AE: a decoder conditioned on the class."""

import keras
from keras import ops

from cac_tf.layers.class_conditioned_reconstruction import (
    ClassConditionedReconstruction,
)
from cac_tf.methods.reconstruction import image_networks
from cac_tf.methods.reconstruction.training import ImageTraining
from cac_tf.methods.reconstruction.training import reconstruction_losses


def with_reconstructions(network, statistics, width, seed):
    """A classifier's network that also reconstructs its inputs as each class.

    Args:
        network: Keras model, normalized (B, H, W, C) images -> (B, K) logits.
        statistics: mean and std of the channels, for pixels in [0, 1].
        width: of the decoder.
        seed: seed of its initialization.

    Returns:
        Functional model with the outputs `logits`, and those of
        `ClassConditionedReconstruction`. Its decoder is not trainable, until
        `DecoderTraining` trains it.
    """
    encoder, last = image_networks.parts_of(network)
    image_shape = encoder.input.shape[1:]
    inputs = keras.Input(image_shape, name="images")
    latents = encoder(inputs)
    # Other random numbers than those of the network.
    seed = (seed + 1) % 2**31
    decoder = image_networks.decoder(
        latents.shape[-1], image_shape, width, seed
    )
    reconstruction = ClassConditionedReconstruction(
        decoder, last.units, seed=seed, name="reconstruction"
    )
    reconstruction.trainable = False
    outputs = reconstruction(
        image_networks.pixels_again(inputs, statistics), latents
    )
    return keras.Model(
        inputs, {"logits": last(latents), **outputs}, name="c2ae"
    )


def rows_of_other_classes(labels, noise):
    """For each input, a row of the batch with another label.

    Args:
        labels: (B,).
        noise: (B, B) in [0, 1), which decides among them.

    Returns:
        (B,) int32 rows, and (B,) float32: 0 where all have the same label.

    Example:

    >>> import numpy as np
    >>> noise = np.float32([[0, .9, .1], [0, 0, 0], [0, .5, 1]])
    >>> rows, there = rows_of_other_classes(np.array([0, 0, 1]), noise)
    >>> np.asarray(rows).tolist(), np.asarray(there).tolist()
    ([2, 2, 1], [1.0, 1.0, 1.0])
    """
    labels = ops.reshape(ops.convert_to_tensor(labels), (-1,))
    is_other = ops.not_equal(
        ops.expand_dims(labels, 1), ops.expand_dims(labels, 0)
    )
    rows = ops.argmax(ops.where(is_other, noise, -1.0), axis=1)
    return (
        ops.cast(rows, "int32"),
        ops.cast(ops.any(is_other, axis=1), "float32"),
    )


class DecoderTraining(ImageTraining):
    r"""Trains the decoder of a classifier of `with_reconstructions`.

    The loss of an image x of class y and an image x' of another class y', both
    from the batch, is
    \\(\alpha |x - D(z, y)| + (1 - \alpha) |x' - D(z, y')|\\), where z are the
    latents of x and |.| is the mean absolute difference over the pixels. An
    image in a batch without another class has only the first term.

    Args:
        parts: `models.ImageParts` of the classifier.
        match_weight: alpha, in [0, 1].
        seed: seed of the choice of images of other classes.
    """

    IF_NOT_FINITE = "Lower decoder_learning_rate."

    def __init__(self, parts, match_weight=0.9, seed=None):
        super().__init__(parts, "reconstruction", name="decoder_training")
        self._own.encoder = parts.network.get_layer("encoder")
        self.choice = keras.random.SeedGenerator(seed, name="choice")
        self._match_weight = match_weight

    def call(self, images, training=False):
        # (Not augmented: see `c2ae`.)
        pixels = self.parts.prepare(images)
        # The frozen encoder is in evaluation mode.
        normalized = self.parts.normalize(pixels)
        latents = self._own.encoder(normalized, training=False)
        return {
            "pixels": pixels,
            "latents": ops.stop_gradient(ops.cast(latents, "float32")),
        }

    def losses_of(self, images, labels, outputs, training):
        labels = ops.reshape(labels, (-1,))
        pixels, latents = outputs["pixels"], outputs["latents"]
        count = ops.shape(pixels)[0]
        noise = keras.random.uniform((count, count), seed=self.choice)
        rows, is_there = rows_of_other_classes(labels, noise)
        wanted = ops.concatenate([pixels, ops.take(pixels, rows, axis=0)])
        decoded = self.learns.as_classes(
            ops.concatenate([latents, latents]),
            ops.concatenate([labels, ops.take(labels, rows, axis=0)]),
            training=training,
        )
        losses = reconstruction_losses(wanted, decoded)
        alpha = self._match_weight
        return [
            (alpha * losses[:count], ops.ones((count,))),
            ((1.0 - alpha) * losses[count:], is_there),
        ]
