# SPDX-License-Identifier: Apache-2.0
"""What all losses share: names of outputs, counted rows, reductions."""

import keras
import numpy as np
import pytest
from keras import ops

from cac_tf import losses
from cac_tf import ops as fused_ops
from cac_tf.layers.anchored_distance import Anchors
from cac_tf.losses import loss as output_losses
from tests import execution
from tests import oracle

REDUCTIONS = (
    "sum_over_batch_size",
    "mean",
    "sum",
    "none",
    None,
    "mean_with_sample_weight",
)


class Product(losses.Loss):
    """Of two outputs, so that each must come under its own name."""

    READS = ("one", "two")

    def call(self, y_true, y_pred):
        return keras.ops.sum(y_pred["one"] * y_pred["two"], axis=-1)


def reduced(rows, weights, reduction):
    """Keras' reductions of (B,) values, in NumPy."""
    weights = np.ones(len(rows)) if weights is None else weights
    weighted = rows * weights
    return {
        "sum": weighted.sum(),
        "none": weighted,
        None: weighted,
        "mean_with_sample_weight": weighted.sum() / weights.sum(),
    }.get(reduction, weighted.mean())


def test_every_loss_says_what_it_reads():
    assert {"cac", "cross_entropy"} <= set(losses.names())
    for name in losses.names():
        kind = losses.find(name)
        assert name == kind.NAME
        assert kind.READS and all(isinstance(n, str) for n in kind.READS)
    with pytest.raises(ValueError, match="no loss 'cak'; did you mean 'cac'"):
        losses.find("cak")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_bfloat16"])
def test_class_indices_beyond_those_of_half_precision(dtype):
    """bfloat16 has no 257: it would be the loss of class 256."""
    distances = np.full((1, 300), 10, "float32")
    distances[0, 257] = 1
    loss = losses.CACLoss(dtype=dtype)
    assert loss.dtype == "float32"
    expected = losses.CACLoss()(np.array([257]), distances)
    assert float(loss(np.array([257]), distances)) == float(expected) < 1


def test_one_output_or_several_by_name():
    outputs = {"one": 1, "two": 2, "three": 3}
    assert output_losses.select(outputs, ("two",)) == 2
    assert output_losses.select(outputs, ("three", "one")) == {
        "three": 3,
        "one": 1,
    }


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_loss_of_two_outputs(rng, reduction, weighted):
    one, two = np.float32(rng.standard_normal((2, 6, 3)))
    weights = np.float32([1, 0, 2, 0.5, 3, 1]) if weighted else None
    expected = reduced(
        (np.float64(one) * np.float64(two)).sum(axis=1), weights, reduction
    )
    labels = np.zeros(6, "int32")
    loss = Product(reduction=reduction)
    for actual in (
        loss(labels, {"one": one, "two": two}, weights),
        loss.of_outputs(
            labels, {"one": one, "two": two, "logits": None}, weights
        ),
    ):
        np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reduce_is_what_a_call_does(rng, reduction, weighted):
    values = np.float32(rng.random(5))
    weights = np.float32([1, 0, 2, 0.5, 3]) if weighted else None
    np.testing.assert_allclose(
        np.asarray(Product(reduction=reduction).reduce(values, weights)),
        reduced(np.float64(values), weights, reduction),
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2, -1, 0, -1]),
        np.array([[2], [-1], [0], [-1]]),
        np.float32([2, -1, 0, -1]),
        np.int8([2, -1, 0, -1]),
    ],
    ids=["(B,)", "(B, 1)", "float", "int8"],
)
def test_rows_of_known_classes(labels, mode):
    is_known = execution.compiled(output_losses.is_known, mode)(labels)
    assert is_known.tolist() == [True, False, True, False]
    known = execution.compiled(output_losses.known_labels, mode)(labels)
    assert known.shape == labels.shape
    assert known.ravel().tolist() == [2, 0, 0, 0]


def test_unsigned_labels_are_all_known():
    labels = np.uint8([0, 255, 3])
    assert np.asarray(output_losses.is_known(labels)).all()
    known = np.asarray(output_losses.known_labels(labels))
    assert known.tolist() == [0, 255, 3]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(8).reshape(4, 2),
        np.int8([5, 6, 7, 8]),
        np.float32([[np.nan, 1], [2, 3], [np.inf, -np.inf], [4, 5]]),
        np.array([True, False, True, False]),
    ],
    ids=["int", "int8", "float", "bool"],
)
def test_rows_that_do_not_count_repeat_one_that_does(values, mode):
    counted = np.array([False, True, False, True])
    only_counted = execution.compiled(output_losses.only_counted, mode)
    found = only_counted(counted[:, None], values)
    np.testing.assert_array_equal(found, values[[1, 1, 1, 3]])
    assert found.dtype == np.asarray(ops.convert_to_tensor(values)).dtype
    np.testing.assert_array_equal(
        only_counted(np.zeros(4, bool), values),
        np.where(np.isfinite(values), values, 1),
    )
    assert only_counted(np.zeros(0, bool), values[:0]).shape == (
        0,
        *values.shape[1:],
    )


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_counted_rows_form_the_loss_as_if_they_were_alone(
    rng, mode, reduction, weighted, shape
):
    values = np.float32(rng.random(6))
    counted = np.array([True, False, True, True, False, True])
    weights = np.float32([1, 9, 2, 0.5, 9, 3]) if weighted else None

    def total(is_counted, v):
        w = output_losses.weights_of_counted(is_counted, weights, reduction)
        return Product(reduction=reduction).reduce(v, w)

    actual = execution.compiled(total, mode)(counted.reshape(shape), values)
    own = np.float64(values[counted])
    if reduction in ("none", None):
        actual = actual[counted]
    np.testing.assert_allclose(
        actual,
        reduced(own, None if weights is None else weights[counted], reduction),
        rtol=1e-5,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_counted_row_is_no_loss(reduction):
    weights = output_losses.weights_of_counted(
        np.zeros(3, bool), None, reduction
    )
    total = Product(reduction=reduction).reduce(np.ones(3, "float32"), weights)
    np.testing.assert_array_equal(np.asarray(total), np.zeros(total.shape))


@pytest.mark.parametrize(
    ("are_in_force", "has_no_means"),
    [(True, True), (True, False), (False, False)],
)
@pytest.mark.parametrize("is_stock", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cac_loss_of_outputs(
    rng, reduction, weighted, is_stock, are_in_force, has_no_means
):
    """With anchors or class means, fused or not: what the distances say."""
    logits = np.float32(4 * rng.standard_normal((8, 3)))
    labels = rng.integers(0, 3, 8)
    weights = np.float32(rng.random(8)) if weighted else None
    centers = 7.0 * np.eye(3)
    if not are_in_force:
        centers = centers + rng.standard_normal((3, 3))
    distances = oracle.distances(logits, centers)
    outputs = {
        "logits": keras.ops.convert_to_tensor(logits),
        "distances": keras.ops.convert_to_tensor(np.float32(distances)),
        "anchors": Anchors(
            7.0,
            keras.ops.convert_to_tensor(are_in_force),
            None if has_no_means else np.float32(centers),
        ),
    }
    loss = losses.CACLoss(0.3, reduction=reduction)
    expected = reduced(
        oracle.cac_loss(labels, distances, 0.3), weights, reduction
    )
    if is_stock:
        with fused_ops.stock_operations():
            actual = loss.of_outputs(labels, outputs, weights)
    else:
        actual = loss.of_outputs(labels, outputs, weights)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-5)


def test_cac_loss_of_outputs_without_anchors(rng):
    """Where the caller says nothing of anchors, distances alone count."""
    distances = np.float32(5 * rng.random((4, 3)))
    outputs = {"logits": np.zeros((4, 3), "float32"), "distances": distances}
    labels = np.array([0, 1, 2, 0])
    for extra in ({}, {"anchors": None}):
        actual = losses.CACLoss().of_outputs(labels, {**outputs, **extra})
        expected = oracle.cac_loss(labels, np.float64(distances)).mean()
        assert float(actual) == pytest.approx(expected, rel=1e-5)
