# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf.layers import BatchNormalization
from tests import execution

EPSILON = 1e-3


def oracle(x, gamma, beta):
    """Output and the batch's mean and unbiased variance, in float64."""
    x = np.float64(x)
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    count = x.size // x.shape[-1]
    y = (x - mean) / np.sqrt(variance + EPSILON) * gamma + beta
    return y, mean, variance * count / (count - 1)


@pytest.fixture
def layer(rng):
    layer = BatchNormalization(momentum=0.9, epsilon=EPSILON)
    layer.build((None, 4, 5, 3))
    layer.gamma.assign(rng.uniform(0.5, 2.0, 3))
    layer.beta.assign(rng.standard_normal(3))
    return layer


@pytest.fixture
def images(rng):
    return np.float32(3 + 2 * rng.standard_normal((6, 4, 5, 3)))


def test_training_output_and_running_statistics(layer, images):
    gamma, beta = np.asarray(layer.gamma), np.asarray(layer.beta)
    expected, mean, unbiased = oracle(images, gamma, beta)
    actual = np.asarray(layer(images, training=True))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(
        layer.moving_variance, 0.9 + 0.1 * unbiased, rtol=1e-5
    )


def test_inference_uses_the_running_statistics(layer, images, mode):
    layer(images, training=True)
    mean, variance = (
        np.float64(np.asarray(v))
        for v in (layer.moving_mean, layer.moving_variance)
    )
    gamma, beta = np.asarray(layer.gamma), np.asarray(layer.beta)
    expected = (images - mean) / np.sqrt(variance + EPSILON) * gamma + beta
    infer = execution.compiled(lambda x: layer(x, training=False), mode)
    np.testing.assert_allclose(infer(images), expected, rtol=1e-5, atol=1e-5)


def test_gradient_by_finite_differences(layer, rng):
    """Of a random combination of the outputs, by every fifth input."""
    images = np.float32(rng.standard_normal((2, 4, 5, 3)))
    weights = rng.standard_normal(images.shape)
    gamma, beta = (np.float64(np.asarray(v)) for v in (layer.gamma, layer.beta))

    def total(x):
        return (oracle(x, gamma, beta)[0] * weights).sum()

    def weighted(x, w):
        return layer(x, training=True) * w

    if execution.BACKEND == "jax":
        # Assigning variables inside of jax.grad needs a stateless call.
        def weighted(x, w):
            outputs, _ = layer.stateless_call(
                layer.trainable_variables,
                layer.non_trainable_variables,
                x,
                training=True,
            )
            return outputs * w

    actual = execution.gradient(weighted)(images, np.float32(weights))
    for flat in range(0, images.size, 5):
        place = np.unravel_index(flat, images.shape)
        step = np.zeros(images.shape)
        step[place] = 1e-4
        slope = (total(images + step) - total(images - step)) / 2e-4
        assert actual[place] == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_half_precision_is_normalised_in_float32(rng):
    """Mean and variance of bfloat16 inputs far from zero."""
    layer = BatchNormalization(dtype="mixed_bfloat16", momentum=0.0)
    images = np.float32(100 + rng.standard_normal((8, 4, 4, 2)))
    outputs = layer(images, training=True)
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    rounded = keras.ops.cast(keras.ops.cast(images, "bfloat16"), "float32")
    _, mean, unbiased = oracle(np.asarray(rounded), 1.0, 0.0)
    np.testing.assert_allclose(layer.moving_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, unbiased, rtol=1e-3)


def test_not_trainable_means_inference(layer, images):
    layer.trainable = False
    before = np.asarray(layer(images, training=False))
    np.testing.assert_array_equal(layer(images, training=True), before)
    np.testing.assert_array_equal(layer.moving_mean, np.zeros(3))


def test_without_scale_and_centre(images):
    layer = BatchNormalization(scale=False, center=False, epsilon=EPSILON)
    expected, *_ = oracle(images, 1.0, 0.0)
    np.testing.assert_allclose(
        layer(images, training=True), expected, rtol=1e-5, atol=1e-5
    )


def test_save_and_load(tmp_path, layer, images):
    model = keras.Sequential([keras.Input((4, 5, 3)), layer])
    layer(images, training=True)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict(images, verbose=0),
        model.predict(images, verbose=0),
        rtol=1e-6,
    )


def test_bad_input(images):
    with pytest.raises(ValueError, match=r"\(batch, height, width, channels"):
        BatchNormalization()(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match="takes no mask"):
        BatchNormalization()(images, mask=np.ones((6, 4, 5), bool))
