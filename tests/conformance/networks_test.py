# SPDX-License-Identifier: Apache-2.0
"""Every registered network, those of other packages too, by the same suite."""

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf.layers.precision import dtype_policy
from cac_tf.models import networks

SHAPE = (16, 16, 3)


@pytest.fixture(params=networks.names(), scope="module")
def make(request):
    function = networks.find(request.param)

    def network(**options):
        return function(
            5, SHAPE, **{"dropout": 0.1, "weight_decay": 1e-3, **options}
        )

    return network


@pytest.fixture
def images(rng):
    return np.float32(rng.random((4, *SHAPE)))


def test_logits_in_float32_under_any_policy(make, images):
    with dtype_policy("mixed_bfloat16"):
        model = make(seed=0)
    logits = model(images)
    assert tuple(logits.shape) == (4, 5)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


def test_the_seed_decides_the_weights(make):
    one, two, other = make(seed=3), make(seed=3), make(seed=4)
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(
        np.any(a != b)
        for a, b in zip(one.get_weights(), other.get_weights(), strict=True)
    )


def test_weight_decay_is_a_penalty_on_weights(make):
    assert not make(weight_decay=0.0).losses
    model = make(seed=0)
    expected = sum(
        0.5e-3 * np.sum(np.float64(w) ** 2) for w in model.trainable_weights
    )
    np.testing.assert_allclose(
        sum(float(v) for v in model.losses), expected, rtol=1e-4
    )


def test_config_and_weights(make, images):
    model = make(seed=0)
    again = keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(images), model(images))


def test_in_a_classifier_it_names_its_features(make, images, tmp_path):
    model = cac_tf.OpenSetClassifier(make(seed=0), list("abcde"))
    outputs = model(images)
    assert {"logits", "features", "distances", "gamma"} <= set(outputs)
    last = model.network.last_layer
    np.testing.assert_allclose(
        np.asarray(outputs["features"]) @ last.kernel + last.bias,
        outputs["logits"],
        rtol=1e-4,
        atol=1e-5,
    )
    model.save(tmp_path / "model.keras")
    loaded = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images)["logits"], outputs["logits"])
