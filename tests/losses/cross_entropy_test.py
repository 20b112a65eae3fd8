# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest
from scipy import special

from cac_tf import losses
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.metrics.streaming import CrossEntropy
from tests import execution


def oracle(labels, logits):
    """Softmax cross-entropy of the logits themselves, in float64."""
    logits = np.float64(logits)
    own = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return special.logsumexp(logits, axis=1) - own


@pytest.mark.parametrize("num_classes", [2, 6, 20])
def test_loss_and_gradient_are_those_of_the_logits(num_classes, mode, rng):
    scale = np.repeat([0.01, 4.0, 100.0], 40)[:, None]
    logits = np.float32(scale * rng.standard_normal((120, num_classes)))
    labels = rng.integers(0, num_classes, 120)

    def loss(z, y):
        return cross_entropy(y, z)

    actual = execution.compiled(loss, mode)(logits, labels)
    np.testing.assert_allclose(
        actual, oracle(labels, logits), rtol=1e-5, atol=1e-6
    )
    gradient = execution.gradient(loss, mode)(logits, labels)
    expected = special.softmax(np.float64(logits), axis=1)
    expected[np.arange(120), labels] -= 1.0
    np.testing.assert_allclose(gradient, expected, rtol=2e-5, atol=2e-6)


def test_confident_rows_keep_their_loss(mode):
    """log(1 + e^-30) is 1e-13, which 1 - p rounds to 0."""
    logits = np.float32([[30.0, 0.0], [1e4, 0.0], [0.0, 1e4]])
    actual = execution.compiled(
        lambda z: cross_entropy(np.int32([0, 0, 0]), z), mode
    )(logits)
    np.testing.assert_allclose(actual, [np.exp(-30.0), 0.0, 1e4], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    logits = keras.ops.cast([[8.0, -1.0, 0.5]], dtype)
    value = cross_entropy([1], logits)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    expected = oracle(np.array([1]), [[8.0, -1.0, 0.5]])
    np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-6)


def test_keras_loss_and_metric(rng):
    logits = np.float32(rng.standard_normal((10, 4)))
    labels = rng.integers(0, 4, 10)
    weights = np.float32(rng.random(10))
    rows = oracle(labels, logits)
    loss = losses.CrossEntropyLoss()
    assert loss.READS == CrossEntropy.READS == ("logits",)
    assert float(loss(labels, logits)) == pytest.approx(rows.mean(), rel=1e-5)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(
            losses.CrossEntropyLoss(reduction="sum", name="mine")
        )
    )
    assert (again.reduction, again.name) == ("sum", "mine")
    assert float(again(labels, logits, weights)) == pytest.approx(
        (weights * rows).sum(), rel=1e-5
    )
    metric = CrossEntropy.from_config(CrossEntropy().get_config())
    # Unknown inputs have no part in it.
    metric.update_state(
        np.r_[labels, -1], np.concatenate([logits, np.ones((1, 4))])
    )
    assert float(metric.result()) == pytest.approx(rows.mean(), rel=1e-5)


@pytest.mark.parametrize(
    "reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"]
)
def test_equals_the_stock_loss(rng, reduction):
    logits = np.float32(3 * rng.standard_normal((30, 5)))
    labels, weights = rng.integers(0, 5, 30), np.float32(rng.random(30))
    own = losses.CrossEntropyLoss(reduction=reduction)
    stock = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction
    )
    for sample_weight in (None, weights):
        np.testing.assert_allclose(
            float(own(labels, logits, sample_weight)),
            float(stock(labels, logits, sample_weight)),
            rtol=1e-5,
        )


def test_bad_input():
    with pytest.raises(ValueError, match="reduction"):
        losses.CrossEntropyLoss(reduction="average")
    with pytest.raises(ValueError, match="One-hot labels"):
        cross_entropy(np.eye(3), np.ones((3, 3), "float32"))
    with pytest.raises(ValueError, match="3 labels for 2 rows"):
        cross_entropy([0, 1, 2], np.ones((2, 3), "float32"))
    value = cross_entropy([0, 7, -1], np.ones((3, 3), "float32"))
    assert np.isnan(np.asarray(value)).tolist() == [False, True, True]
