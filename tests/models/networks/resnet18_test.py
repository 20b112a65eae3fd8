# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf.models import resnet18


def test_stages():
    net = resnet18(10)
    # Of the usual ResNet-18 for CIFAR10.
    assert sum(np.prod(w.shape) for w in net.trainable_weights) == 11173962
    for stage, (filters, size) in enumerate(
        [(64, 32), (128, 16), (256, 8), (512, 4)], 1
    ):
        out = net.get_layer(f"stage{stage}_block2_relu2").output
        assert out.shape == (None, size, size, filters)
    convolutions = [
        layer for layer in net.layers if isinstance(layer, keras.layers.Conv2D)
    ]
    assert len(convolutions) == 17 + 3


def test_a_block_adds_its_input(rng):
    """With its second normalization at zero, a block is ReLU of its input."""
    net = resnet18(3, (8, 8, 3), seed=0)
    norm = net.get_layer("stage1_block1_2_norm")
    norm.gamma.assign(np.zeros(64))
    part = keras.Model(
        net.get_layer("relu1").output,
        net.get_layer("stage1_block1_relu2").output,
    )
    x = np.float32(rng.standard_normal((2, 8, 8, 64)))
    actual = part.predict(x, verbose=0)
    np.testing.assert_allclose(actual, np.maximum(x, 0.0), atol=1e-6)


def test_weight_decay_seed_and_precision():
    net = resnet18(2, (8, 8, 1), weight_decay=0.1, seed=1)
    expected = sum(
        (np.asarray(w, "float64") ** 2).sum() for w in net.trainable_weights
    )
    total = sum(float(loss) for loss in net.losses)
    assert total == pytest.approx(0.05 * expected, rel=1e-5)
    same, other = (resnet18(2, (8, 8, 1), seed=s) for s in (1, 2))
    for a, b in zip(net.weights, same.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    kernels = [
        np.asarray(n.get_layer("first_conv").kernel) for n in (net, other)
    ]
    assert np.any(kernels[0] != kernels[1])
    assert kernels[0].std() == pytest.approx(np.sqrt(2 / (9 * 64)), rel=0.1)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = resnet18(2, (8, 8, 1), dropout=0.5)
    finally:
        keras.config.set_dtype_policy("float32")
    assert half.output.dtype == "float32"
    assert half.get_layer("dropout").rate == 0.5
