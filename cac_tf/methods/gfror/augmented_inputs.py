# SPDX-License-Identifier: Apache-2.0
"""The networks of GFROR, and the training of its auto-encoder."""

import keras
import numpy as np
from keras import layers
from keras import ops

from cac_tf.layers import RandomSymmetry
from cac_tf.layers.precision import dtype_policy
from cac_tf.layers.random_symmetry import SYMMETRIES
from cac_tf.methods.reconstruction import image_networks
from cac_tf.methods.reconstruction.training import ImageTraining
from cac_tf.methods.reconstruction.training import reconstruction_losses
from cac_tf.models.networks import network_parts


@dtype_policy("float32")
def with_reconstruction_as_input(
    network, statistics, latents, width, weight_decay, seed
):
    """A classifier of images and their reconstructions by an auto-encoder.

    Args:
        network: Keras model, (B, H, W, 2 C) -> (B, K) logits.
        statistics: mean and std of the C channels of images in [0, 1].
        latents, width: of the auto-encoder.
        weight_decay: of the layer that tells the symmetry.
        seed: seed of the initialization and the symmetries.

    Returns:
        Functional model, normalized (B, H, W, C) images -> dict: `logits`;
        `reconstruction`, (B, H, W, C) in [0, 1]; `symmetry`, (B,), by which
        each image was changed, and `symmetry_logits`, (B, 8), what the network
        takes it for. (Outside training, it is 0.) The auto-encoder is not
        trainable, until `AutoEncoderTraining` trains it.
    """
    encoder, last = image_networks.parts_of(network)
    *size, channels = encoder.input.shape[1:]
    image_shape = (*size, channels // 2)
    # Other random numbers than those of the network.
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
    auto_encoder = image_networks.auto_encoder(
        image_shape, latents, width, seeds[0] >> 1
    )
    auto_encoder.trainable = False
    inputs = keras.Input(image_shape, name="images")
    reconstruction = auto_encoder(
        image_networks.pixels_again(inputs, statistics)
    )
    mean, std = map(np.array, statistics)
    normalized = layers.Rescaling(
        scale=(1.0 / std).tolist(),
        offset=(-mean / std).tolist(),
        name="normalized",
    )(reconstruction)
    both = layers.Concatenate(name="both")([inputs, normalized])
    changed, symmetry = RandomSymmetry(seeds[1] >> 1, name="symmetry")(both)
    of_symmetry = layers.Dense(
        SYMMETRIES,
        kernel_initializer=keras.initializers.GlorotUniform(seeds[2] >> 1),
        kernel_regularizer=network_parts.l2_penalty(weight_decay),
        bias_regularizer=network_parts.l2_penalty(weight_decay),
        name="symmetry_logits",
    )
    return keras.Model(
        inputs,
        {
            "logits": last(encoder(both)),
            "symmetry_logits": of_symmetry(encoder(changed)),
            "symmetry": symmetry,
            "reconstruction": reconstruction,
        },
        name="gfror",
    )


class AutoEncoderTraining(ImageTraining):
    """Trains the auto-encoder of `with_reconstruction_as_input`.

    The loss is the mean squared difference of the pixels in [0, 1]. In
    training, channels of the input image are dropped at random, where there are
    several.

    Args:
        parts: `models.ImageParts` of the classifier, whose augmentation is
            used.
        dropout: share of dropped channels, in [0, 1).
        seed: seed of the dropout.
    """

    IF_NOT_FINITE = "Lower auto_encoder_learning_rate."

    def __init__(self, parts, dropout=0.2, seed=None):
        super().__init__(parts, "auto_encoder", name="auto_encoder_training")
        # (It has the state of a random generator.)
        self.augment = parts.augment
        has_one_channel = parts.channels == 1
        self.dropout = layers.SpatialDropout2D(
            0.0 if has_one_channel else dropout, seed=seed, dtype="float32"
        )

    def call(self, images, training=False):
        pixels = self.parts.pixels(images, training)
        dropped = self.dropout(pixels, training=training)
        return {
            "pixels": pixels,
            "reconstruction": self.learns(dropped, training=training),
        }

    def losses_of(self, images, labels, outputs, training):
        losses = reconstruction_losses(
            outputs["pixels"], outputs["reconstruction"], "squared"
        )
        return [(losses, ops.ones_like(losses))]
