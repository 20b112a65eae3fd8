# SPDX-License-Identifier: Apache-2.0
import contextlib
import decimal

import keras
import numpy as np
import pytest

from cac_tf import ops as fused_ops
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.losses import AnchorLoss
from cac_tf.losses import CACLoss
from cac_tf.losses import TupletLoss
from cac_tf.losses import cac_loss_from_logits
from cac_tf.losses.cac import anchor_loss
from cac_tf.losses.cac import cac_loss
from cac_tf.losses.cac import tuplet_loss
from tests import execution
from tests import oracle

NOISES = (1.0, 0.1, 0.01, 0.001, 0.0)


def from_logits(logits, labels):
    return cac_loss_from_logits(labels, logits)


@pytest.fixture
def stock_operations():
    """What runs everywhere; tests/ops has the fused operation."""
    with fused_ops.stock_operations():
        yield


@pytest.mark.usefixtures("stock_operations")
@pytest.mark.parametrize("num_classes", [2, 6, 20, 200])
def test_from_logits_equals_oracle(rng, mode, num_classes):
    """Around and on the own anchor, and around a wrong one."""
    anchors = 10.0 * np.eye(num_classes)
    near = [oracle.near_centers(rng, anchors, n, rows=16) for n in NOISES]
    logits, nearest = map(np.concatenate, zip(*near, strict=True))
    d = oracle.distances(logits, anchors)
    values = execution.compiled(from_logits, mode)
    gradients = execution.gradient(from_logits, mode)
    for shift in (0, 1):
        labels = np.int32((nearest + shift) % num_classes)
        found, gradient = values(logits, labels), gradients(logits, labels)
        expected = oracle.cac_loss(labels, d)
        by_logits = oracle.cac_gradient(labels, logits, anchors)
        # On an anchor, the loss is e to the power of a rounded distance. Near
        # a wrong one two pulls of about equal strength oppose each other;
        # where they cancel, the row's largest entry is small.
        for rows, tolerance in ((slice(0, 64), 1e-6), (slice(64, 80), 4e-6)):
            error = oracle.relative_error(found[rows], expected[rows])
            assert error <= tolerance, (shift, tolerance)
            error = oracle.row_relative_error(gradient[rows], by_logits[rows])
            assert error <= (4e-6 if shift else tolerance), (shift, tolerance)


@pytest.mark.usefixtures("stock_operations")
def test_far_from_all_anchors_the_gradient_keeps_its_precision(rng, mode):
    """Where distances are nearly equal, and round to more than their gaps."""
    parts = []
    for scale in (1.0, 30.0, 1e3, 1e5, 1e6, 1e8):
        noise = rng.standard_normal((64, 6))
        # Half of them differ by little however large they are.
        parts += [scale * noise[:32], scale + np.float32(noise[32:])]
    logits = np.float32(np.concatenate(parts))
    labels = rng.integers(0, 6, len(logits)).astype("int32")
    anchors = 10.0 * np.eye(6)
    expected = oracle.cac_gradient(labels, logits, anchors)
    gradient = execution.gradient(from_logits, mode)(logits, labels)
    assert oracle.row_relative_error(gradient, expected) <= 4e-6
    values = execution.compiled(from_logits, mode)(logits, labels)
    expected = oracle.cac_loss(labels, oracle.distances(logits, anchors))
    assert oracle.relative_error(values, expected) <= 1e-6


@pytest.mark.parametrize("magnitude", [1e-2, 1.0, 10.0, 1e3])
def test_the_largest_logit_is_that_of_the_nearest_anchor(rng, magnitude):
    logits = np.float32(10.0 * rng.standard_normal((500, 7)))
    nearest = oracle.distances(logits, magnitude * np.eye(7)).argmin(axis=1)
    np.testing.assert_array_equal(logits.argmax(axis=1), nearest)


def test_stable_from_tiny_to_huge_distances(rng, mode):
    scale = np.repeat([1e-3, 1.0, 1e3, 1e6], 64)
    distances = np.float32(scale[:, None] * rng.random((256, 6)))
    distances[::64] = 0.0
    labels = rng.integers(0, 6, 256).astype("int32")
    for function, reference in (
        (tuplet_loss, oracle.tuplet_loss),
        (anchor_loss, oracle.anchor_loss),
    ):
        actual = execution.compiled(function, mode)(labels, distances)
        expected = reference(labels, np.float64(distances))
        # A difference of distances loses half a unit in their last place.
        tolerance = 4e-6 * np.abs(expected) + np.maximum(1e-9, 1e-7 * scale)
        assert np.all(np.abs(actual - expected) <= tolerance)
        gradient = execution.gradient(
            lambda d, y, function=function: function(y, d), mode
        )(distances, labels)
        assert np.isfinite(gradient).all()


def test_gradient_equals_finite_differences(rng):
    distances = 3 * rng.random((3, 4))
    labels = np.array([0, 2, 3])
    with execution.float64():
        actual = execution.gradient(lambda d: cac_loss(labels, d))(distances)
    expected = oracle.central_differences(
        lambda d: oracle.cac_loss(labels, d), distances
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9)


def test_ties_have_the_right_gradient(mode):
    distances = np.float32([[2, 2, 2], [5, 1, 1]])
    gradient = execution.gradient(
        lambda d: tuplet_loss(np.array([0, 0], "int32"), d), mode
    )(distances)
    share = 1 / (2 + np.exp(-4))
    np.testing.assert_allclose(
        gradient,
        [[2 / 3, -1 / 3, -1 / 3], [2 * share, -share, -share]],
        rtol=1e-6,
    )


@pytest.mark.parametrize("label", [-1, 3, 1.5, np.nan, 1e9])
def test_an_invalid_label_gives_nan_in_its_row(mode, label):
    labels = np.float32([0, label, 2])
    distances = np.ones((3, 3), "float32")
    for function in (tuplet_loss, anchor_loss, cac_loss):
        loss = execution.compiled(function, mode)(labels, distances)
        np.testing.assert_array_equal(np.isnan(loss), [False, True, False])


def test_nan_distances_stay_in_their_row(mode):
    distances = np.ones((3, 3), "float32")
    distances[1, 2] = np.nan
    labels = np.array([0, 0, 0], "int32")
    loss = execution.compiled(cac_loss, mode)(labels, distances)
    np.testing.assert_array_equal(np.isnan(loss), [False, True, False])


def test_an_empty_batch(mode):
    distances, labels = np.zeros((0, 3), "float32"), np.zeros(0, "int32")
    for function in (tuplet_loss, anchor_loss, cac_loss):
        loss = execution.compiled(function, mode)(labels, distances)
        assert loss.shape == (0,)
    with fused_ops.stock_operations():
        loss = execution.compiled(cac_loss_from_logits, mode)(labels, distances)
        assert loss.shape == (0,)


@pytest.mark.parametrize("magnitude", [10.0, 3.0])
@pytest.mark.parametrize("is_stock", [False, True])
def test_the_losses_of_logits(rng, is_stock, magnitude):
    """Whole batches, labels in either shape, weights, the terms alone."""
    logits = np.float32(4 * rng.standard_normal((8, 3)))
    labels, weights = rng.integers(0, 3, 8), np.float32(rng.random(8))
    d = oracle.distances(logits, magnitude * np.eye(3))
    with fused_ops.stock_operations() if is_stock else contextlib.nullcontext():
        for loss, rows in (
            (
                CACLoss(magnitude, anchor_weight=0.3),
                oracle.cac_loss(labels, d, 0.3),
            ),
            (TupletLoss(magnitude), oracle.tuplet_loss(labels, d)),
            (AnchorLoss(magnitude), oracle.anchor_loss(labels, d)),
        ):
            for y in (labels, labels[:, None]):
                assert float(loss(y, logits)) == pytest.approx(
                    rows.mean(), rel=1e-5
                )
                assert float(loss(y, logits, weights)) == pytest.approx(
                    (weights * rows).mean(), rel=1e-5
                )


@pytest.mark.parametrize(
    "kind", [np.array, np.int64, decimal.Decimal, keras.ops.convert_to_tensor]
)
@pytest.mark.parametrize("is_stock", [False, True])
def test_arguments_of_any_kind_of_number(rng, kind, is_stock):
    logits = np.float32(rng.normal(size=(4, 3)))
    labels = np.array([0, 1, 2, 0])
    with fused_ops.stock_operations() if is_stock else contextlib.nullcontext():
        found = cac_loss_from_logits(labels, logits, kind(7), kind(2))
        expected = cac_loss_from_logits(labels, logits, 7.0, 2.0)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    distances = anchored_distances(logits, kind(7))
    np.testing.assert_array_equal(
        np.asarray(distances), np.asarray(anchored_distances(logits, 7.0))
    )
    np.testing.assert_array_equal(
        np.asarray(cac_loss(labels, distances, kind(2))),
        np.asarray(cac_loss(labels, distances, 2.0)),
    )


def test_survives_serialization():
    options = {"ignore_class": -1, "reduction": "sum", "dtype": "float64"}
    loss = CACLoss(7.0, 0.25, from_distances=True, **options)
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert copy.get_config() == loss.get_config()
    assert {name: copy.get_config()[name] for name in options} == options
    assert copy.dtype == "float64"


def test_bad_arguments():
    distances = np.ones((2, 3), "float32")
    with pytest.raises(ValueError, match="One-hot"):
        cac_loss(np.eye(3)[:2], distances)
    with pytest.raises(ValueError, match="3 labels for 2 rows"):
        cac_loss([0, 1, 2], distances)
    with pytest.raises(ValueError, match=r"\(batch, classes\)"):
        cac_loss([0], distances[0])
    for anchor_weight in (-0.1, np.nan):
        with pytest.raises(ValueError, match="anchor_weight must be"):
            CACLoss(anchor_weight=anchor_weight)
        with pytest.raises(ValueError, match="anchor_weight must be"):
            cac_loss([0, 1], distances, anchor_weight)
    with pytest.raises(ValueError, match="magnitude must be"):
        CACLoss(magnitude=0.0)
