# SPDX-License-Identifier: Apache-2.0
"""Generator and discriminator of images, given a class vector.

After a public re-implementation of G-OpenMax for images of 32x32: DCGAN
(Radford et al., 2016) with the class as a second input of both networks. Other
sizes have the same number of layers and a smaller or larger map at the deepest
one. Weights start like those of the auto-encoder.
"""

import keras
from keras import layers
from keras import ops

from cac_tf.layers.precision import dtype_policy
from cac_tf.methods.generated_unknowns import image_networks
from cac_tf.methods.image_maps import cropped
from cac_tf.methods.image_maps import smallest_map
from cac_tf.models.networks import network_parts

# Length of the noise that an image is made of.
NOISE = 100


@keras.saving.register_keras_serializable(package="CacTf")
class ClassMap(layers.Layer):
    """A class vector at each pixel of an image.

    Call arguments:
        images: (B, H, W, C).
        vectors: (B, N).

    Returns:
        (B, H, W, N).

    Example:

    >>> import numpy as np
    >>> images, vectors = np.zeros((1, 2, 2, 3)), np.float32([[0, 1]])
    >>> np.asarray(ClassMap()(images, vectors))[0, :, 1].tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """

    def call(self, images, vectors):
        height, width = images.shape[1:3]
        vectors = ops.reshape(vectors, (-1, 1, 1, vectors.shape[-1]))
        return ops.tile(vectors, (1, height, width, 1))

    def compute_output_shape(self, images_shape, vectors_shape):
        return (*images_shape[:-1], vectors_shape[-1])


@dtype_policy("float32")
def generator(image_shape, num_classes, width, seed):
    """From noise and class vectors to images.

    Args:
        image_shape: (height, width, channels).
        num_classes: N.
        width: a quarter of the filters that each of the two starts with; 64 in
            that re-implementation.
        seed: seed of the initialization.

    Returns:
        Functional model, [(B, `NOISE`), (B, N)] -> (B, H, W, C) in [0, 1].
    """
    seeds = network_parts.seed_sequence(seed)
    noise = keras.Input([NOISE], name="noise")
    vectors = keras.Input([num_classes], name="class_vectors")
    rows, columns = smallest_map(image_shape)
    maps = []
    for name, x in (("noise", noise), ("class", vectors)):
        # A transposed convolution of a single pixel.
        x = layers.Dense(
            rows * columns * 4 * width,
            use_bias=False,
            kernel_initializer=image_networks.normal_initializer(next(seeds)),
            name=f"{name}_up",
        )(x)
        x = layers.Reshape((rows, columns, 4 * width), name=f"{name}_map")(x)
        maps.append(_activated(x, f"{name}_0"))
    x = layers.Concatenate(name="both")(maps)
    for index, filters in enumerate((4 * width, 2 * width, image_shape[-1]), 1):
        x = _convolution(
            x, filters, seeds, f"up{index}", layers.Conv2DTranspose
        )
        x = _activated(x, str(index)) if index < 3 else x
    x = layers.Activation("tanh", name="tanh")(x)
    x = layers.Rescaling(0.5, 0.5, name="pixels")(x)
    x = cropped(x, image_shape)
    return keras.Model([noise, vectors], x, name="generator")


@dtype_policy("float32")
def discriminator(image_shape, num_classes, width, seed):
    """From images and class vectors to a logit, large for real images.

    Args:
        image_shape, num_classes: as for `generator`.
        width: filters of the first convolutions.
        seed: seed of the initialization.

    Returns:
        Functional model, [(B, H, W, C) in [0, 1], (B, N)] -> (B, 1).
    """
    seeds = network_parts.seed_sequence(seed)
    images = keras.Input(image_shape, name="images")
    vectors = keras.Input([num_classes], name="class_vectors")
    class_map = ClassMap(name="class_map")(images, vectors)
    centered = layers.Rescaling(2.0, -1.0, name="centered")
    maps = [
        _leaky(_convolution(x, width, seeds, f"{name}_conv1"), f"{name}_1")
        for name, x in (("image", centered(images)), ("class", class_map))
    ]
    x = layers.Concatenate(name="both")(maps)
    for index, filters in enumerate((4 * width, 8 * width), 2):
        x = _convolution(x, filters, seeds, f"conv{index}")
        x = _leaky(image_networks.normalized(x, f"norm{index}"), str(index))
    x = layers.Flatten(name="flat")(x)
    x = layers.Dense(
        1,
        kernel_initializer=image_networks.normal_initializer(next(seeds)),
        name="logit",
    )(x)
    return keras.Model([images, vectors], x, name="discriminator")


def _convolution(x, filters, seeds, name, kind=layers.Conv2D):
    return kind(
        filters,
        4,
        strides=2,
        padding="same",
        use_bias=False,
        kernel_initializer=image_networks.normal_initializer(next(seeds)),
        name=name,
    )(x)


def _activated(x, name):
    x = image_networks.normalized(x, f"norm_{name}")
    return layers.ReLU(name=f"relu_{name}")(x)


def _leaky(x, name):
    return layers.LeakyReLU(0.2, name=f"relu_{name}")(x)
