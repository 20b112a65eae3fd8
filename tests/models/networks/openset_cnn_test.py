# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf.models import openset_cnn


@pytest.mark.parametrize(
    "num_classes, input_shape, parameters, flat",
    [
        (6, (32, 32, 3), 1_011_398, 2048),
        (6, (32, 32, 1), 1_010_246, 2048),
        (20, (64, 64, 3), 1_162_964, 8192),
    ],
)
def test_layout_of_the_benchmark(num_classes, input_shape, parameters, flat):
    net = openset_cnn(num_classes, input_shape)
    count = sum(int(np.prod(w.shape)) for w in net.trainable_weights)
    assert count == parameters
    assert net.get_layer("features").output.shape == (None, flat)
    sizes = [net.get_layer(f"conv{i}").output.shape[1] for i in range(1, 10)]
    full = input_shape[0]
    half, quarter, eighth = full // 2, full // 4, full // 8
    assert sizes == [
        *(full, full, half),
        *(half, half, quarter),
        *(quarter, quarter, eighth),
    ]
    channels = [net.get_layer(f"conv{i}").filters for i in range(1, 10)]
    assert channels == [64, 64, *[128] * 7]
    for i in (3, 6, 9):
        assert isinstance(
            net.get_layer(f"dropout{i}"), keras.layers.SpatialDropout2D
        )


def test_initialization():
    net = openset_cnn(100, seed=1)
    for i, filters in ((2, 64), (9, 128)):
        kernel = np.asarray(net.get_layer(f"conv{i}").kernel)
        expected = np.sqrt(2 / (9 * filters))
        assert kernel.std() == pytest.approx(expected, rel=0.02)
        # Not truncated: a normal has values beyond three deviations.
        assert np.abs(kernel).max() > 3.5 * expected
    dense = net.get_layer("logits")
    assert np.asarray(dense.kernel).std() == pytest.approx(0.01, rel=0.02)
    assert not np.asarray(dense.bias).any()


def test_strided_convolution_pads_one_pixel_on_every_side(rng):
    """Keras' "same" would pad the lower right side only."""
    net = openset_cnn(2, (8, 8, 1), seed=0)
    part = keras.Model(
        net.get_layer("relu2").output, net.get_layer("conv3").output
    )
    images = np.float32(rng.standard_normal((1, 8, 8, 64)))
    kernel = np.float64(net.get_layer("conv3").kernel)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.zeros((1, 4, 4, 128))
    for row, column in np.ndindex(4, 4):
        window = padded[0, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
        expected[0, row, column] = np.tensordot(window, kernel, 3)
    actual = part.predict(images, verbose=0)
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_weight_decay_has_the_gradient_of_l2_on_every_weight():
    decay = 0.1
    net = openset_cnn(2, (8, 8, 1), weight_decay=decay, seed=0)
    penalized = sum(
        len(layer._get_regularization_losses()) for layer in net.layers
    )
    assert penalized == len(net.trainable_weights)
    expected = sum(
        (np.asarray(w, "float64") ** 2).sum() for w in net.trainable_weights
    )
    total = sum(float(loss) for loss in net.losses)
    # Half the squared sum has the gradient `decay * w`.
    assert total == pytest.approx(decay / 2 * expected, rel=1e-5)


def test_the_seed_decides_the_weights():
    one, same, other = (openset_cnn(2, (8, 8, 1), seed=s) for s in (1, 1, 2))
    for a, b in zip(one.weights, same.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    kernels = [np.asarray(n.get_layer("conv1").kernel) for n in (one, other)]
    assert np.any(kernels[0] != kernels[1])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32_under_mixed_precision(policy):
    keras.config.set_dtype_policy(policy)
    try:
        net = openset_cnn(2, (8, 8, 1))
    finally:
        keras.config.set_dtype_policy("float32")
    logits = net(np.zeros((1, 8, 8, 1), "float32"))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert net.get_layer("conv1").compute_dtype != "float32"
