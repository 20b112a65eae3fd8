# SPDX-License-Identifier: Apache-2.0
"""What all losses share: outputs by name, counted rows, reductions."""

import keras
import numpy as np
import pytest
from keras import ops

from cac_tf import losses
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
        loss = losses.find(name)()
        assert name == loss.NAME == loss.name
        assert loss.READS and all(isinstance(n, str) for n in loss.READS)
    with pytest.raises(
        ValueError, match="Unknown loss 'cak'; did you mean 'cac'"
    ):
        losses.find("cak")


OF_LOGITS = [
    name
    for name in losses.names()
    if set(losses.find(name)().READS) <= {"logits", "features"}
]


@pytest.fixture
def outputs(rng):
    return {
        "logits": np.float32(3 * rng.standard_normal((8, 4))),
        "features": np.float32(rng.standard_normal((8, 5))),
    }


@pytest.mark.parametrize("name", OF_LOGITS)
def test_labels_that_are_no_class_are_nan_in_their_row(name, outputs):
    loss = losses.find(name)()
    y_pred = output_losses.select(outputs, loss.READS)
    labels = np.float32([0, 1, 2, 3, 4, 0.5, 1e9, -2])
    is_nan = np.isnan(np.asarray(loss.call(labels, y_pred)))
    np.testing.assert_array_equal(is_nan, np.arange(8) >= 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", OF_LOGITS)
def test_half_precision_is_computed_in_float32(name, outputs, dtype):
    loss, labels = losses.find(name)(), np.arange(8) % 4
    half = {k: ops.cast(v, dtype) for k, v in outputs.items()}
    rounded = {k: ops.cast(v, "float32") for k, v in half.items()}
    values, expected = (
        loss.call(labels, output_losses.select(given, loss.READS))
        for given in (half, rounded)
    )
    assert keras.backend.standardize_dtype(values.dtype) == "float32"
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_bfloat16"])
def test_class_indices_beyond_those_of_half_precision(dtype):
    """bfloat16 has no 257: it would be the loss of class 256."""
    logits = np.zeros((1, 300), "float32")
    logits[0, 257] = 10
    loss = losses.CACLoss(dtype=dtype)
    assert loss.dtype == "float32"
    expected = losses.CACLoss()(np.array([257]), logits)
    assert float(loss(np.array([257]), logits)) == float(expected) < 1


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
    actual = Product(reduction=reduction)(
        labels, {"one": one, "two": two}, weights
    )
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-5)


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
def test_an_ignored_class_has_no_part(rng, reduction, weighted, shape):
    """As if its rows were not there, in value and gradient."""
    logits = np.float32(5 * rng.standard_normal((6, 3)))
    labels = np.array([0, -1, 2, 1, -1, 0])
    counted = labels >= 0
    logits[1, 2], logits[4, 0] = np.nan, np.inf
    weights = np.float32([1, np.nan, 2, 0.5, 9, 3]) if weighted else None
    loss = losses.CACLoss(ignore_class=-1, reduction=reduction)
    actual = np.asarray(loss(labels.reshape(shape), logits, weights))
    of_lists = loss(labels.reshape(shape), logits.tolist(), weights)
    np.testing.assert_array_equal(np.asarray(of_lists), actual)
    d = oracle.distances(logits[counted], 10 * np.eye(3))
    own = oracle.cac_loss(labels[counted], d)
    if reduction in ("none", None):
        np.testing.assert_array_equal(actual[~counted], 0)
        actual = actual[counted]
    own_weights = None if weights is None else weights[counted]
    np.testing.assert_allclose(
        actual, reduced(own, own_weights, reduction), rtol=1e-5
    )
    gradient = execution.gradient(
        lambda z: loss(labels.reshape(shape), z, weights)
    )(logits)
    np.testing.assert_array_equal(gradient[~counted], 0)
    assert np.all(np.abs(gradient[counted]).max(axis=1) > 0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_counted_row_is_no_loss(reduction):
    loss = losses.CACLoss(ignore_class=-1, reduction=reduction)
    logits = np.float32([[1, 2], [np.nan, 3], [4, 5]])

    def total(z):
        return loss(np.array([-1, -1, -1]), z)

    for values in (total(logits), execution.gradient(total)(logits)):
        np.testing.assert_array_equal(values, np.zeros(values.shape))
