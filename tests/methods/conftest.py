# SPDX-License-Identifier: Apache-2.0
"""Few digits, and a network with which methods train within seconds."""

import keras
import pytest

from cac_tf import methods
from cac_tf.data import load_open_set_dataset
from cac_tf.models import networks
from cac_tf.models.image_classifier import ImageParts
from cac_tf.models.networks import registry
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime


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


@pytest.fixture(scope="session")
def digits():
    return load_open_set_dataset(
        "digits",
        known_classes=["0", "1", "2"],
        unknown_classes=["3", "4"],
        test_fraction=0.8,
    )


def train(name, dataset, folder, values, **options):
    """The classifier of a method and its run, with the recipe for digits.

    Args:
        name: of the method.
        dataset: `OpenSetDataset`.
        folder: where its checkpoints lie.
        values: of the recipe, in place of the preset's.
        **options: of `TrainingRun`.
    """
    method = methods.get(name)
    recipe = method.recipe(**{**method.preset("digits"), **values})
    run = TrainingRun(Runtime(seed=3), str(folder), **options)
    return method.train(dataset, recipe, run), run


@pytest.fixture(scope="module")
def network():
    """The name of `small_network`, for a recipe."""
    networks.register(small_network)
    yield "small_network"
    del registry._NETWORKS._entries["small_network"]
