# SPDX-License-Identifier: Apache-2.0
"""A small model of scikit-learn's digits, and strokes written as points."""

import json

import keras
import pytest

import cac_tf
from cac_tf import demo
from tests.conftest import ROOT


@pytest.fixture(scope="session")
def digits():
    return cac_tf.data.load_open_set_dataset("digits", trial=0)


@pytest.fixture(scope="session")
def trained_digits(digits):
    """Trained for seconds: much worse than what `cac-train` makes."""
    keras.utils.set_random_seed(0)
    network = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(6),
        ]
    )
    model = cac_tf.OpenSetClassifier(
        network,
        digits.class_names,
        preprocessing=cac_tf.layers.ImagePreprocessing(
            8, 8, *digits.channel_statistics
        ),
    )
    model.compile(
        keras.optimizers.SGD(0.02, momentum=0.9), cac_tf.losses.CACLoss()
    )
    model.fit(*digits.train, epochs=10, verbose=0)
    model.fit_centers(*digits.train)
    model.calibrate(digits.validation.images, true_positive_rate=0.95)
    return model


@pytest.fixture(scope="session")
def inspector(trained_digits, digits):
    return demo.Inspector(trained_digits, digits)


@pytest.fixture(scope="session")
def strokes():
    """Digits and letters: pairs of the name and the strokes."""
    text = (ROOT / "tests" / "demo" / "strokes.json").read_text()
    return json.loads(text)
