# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from cac_tf.layers.batch_normalization import BatchNormalization
from tests import execution
from tests.conftest import ROOT
from tests.oracle import rounding

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


def test_half_precision_is_normalized_in_float32(rng):
    """Mean and variance of bfloat16 inputs far from zero."""
    layer = BatchNormalization(dtype="mixed_bfloat16", momentum=0.0)
    images = np.float32(100 + rng.standard_normal((8, 4, 4, 2)))
    outputs = layer(images, training=True)
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    rounded = keras.ops.cast(keras.ops.cast(images, "bfloat16"), "float32")
    _, mean, unbiased = oracle(np.asarray(rounded), 1.0, 0.0)
    np.testing.assert_allclose(layer.moving_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, unbiased, rtol=1e-3)


@pytest.mark.parametrize("training", [True, False])
def test_double_precision_is_normalized_in_float32(images, training):
    double, single = (
        BatchNormalization(dtype=dtype) for dtype in ("float64", "float32")
    )
    with execution.float64():
        outputs = double(images, training=training)
    np.testing.assert_allclose(
        np.asarray(outputs),
        np.asarray(single(images, training=training)),
        rtol=1e-5,
        atol=1e-6,
    )
    assert keras.backend.standardize_dtype(outputs.dtype) == "float64"
    for a, b in zip(double.weights, single.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("argument", ["axis", "renorm", "renorm_clipping"])
def test_arguments_that_it_does_not_take(argument):
    with pytest.raises(ValueError, match=f"without renormal.*; got {argument}"):
        BatchNormalization(**{argument: 1})


def test_not_trainable_means_inference(layer, images):
    layer.trainable = False
    before = np.asarray(layer(images, training=False))
    np.testing.assert_array_equal(layer(images, training=True), before)
    np.testing.assert_array_equal(layer.moving_mean, np.zeros(3))


def test_without_scale_and_center(images):
    layer = BatchNormalization(scale=False, center=False, epsilon=EPSILON)
    expected, *_ = oracle(images, 1.0, 0.0)
    np.testing.assert_allclose(
        layer(images, training=True), expected, rtol=1e-5, atol=1e-5
    )


def test_synchronized_changes_nothing_on_one_device(layer, images):
    """And is kept in the configuration, as it is by default."""
    assert layer.get_config()["synchronized"] is True
    config = layer.get_config() | {"synchronized": False}
    again = BatchNormalization.from_config(config)
    assert again.get_config() == config
    again.build((None, 4, 5, 3))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(
        again(images, training=True), layer(images, training=True)
    )
    for a, b in zip(again.get_weights(), layer.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="fused on TensorFlow alone"
)
def test_one_device_takes_one_fused_operation(layer, images):
    """Whose values these are, bit by bit."""
    import tensorflow as tf

    outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
        images, layer.gamma, layer.beta, epsilon=EPSILON
    )
    weights = [
        running * 0.9 + value * (1.0 - 0.9)
        for running, value in (
            (layer.moving_mean.value, mean),
            (layer.moving_variance.value, variance),
        )
    ]
    np.testing.assert_array_equal(layer(images, training=True), outputs)
    np.testing.assert_array_equal(layer.moving_mean, weights[0])
    np.testing.assert_array_equal(layer.moving_variance, weights[1])
    traced = tf.function(lambda x: layer(x, training=True))
    graph = traced.get_concrete_function(images).graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert kinds.count("FusedBatchNormV3") == 1
    assert not {"Mean", "Sum", "SquaredDifference"} & set(kinds)


# Prints, for each way to divide a batch among two replicas: outputs, gradients
# by the inputs, gradients by gamma and beta summed as an optimizer does, and
# the running statistics on each replica.
TWO_REPLICAS = """
import json, sys
import keras, numpy as np, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from cac_tf.layers.batch_normalization import BatchNormalization

given = json.load(sys.stdin)
images, weights = (np.float32(given[name]) for name in ("images", "weights"))
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def run(synchronized, first):
    with strategy.scope():
        layer = BatchNormalization(momentum=0.9, synchronized=synchronized)
        layer.build((None, *images.shape[1:]))
        layer.gamma.assign(given["gamma"])
        layer.beta.assign(given["beta"])

    def divided(array):
        parts = array[:first], array[first:]
        return strategy.experimental_distribute_values_from_function(
            lambda replica: tf.constant(
                parts[replica.replica_id_in_sync_group]
            )
        )

    # Of unknown batch size, as in `fit`.
    @tf.function(reduce_retracing=True)
    def step(x, w):
        def on_replica(x, w):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, training=True)
                loss = tf.reduce_sum(y * w)
            trainable = [v.value for v in layer.trainable_variables]
            return y, *tape.gradient(loss, [x, *trainable])

        return strategy.run(on_replica, (x, w))

    local = [
        [part.numpy() for part in strategy.experimental_local_results(value)]
        for value in step(divided(images), divided(weights))
    ]
    outputs, by_x = (np.concatenate(parts) for parts in local[:2])
    running = [
        [part.numpy().tolist() for part in variable.value.values]
        for variable in (layer.moving_mean, layer.moving_variance)
    ]
    inferred = strategy.run(
        lambda x: layer(x, training=False), (divided(images),)
    )
    assert all(
        np.isfinite(part).all()
        for part in strategy.experimental_local_results(inferred)
    )
    return {
        "outputs": outputs.tolist(),
        "by_x": by_x.tolist(),
        "by_gamma": sum(local[2]).tolist(),
        "by_beta": sum(local[3]).tolist(),
        "running": running,
    }

print(json.dumps([
    [run(synchronized, first) for first in given["first"]]
    for synchronized in (True, False)
]))
"""


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="replicas of tf.distribute"
)
def test_two_replicas(rng):
    """Equally many images, more on one than on the other, none on one."""
    import tensorflow as tf

    images = np.float32(0.5 + rng.standard_normal((6, 4, 5, 3)))
    weights = np.float32(rng.standard_normal(images.shape))
    gamma, beta = np.float32([0.5, 1.0, 1.5]), np.float32([0.1, 0.0, -0.3])
    first = [3, 4, 6]
    given = {
        "images": images,
        "weights": weights,
        "gamma": gamma,
        "beta": beta,
        "first": np.array(first),
    }
    result = subprocess.run(
        [sys.executable, "-c", TWO_REPLICAS],
        cwd=ROOT,
        input=json.dumps({name: v.tolist() for name, v in given.items()}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    synchronized, separate = json.loads(result.stdout)

    layer = BatchNormalization(momentum=0.9)
    layer.build(images.shape)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    x = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=True)
        loss = tf.reduce_sum(outputs * weights)
    by_x, by_gamma, by_beta = tape.gradient(
        loss, [x, layer.gamma.value, layer.beta.value]
    )
    expected, mean, unbiased = oracle(images, gamma, beta)
    statistics = 0.1 * mean, 0.9 + 0.1 * unbiased
    # What is added up for a gradient, on one device or as two sums of parts.
    summed_by_gamma = np.abs(weights * (expected - beta) / gamma)
    sums = {
        "by_gamma": (by_gamma, summed_by_gamma.sum(axis=(0, 1, 2))),
        "by_beta": (by_beta, np.abs(weights).sum(axis=(0, 1, 2))),
    }
    for found in synchronized:
        for name, one_device in (
            ("outputs", outputs),
            ("outputs", expected),
            ("by_x", by_x),
        ):
            # Means are subtracted: a small value is what large ones leave.
            np.testing.assert_allclose(
                found[name], one_device, rtol=1e-6, atol=rounding(one_device)
            )
        for name, (one_device, added) in sums.items():
            np.testing.assert_allclose(
                found[name], one_device, rtol=0, atol=rounding(added)
            )
        for replicas, one_device in zip(
            found["running"], statistics, strict=True
        ):
            assert replicas[0] == replicas[1]
            np.testing.assert_allclose(replicas[0], one_device, rtol=1e-6)

    for count, found in zip(first, separate, strict=True):
        parts = [
            (len(part), *oracle(part, gamma, beta))
            for part in (images[:count], images[count:])
            if len(part)
        ]
        rows, outputs, means, variances = zip(*parts, strict=True)
        np.testing.assert_allclose(
            found["outputs"], np.concatenate(outputs), rtol=1e-5, atol=1e-5
        )
        for name in ("by_x", "by_gamma", "by_beta"):
            assert np.isfinite(found[name]).all()
        statistics = (
            0.1 * np.average(means, axis=0, weights=rows),
            0.9 + 0.1 * np.average(variances, axis=0, weights=rows),
        )
        for replicas, average in zip(found["running"], statistics, strict=True):
            assert replicas[0] == replicas[1]
            np.testing.assert_allclose(replicas[0], average, rtol=1e-5)


def test_bad_input(images):
    with pytest.raises(ValueError, match=r"\(batch, height, width, channels"):
        BatchNormalization()(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match="does not support masks"):
        BatchNormalization()(images, mask=np.ones((6, 4, 5), bool))
