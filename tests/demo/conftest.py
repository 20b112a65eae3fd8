# SPDX-License-Identifier: Apache-2.0
"""A small model of scikit-learn's digits, and strokes written as points."""

import json

import keras
import pytest

import cac_tf
from cac_tf.demo.inspection import Inspector
from tests.conftest import ROOT


@pytest.fixture(scope="session")
def digits():
    return cac_tf.data.load_open_set_dataset("digits", trial=0)


@pytest.fixture(scope="session")
def trained_digits(digits):
    """Trained for seconds: much worse than what `cac-train` makes."""
    keras.utils.set_random_seed(0)
    classifier = keras.Sequential(
        [
            keras.Input([None, None, 1]),
            cac_tf.layers.ImagePreprocessing(8, 8),
            cac_tf.layers.ChannelNormalization(*digits.channel_statistics),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(6),
        ]
    )
    classifier.compile(
        keras.optimizers.SGD(0.02, momentum=0.9), cac_tf.losses.CACLoss()
    )
    classifier.fit(*digits.train, epochs=10, verbose=0)
    return cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        tuple(digits.train),
        class_names=digits.class_names,
        score="gamma",
        validation_data=tuple(digits.validation),
    )


@pytest.fixture(scope="session")
def inspector(trained_digits, digits):
    return Inspector(trained_digits, digits)


@pytest.fixture(scope="session")
def strokes():
    """Digits and letters: pairs of the name and the strokes."""
    text = (ROOT / "tests" / "demo" / "strokes.json").read_text()
    return json.loads(text)
