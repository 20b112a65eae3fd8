# SPDX-License-Identifier: Apache-2.0
"""What the dense layers at a classifier's end read."""

import keras
import numpy as np
import pytest
from keras import layers

from cac_tf import models
from cac_tf.models.embeddings import embedding_model
from cac_tf.models.making import on_backbone

X = np.random.default_rng(0).standard_normal((3, 6, 6, 2)).astype("float32")
VECTORS = X[:, 0, :, 0]


def values(model, x):
    return keras.ops.convert_to_numpy(model(x))


def test_of_vectors_it_is_these_normalized():
    classifier = models.vector_classifier(
        np.ones(6), np.full(6, 2.0), models.mlp(3, (6,), dropout=0.5)
    )
    found = values(embedding_model(classifier), VECTORS)
    np.testing.assert_allclose(found, (VECTORS - 1) / 2, rtol=1e-6)


def test_of_a_head_on_a_network_it_is_what_that_gives():
    backbone = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    head = keras.Sequential(
        [
            keras.Input([4]),
            layers.Dense(5),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dense(3),
        ]
    )
    found = values(embedding_model(on_backbone(backbone, head)), X)
    np.testing.assert_allclose(found, values(backbone, X), rtol=1e-6)


@pytest.mark.parametrize("hidden", [True, False])
def test_of_a_map_that_is_flattened_it_is_the_last_layers_input(hidden):
    classifier = keras.Sequential(
        [
            *(keras.Input((6, 6, 2)), layers.Conv2D(4, 3), layers.Flatten()),
            *([layers.Dense(5, "relu")] if hidden else []),
            layers.Dense(3),
        ]
    )
    features = X
    for layer in classifier.layers[:-1]:
        features = layer(features)
    found = values(embedding_model(classifier), X)
    np.testing.assert_allclose(found, features, rtol=1e-6)
