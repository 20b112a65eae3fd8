# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf import layers
from cac_tf import ops as fused_ops
from cac_tf.layers import decide_from_logits
from tests import execution
from tests import oracle

# (classes, width); anchors where they are equal.
SHAPES = [(2, 2), (20, 20), (200, 200), (5, 64), (70, 37)]


@pytest.fixture(params=["fused", "stock"])
def operations(request):
    """Both ways of computing; the fused one where it is built."""
    if request.param == "fused":
        if fused_ops.binding() is None:
            pytest.skip("the fused operations are not built")
        yield request.param
    else:
        with fused_ops.stock_operations():
            yield request.param


def in_one_array(logits, threshold, centres=None):
    """All outputs of B rows side by side, (B, 3 N + 3)."""
    decision = decide_from_logits(logits, threshold, centres)
    parts = [
        keras.ops.reshape(keras.ops.cast(part, "float32"), (len(logits), -1))
        for part in decision
    ]
    return keras.ops.concatenate(parts, axis=1)


@pytest.mark.parametrize("kind", ["anchors", "class means"])
@pytest.mark.parametrize(("num_classes", "width"), SHAPES)
@pytest.mark.parametrize("noise", [1.0, 0.01])
def test_equals_the_equations(
    rng, mode, operations, num_classes, width, noise, kind
):
    centres = 10.0 * np.eye(num_classes, width)
    if kind == "class means":
        centres += rng.standard_normal(centres.shape)
    elif num_classes != width:
        pytest.skip("as many anchors as logits")
    centres = centres.astype("float32")
    logits, _ = oracle.near_centres(rng, centres, noise, rows=33)
    d = oracle.distances(logits, centres)
    p, gamma = oracle.softmin(d), oracle.gamma(d)
    score, nearest = gamma.min(axis=1), gamma.argmin(axis=1)
    threshold = np.float32(np.median(score))

    def run(z):
        return in_one_array(
            z, threshold, None if kind == "anchors" else centres
        )

    actual = execution.compiled(run, mode)(logits)
    parts = np.split(actual, np.cumsum([num_classes] * 3 + [1, 1]), axis=1)
    # A matrix product of the stock way loses far centres' last bits, and a
    # share of e^-d is as exact as d is in absolute terms.
    assert oracle.relative_error(parts[0], d) <= 2e-6
    assert np.abs(parts[1] - p).max() <= 4e-6
    assert oracle.relative_error(parts[3][:, 0], score) <= 4e-6
    assert oracle.row_relative_error(parts[2], gamma) <= 4e-6
    np.testing.assert_array_equal(parts[4][:, 0], nearest)
    is_clear = np.abs(score / threshold - 1) > 1e-5
    decided = np.where(score <= threshold, nearest, -1)
    np.testing.assert_array_equal(parts[5][is_clear, 0], decided[is_clear])


def test_equals_the_layers(rng, operations):
    means = np.float32(10 * np.eye(6) + rng.standard_normal((6, 6)))
    logits = np.float32(5 * rng.standard_normal((40, 6)))
    head = layers.AnchoredDistance(6)
    head.build((None, 6))
    for centres in (None, means):
        if centres is not None:
            head.assign_class_means(centres)
        d = np.asarray(head(logits))
        gamma = np.asarray(layers.RejectionScore()(d))
        theta = float(np.median(gamma.min(axis=1))) * 1.0001
        decision = decide_from_logits(logits, theta, centres)
        np.testing.assert_allclose(decision.distances, d, rtol=1e-6)
        np.testing.assert_allclose(decision.gamma, gamma, rtol=4e-6)
        np.testing.assert_array_equal(
            decision.class_id, layers.OpenSetDecision(theta)(gamma)
        )


def test_a_threshold_for_each_row(mode, operations):
    logits = np.float32([[9, 0, 0]] * 4)

    def decide(z, theta):
        return decide_from_logits(z, theta).class_id

    theta = np.float32([10.0, 0.0, np.nan, -1.0])
    decided = execution.compiled(decide, mode)(logits, theta)
    np.testing.assert_array_equal(decided, [0, -1, -1, -1])
    everything = execution.compiled(decide, mode)(logits, np.float32(10.0))
    np.testing.assert_array_equal(everything, [0, 0, 0, 0])


@pytest.mark.parametrize("kind", ["anchors", "class means"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e25])
def test_a_row_that_is_not_finite_is_unknown(mode, operations, value, kind):
    logits = np.ones((3, 4), "float32")
    logits[1, 2] = value
    centres = None if kind == "anchors" else np.float32(10 * np.eye(4))
    run = execution.compiled(lambda z: in_one_array(z, 100.0, centres), mode)
    clean = run(np.ones((3, 4), "float32"))
    actual = run(logits)
    np.testing.assert_array_equal(actual[[0, 2]], clean[[0, 2]])
    assert actual[1, -1] == -1
    # Distances, softmin, gamma and unknown score.
    assert np.isnan(actual[1, :13]).all()


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="JAX knows all shapes"
)
def test_shapes_unknown_while_tracing(rng, operations):
    """The batch may be; the number of classes may not."""
    import tensorflow as tf

    means = np.float32(5 * rng.standard_normal((3, 4)))

    def traced(*shapes):
        return tf.function(
            lambda z, c: decide_from_logits(z, 1.0, c).class_id,
            input_signature=[tf.TensorSpec(s, tf.float32) for s in shapes],
        )

    logits = np.float32(5 * rng.standard_normal((9, 4)))
    np.testing.assert_array_equal(
        traced((None, 4), (3, 4))(logits, means),
        decide_from_logits(logits, 1.0, means).class_id,
    )
    for shapes in (((None, None), (None, None)), ((None, 4), (None, 4))):
        with pytest.raises(ValueError, match="must be known when"):
            traced(*shapes)(logits, means)


def test_an_empty_batch(operations):
    decision = decide_from_logits(np.zeros((0, 5), "float32"), 1.0)
    assert decision.gamma.shape == (0, 5)
    assert decision.class_id.shape == (0,)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_computed_in_float32(operations, dtype):
    logits = keras.ops.cast([[9.0, 0.5, 0.25]], dtype)
    decision = decide_from_logits(logits, 1.0)
    d = oracle.distances([[9.0, 0.5, 0.25]], 10 * np.eye(3))
    np.testing.assert_allclose(decision.distances, d, rtol=1e-6)


def test_bad_arguments(operations):
    logits = np.ones((2, 3), "float32")
    for arguments, message in (
        ((logits[0], 1.0), r"\(batch, width\)"),
        ((logits, 1.0, np.ones((4, 2))), r"\(classes, 3\)"),
        ((logits, 1.0, np.ones((1, 3))), "two classes; got 1"),
        ((logits[:, :1], 1.0), "two classes; got 1"),
        ((logits, np.ones((2, 1))), "a scalar or one for each of 2 rows"),
        ((logits, np.ones(3)), r"one for each of 2 rows; got shape \(3,\)"),
        ((logits, np.ones(1)), "one for each of 2 rows"),
        ((logits, 1.0, None, -1.0), "magnitude must be"),
    ):
        with pytest.raises(ValueError, match=message):
            decide_from_logits(*arguments)
