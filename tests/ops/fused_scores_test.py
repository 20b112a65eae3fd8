# SPDX-License-Identifier: Apache-2.0
"""The fused rejection scores against equation 8."""

import keras
import numpy as np
import pytest

from cac_tf import ops as fused_ops
from cac_tf.ops import stock
from cac_tf.scores.gamma import scores_of_anchors
from tests import execution
from tests import oracle

pytestmark = pytest.mark.skipif(
    fused_ops.binding() is None, reason="the fused operations are not built"
)

FIELDS = stock.Scores._fields


def fused_scores(logits):
    """`Scores` of the fused operation, as one (B, 2 N + 2) array."""
    scores = fused_ops.binding().anchored_scores(logits, 10.0)
    columns = [*scores[:2], *(keras.ops.expand_dims(x, 1) for x in scores[2:])]
    return keras.ops.concatenate(
        [keras.ops.cast(column, "float32") for column in columns], axis=1
    )


def computed(logits, mode="eager"):
    """The same, taken apart."""
    width = logits.shape[1]
    found = execution.compiled(fused_scores, mode)(logits)
    return stock.Scores(
        found[:, :width],
        found[:, width : 2 * width],
        found[:, -2],
        found[:, -1].astype("int32"),
    )


def hard_logits(num_classes, rows=6):
    """Rows near, on and far from anchors, ties and nothing at all."""
    rng = np.random.default_rng(num_classes)
    parts = [np.zeros((2, num_classes))]
    for noise in (3.0, 1.0, 0.1, 1e-3, 1e-7, 0.0):
        z = noise * rng.standard_normal((rows, num_classes))
        z[np.arange(rows), rng.integers(0, num_classes, rows)] += 10.0
        parts.append(z)
    for size in (1e-3, 1e2, 1e4):
        parts.append(size * rng.standard_normal((rows, num_classes)))
        parts.append(np.full((1, num_classes), size))
    return np.concatenate(parts).astype("float32")


def check(found, logits):
    """That they are right by the equations, in float64."""
    d = oracle.distances(logits, 10.0 * np.eye(logits.shape[1]))
    gamma = oracle.gamma(d)
    assert oracle.relative_error(found.distances, d) <= 1e-6
    assert oracle.relative_error(found.gamma, gamma) <= 4e-6
    assert oracle.relative_error(found.unknown_score, gamma.min(1)) <= 4e-6
    np.testing.assert_array_equal(found.unknown_score, found.gamma.min(axis=1))
    np.testing.assert_array_equal(found.nearest, logits.argmax(axis=1))


@pytest.mark.parametrize("num_classes", [2, 6, 20, 63, 1000])
def test_equal_the_equation(mode, num_classes):
    logits = hard_logits(num_classes)
    check(computed(logits, mode), logits)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_read_as_it_is(mode, dtype):
    logits = np.asarray(keras.ops.cast(hard_logits(20), dtype))
    found = computed(logits, mode)
    wide = computed(logits.astype("float32"), mode)
    for one, other in zip(found, wide, strict=True):
        np.testing.assert_array_equal(one, other)


def test_invalid_rows_are_nan(mode):
    logits = np.ones((5, 3), "float32")
    logits[1:4, 2] = np.nan, -np.inf, 1e25
    found = computed(logits, mode)
    expected = [False, True, True, True, False]
    for values in found[:2]:
        np.testing.assert_array_equal(np.isnan(values).all(axis=1), expected)
        np.testing.assert_array_equal(np.isnan(values).any(axis=1), expected)
    np.testing.assert_array_equal(np.isnan(found.unknown_score), expected)
    np.testing.assert_array_equal(found.nearest, np.zeros(5))


@pytest.mark.parametrize("field", FIELDS[:-1])
def test_gradients_are_those_of_stock_operations(rng, mode, field):
    logits = np.float32(4 * rng.standard_normal((6, 5)))
    weights = np.float32(rng.standard_normal((6, 1)))

    def weighted(z):
        values = getattr(scores_of_anchors(z, 10.0), field)
        return weights * keras.ops.reshape(values, (6, -1))

    actual = execution.gradient(weighted, mode)(logits)
    with fused_ops.stock_operations():
        expected = execution.gradient(weighted, mode)(logits)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="of TensorFlow's graphs"
)
def test_a_dynamic_batch_inside_xla():
    import tensorflow as tf

    logits = hard_logits(4)
    keep = np.arange(len(logits)) % 3 != 0

    @tf.function(jit_compile=True)
    def total(z, keep):
        kept = scores_of_anchors(tf.boolean_mask(z, keep), 10.0)
        return tf.reduce_sum(kept.gamma)

    gamma = oracle.gamma(oracle.distances_to_anchors(logits[keep]))
    np.testing.assert_allclose(total(logits, keep), gamma.sum(), rtol=1e-5)


@pytest.mark.skipif(execution.BACKEND != "jax", reason="of JAX")
def test_vmap():
    import jax

    logits = hard_logits(6)[:36].reshape(3, 12, 6)
    binding = fused_ops.binding()
    mapped = jax.vmap(lambda z: binding.anchored_scores(z, 10.0))(logits)
    together = binding.anchored_scores(logits.reshape(36, 6), 10.0)
    for one, other in zip(mapped, together, strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)


def test_an_empty_batch(mode):
    assert execution.compiled(fused_scores, mode)(
        np.zeros((0, 6), "float32")
    ).shape == (0, 14)
