# SPDX-License-Identifier: Apache-2.0
"""Parts of networks that reconstruct images.

The decoder has the convolutions of the generator of Neal et al. (ECCV 2018),
the code behind most rows of Table 1 of the CAC paper, with leaky ReLUs of 0.2,
Glorot's initialization and a bias of the pixels.
"""

import keras
from keras import layers

from cac_tf.layers.batch_normalization import BatchNormalization
from cac_tf.layers.precision import dtype_policy
from cac_tf.methods.image_maps import image_of_map
from cac_tf.methods.image_maps import smallest_map
from cac_tf.models.features import with_features
from cac_tf.models.networks import network_parts

# Latents with at least so many values for each place of the smallest map are
# taken for that map, as those of `openset_cnn` are; others are mapped to it.
_FEWEST_CHANNELS = 64


def parts_of(network):
    """A classifier's network as an encoder and a last dense layer.

    Args:
        network: functional Keras model, (B, H, W, C) -> (B, N) logits.

    Returns:
        Functional model `encoder`, (B, H, W, C) -> (B, D) features, and the
        `keras.layers.Dense` from these to logits. Both share their layers with
        the network.

    Raises:
        ValueError: it does not end in a dense layer.
    """
    try:
        both, last = with_features(network)
    except ValueError as error:
        raise ValueError(
            "Images cannot be reconstructed from the network "
            f"{network.name!r}: it must be a functional or Sequential model "
            "that ends in a dense layer, whose inputs are used as features."
        ) from error
    return keras.Model(both.input, both.outputs[0], name="encoder"), last


@dtype_policy("float32")
def pixels_again(normalized, statistics):
    """Pixels in [0, 1] of normalized images.

    Args:
        normalized: (B, H, W, C) Keras tensor.
        statistics: mean and std of the channels, two lists.

    Returns:
        (B, H, W, C) float32 Keras tensor.
    """
    mean, std = statistics
    return layers.Rescaling(scale=list(std), offset=list(mean), name="pixels")(
        normalized
    )


@dtype_policy("float32")
def decoder(latent_width, image_shape, width, seed):
    """From latents to images.

    Args:
        latent_width: D.
        image_shape: (height, width, channels).
        width: filters of the last convolution but one are twice as many.
        seed: seed of the initialization.

    Returns:
        Functional model, (B, D) -> (B, H, W, C) float32 in [0, 1].
    """
    seeds = network_parts.seed_sequence(seed)
    height, columns = smallest_map(image_shape)
    inputs = keras.Input([latent_width], name="latents")
    x, channels = inputs, latent_width // (height * columns)
    if channels < _FEWEST_CHANNELS or latent_width % (height * columns):
        channels = _FEWEST_CHANNELS
        x = layers.Dense(
            height * columns * channels,
            kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
            name="to_map",
        )(x)
    x = layers.Reshape((height, columns, channels), name="map")(x)
    x = image_of_map(
        x,
        image_shape,
        width,
        initializer=lambda: keras.initializers.GlorotUniform(next(seeds)),
        slope=0.2,
        normalization=BatchNormalization,
        use_bias=True,
    )
    return keras.Model(inputs, x, name="decoder")


@dtype_policy("float32")
def auto_encoder(image_shape, latents, width, seed):
    """From images to reconstructions of them, through few latents.

    Four strided convolutions, latents of length 1, and `decoder`.

    Args:
        image_shape: (height, width, channels).
        latents: width of the latents.
        width: filters of the first convolution.
        seed: seed of the initialization.

    Returns:
        Functional model, (B, H, W, C) -> (B, H, W, C) float32, both in [0, 1].
    """
    seeds = network_parts.seed_sequence(seed)
    inputs = keras.Input(image_shape, name="pixels")
    x = inputs
    for index, multiple in enumerate((1, 2, 4, 8)):
        x = layers.Conv2D(
            multiple * width,
            3,
            strides=2,
            padding="same",
            use_bias=False,
            kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
            name=f"conv{index}",
        )(x)
        x = BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"norm{index}")(
            x
        )
        x = layers.LeakyReLU(0.2, name=f"relu{index}")(x)
    x = layers.Dense(
        latents,
        kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
        name="latents",
    )(layers.Flatten(name="flat")(x))
    x = layers.UnitNormalization(name="unit")(x)
    x = decoder(latents, image_shape, width, next(seeds))(x)
    return keras.Model(inputs, x, name="auto_encoder")
