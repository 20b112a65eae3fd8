# SPDX-License-Identifier: Apache-2.0
"""Encoder, generator and discriminator of Neal et al. (ECCV 2018).

After the released code: convolutions like those of the benchmark's classifier,
N(0, 0.05), batch normalization and leaky ReLU. Other than here, that code drops
channels of the input image, not after the last block; starts the scales of its
batch normalization by N(1, 0.02), not with 1; and gives the last transposed
convolution a bias. Every layer computes in float32, whatever the policy: the
gradient's gradient is taken of them.
"""

import keras
from keras import layers
from keras import ops

from cac_tf.layers.precision import dtype_policy
from cac_tf.methods.image_maps import image_of_map
from cac_tf.methods.image_maps import smallest_map
from cac_tf.models.networks import network_parts

# Values of a latent vector that have length 1 together.
CHUNK = 64
# (width as a multiple, strides) of the convolutions, in blocks.
_BLOCKS = (
    ((1, 1), (1, 1), (2, 2)),
    ((2, 1), (2, 1), (2, 2)),
    ((2, 1), (2, 1), (2, 2)),
)


@keras.saving.register_keras_serializable(package="CacTf")
class UnitChunks(layers.Layer):
    """Divides each chunk of consecutive values by its Euclidean length.

    The latent vectors of the released code lie on such products of spheres:
    1024 values, 16 chunks, for images of 32x32.

    Args:
        length: number of values of a chunk.
        **kwargs: passed to `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> z = UnitChunks()(np.full((1, 128), 3, "float32"))
    >>> [float(part) for part in np.asarray(z)[0, [0, 127]]]
    [0.125, 0.125]
    """

    def __init__(self, length=CHUNK, **kwargs):
        super().__init__(**kwargs)
        self.length = length

    def call(self, inputs):
        # Batch sizes may be unknown, lengths are not.
        chunks = inputs.shape[-1] // self.length
        chunks = ops.reshape(inputs, (-1, chunks, self.length))
        squared = ops.sum(ops.square(chunks), axis=-1, keepdims=True)
        chunks = chunks * ops.rsqrt(ops.maximum(squared, 1e-30))
        return ops.reshape(chunks, (-1, inputs.shape[-1]))

    def get_config(self):
        return {**super().get_config(), "length": self.length}


@keras.saving.register_keras_serializable(package="CacTf")
class BatchDifference(layers.Layer):
    """Appends exp(-mean of the batch) to the features of each image.

    So the discriminator sees if all images of a batch look alike.
    """

    def call(self, inputs):
        mean = ops.mean(inputs, axis=0, keepdims=True)
        of_batch = ops.broadcast_to(ops.exp(-mean), ops.shape(inputs))
        return ops.concatenate([inputs, of_batch], axis=-1)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], 2 * input_shape[-1])


def latent_width(image_shape):
    """Length of the latent vectors of images (height, width, channels).

    Example:

    >>> latent_width((32, 32, 3)), latent_width((8, 8, 1))
    (1024, 64)
    """
    height, width = smallest_map(image_shape)
    return height * width * CHUNK


@dtype_policy("float32")
def encoder(image_shape, width, dropout, seed):
    """From images to latent vectors, each `CHUNK` of length 1.

    Args:
        image_shape: (height, width, channels).
        width: filters of the first convolution.
        dropout: share of channels dropped after each block.
        seed: seed of initialization and dropout.

    Returns:
        Functional model, (B, H, W, C) in [0, 1] -> (B, `latent_width`).
    """
    seeds = network_parts.seed_sequence(seed)
    inputs = keras.Input(image_shape, name="images")
    x = _convolutions(inputs, width, dropout, seeds)
    x = _convolution(x, CHUNK, 1, next(seeds), "latents")
    # One channel after another, as in the released code.
    x = layers.Permute((3, 1, 2), name="channels_first")(x)
    x = layers.Flatten(name="flat")(x)
    x = UnitChunks(name="unit")(x)
    return keras.Model(inputs, x, name="encoder")


@dtype_policy("float32")
def discriminator(image_shape, width, dropout, seed, outputs=1):
    """From images to logits, the first of which is large for real ones.

    Args:
        image_shape, width, dropout, seed: as for `encoder`.
        outputs: number of logits.

    Returns:
        Functional model, (B, H, W, C) in [0, 1] -> (B, outputs).
    """
    seeds = network_parts.seed_sequence(seed)
    inputs = keras.Input(image_shape, name="images")
    x = _convolutions(inputs, width, dropout, seeds)
    x = layers.Flatten(name="flat")(x)
    x = BatchDifference(name="batch_difference")(x)
    x = layers.Dense(
        outputs,
        # PyTorch's default, as in that code. With N(0, 0.05), gradients by an
        # image would be five times as large.
        kernel_initializer=keras.initializers.VarianceScaling(
            1 / 3, "fan_in", "uniform", seed=next(seeds)
        ),
        name="logits",
    )(x)
    return keras.Model(inputs, x, name="discriminator")


@dtype_policy("float32")
def generator(image_shape, width, seed):
    """From latent vectors to images.

    Args:
        image_shape: (height, width, channels).
        width: an eighth of the filters of the first transposed convolution.
        seed: seed of the initialization.

    Returns:
        Functional model, (B, `latent_width`) -> (B, H, W, C) in [0, 1].
    """
    seeds = network_parts.seed_sequence(seed)
    smallest = smallest_map(image_shape)
    inputs = keras.Input([latent_width(image_shape)], name="latents")
    x = layers.Reshape((CHUNK, *smallest), name="map")(inputs)
    x = layers.Permute((2, 3, 1), name="channels_last")(x)
    x = image_of_map(
        x,
        image_shape,
        width,
        initializer=lambda: normal_initializer(next(seeds)),
        slope=0.01,
        normalization=layers.BatchNormalization,
        use_bias=False,
    )
    return keras.Model(inputs, x, name="generator")


def _convolutions(x, width, dropout, seeds):
    number = 0
    for block in _BLOCKS:
        for multiple, strides in block:
            number += 1
            x = _convolution(
                x, multiple * width, strides, next(seeds), f"conv{number}"
            )
            x = normalized(x, f"norm{number}")
            x = layers.LeakyReLU(0.2, name=f"relu{number}")(x)
        x = layers.SpatialDropout2D(
            dropout, seed=next(seeds), name=f"dropout{number}"
        )(x)
    return x


def _convolution(x, filters, strides, seed, name):
    if strides > 1:
        # "same" would pad a strided convolution on one side only.
        x = layers.ZeroPadding2D(1, name=f"{name}_pad")(x)
    return layers.Conv2D(
        filters,
        3,
        strides=strides,
        padding="same" if strides == 1 else "valid",
        use_bias=False,
        kernel_initializer=normal_initializer(seed),
        name=name,
    )(x)


def normalized(x, name):
    """Batch normalization of a Keras tensor, as in all networks here."""
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)


def normal_initializer(seed):
    """N(0, 0.05), of all networks here."""
    return keras.initializers.RandomNormal(stddev=0.05, seed=seed)
