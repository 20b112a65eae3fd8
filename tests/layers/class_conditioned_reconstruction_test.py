# SPDX-License-Identifier: Apache-2.0
"""FiLM and the K reconstructions of C2AE against NumPy in float64."""

import keras
import numpy as np
import pytest

from cac_tf.layers.class_conditioned_reconstruction import (
    ClassConditionedReconstruction,
)
from cac_tf.layers.class_conditioned_reconstruction import label_conditions
from tests import execution

CLASSES, WIDTH, SHAPE = 3, 5, (2, 3, 2)


@pytest.fixture
def layer(rng):
    decoder = keras.Sequential(
        [
            keras.Input([WIDTH]),
            keras.layers.Dense(12, activation="sigmoid"),
            keras.layers.Reshape(SHAPE),
        ]
    )
    made = ClassConditionedReconstruction(decoder, CLASSES, seed=1)
    made.build((None, *SHAPE), (None, WIDTH))
    made.set_weights([rng.normal(size=w.shape) for w in made.get_weights()])
    return made


@pytest.fixture
def images_and_latents(rng):
    return (
        np.float32(rng.uniform(size=(4, *SHAPE))),
        np.float32(rng.normal(size=(4, WIDTH))),
    )


def decoded(layer, latents, label):
    """One reconstruction, written out."""
    condition = -np.ones(CLASSES)
    condition[label] = 1.0
    gamma, beta = (
        condition @ np.float64(kernel) + np.float64(bias)
        for kernel, bias in (layer.scale_weights, layer.shift_weights)
    )
    kernel, bias = layer.decoder.layers[0].get_weights()
    z = (gamma * np.float64(latents) + beta) @ np.float64(kernel) + bias
    return (1.0 / (1.0 + np.exp(-z))).reshape(SHAPE)


def test_errors_and_best_reconstruction(layer, images_and_latents):
    images, latents = images_and_latents
    outputs = layer(images, latents)
    every = np.array(
        [[decoded(layer, z, c) for c in range(CLASSES)] for z in latents]
    )
    errors = np.abs(every - images[:, None]).mean(axis=(2, 3, 4))
    np.testing.assert_allclose(
        outputs["reconstruction_errors"], errors, rtol=1e-5
    )
    best = every[np.arange(4), errors.argmin(axis=1)]
    np.testing.assert_allclose(
        outputs["reconstruction"], best, rtol=1e-5, atol=1e-6
    )
    # The condition matters: otherwise all classes would reconstruct alike.
    assert np.ptp(errors, axis=1).min() > 0.01


def test_each_input_as_one_class(layer, images_and_latents):
    _, latents = images_and_latents
    labels = np.array([2, 0, 1, 1])
    expected = [
        decoded(layer, z, c) for z, c in zip(latents, labels, strict=True)
    ]
    np.testing.assert_allclose(
        layer.as_classes(latents, labels), expected, rtol=1e-5, atol=1e-6
    )


def test_the_same_in_every_mode(layer, images_and_latents, mode):
    def errors(images, latents):
        return layer(images, latents)["reconstruction_errors"]

    np.testing.assert_allclose(
        execution.compiled(errors, mode)(*images_and_latents),
        errors(*images_and_latents),
        rtol=1e-5,
    )


def test_conditions():
    np.testing.assert_array_equal(
        label_conditions(3), [[1, -1, -1], [-1, 1, -1], [-1, -1, 1]]
    )


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="num_classes must be at least 2"):
        ClassConditionedReconstruction(keras.layers.Dense(1), 1)
