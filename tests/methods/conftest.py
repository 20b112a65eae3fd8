# SPDX-License-Identifier: Apache-2.0
"""A convolutional network with which methods train within seconds."""

import keras
import pytest

from cac_tf.models import networks
from cac_tf.models.image_classifier import ImageParts
from cac_tf.models.networks import registry


def small_network(num_classes, input_shape, dropout, weight_decay, seed):
    del weight_decay
    layers, seeds = keras.layers, iter(range(seed, seed + 9))

    def convolution():
        return layers.Conv2D(
            8,
            3,
            strides=2,
            padding="same",
            activation="relu",
            kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
        )

    return keras.Sequential(
        [
            keras.Input(input_shape),
            convolution(),
            layers.SpatialDropout2D(dropout, seed=next(seeds)),
            convolution(),
            layers.Flatten(),
            layers.Dense(
                num_classes,
                kernel_initializer=keras.initializers.GlorotUniform(
                    next(seeds)
                ),
            ),
        ]
    )


def parts_of(classifier, network):
    """`ImageParts` of a trained classifier whose network has this name."""
    return ImageParts(
        classifier.input_shape[-1],
        classifier.get_layer("prepare"),
        None,
        classifier.get_layer("normalization"),
        classifier.get_layer(network),
    )


@pytest.fixture(scope="module")
def network():
    """The name of `small_network`, for a recipe."""
    networks.register(small_network)
    yield "small_network"
    del registry._NETWORKS._entries["small_network"]
