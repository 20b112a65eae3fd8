# SPDX-License-Identifier: Apache-2.0
import contextlib
import decimal

import keras
import numpy as np
import pytest

from cac_tf import ops as fused_ops
from cac_tf.layers import anchored_distances
from cac_tf.losses import CACLoss
from cac_tf.losses import anchor_loss
from cac_tf.losses import cac_loss
from cac_tf.losses import cac_loss_from_logits
from cac_tf.losses import tuplet_loss
from tests import execution
from tests import oracle

NOISES = (1.0, 0.1, 0.01, 0.001)
CLASS_COUNTS = (2, 6, 20, 200)


@pytest.fixture
def stock_operations():
    """What runs everywhere; tests/ops has the fused operation."""
    with fused_ops.stock_operations():
        yield


@pytest.mark.usefixtures("stock_operations")
@pytest.mark.parametrize("own_class", [True, False])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_from_logits_equals_oracle(rng, mode, num_classes, noise, own_class):
    """Loss, terms and gradient around the own and around a wrong anchor."""
    anchors = 10.0 * np.eye(num_classes)
    logits, labels = oracle.near_centers(rng, anchors, noise, rows=64)
    if not own_class:
        labels = (labels + 1) % num_classes
    labels = labels.astype("int32")
    d = oracle.distances(logits, anchors)

    def loss(z, y):
        return cac_loss_from_logits(y, z)

    def tuplet(z, y):
        from cac_tf.layers import anchored_distances

        return tuplet_loss(y, anchored_distances(z))

    actual = execution.compiled(loss, mode)(logits, labels)
    assert oracle.relative_error(actual, oracle.cac_loss(labels, d)) <= 1e-6
    actual = execution.compiled(tuplet, mode)(logits, labels)
    assert oracle.relative_error(actual, oracle.tuplet_loss(labels, d)) <= 4e-6
    gradient = execution.gradient(loss, mode)(logits, labels)
    expected = oracle.cac_gradient(labels, logits, anchors)
    # Near a wrong anchor two pulls of about equal strength oppose each other,
    # and where they cancel the row's largest entry is small beside them.
    tolerance = 1e-6 if own_class else 4e-6
    assert oracle.row_relative_error(gradient, expected) <= tolerance


@pytest.mark.usefixtures("stock_operations")
@pytest.mark.parametrize("num_classes", [2, 6, 20, 200])
def test_at_the_anchor(mode, num_classes):
    """d = 0: loss and gradient are finite and right."""
    logits = np.float32(10 * np.eye(num_classes))
    labels = np.arange(num_classes, dtype="int32")
    anchors = 10.0 * np.eye(num_classes)
    loss = execution.compiled(lambda z, y: cac_loss_from_logits(y, z), mode)(
        logits, labels
    )
    expected = oracle.cac_loss(labels, oracle.distances(logits, anchors))
    np.testing.assert_allclose(loss, expected, rtol=4e-6)
    gradient = execution.gradient(
        lambda z, y: cac_loss_from_logits(y, z), mode
    )(logits, labels)
    np.testing.assert_allclose(
        gradient,
        oracle.cac_gradient(labels, logits, anchors),
        rtol=4e-6,
        atol=1e-10,
    )


@pytest.mark.usefixtures("stock_operations")
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 1e5, 1e6, 1e8])
def test_far_from_all_anchors_the_gradient_keeps_its_precision(
    rng, mode, scale
):
    """Where distances are nearly equal, and round to more than their gaps."""
    num_classes = 6
    logits = np.float32(scale * rng.standard_normal((64, num_classes)))
    # Distances that differ by little however large they are.
    logits[32:] = scale + np.float32(rng.standard_normal((32, num_classes)))
    labels = rng.integers(0, num_classes, 64).astype("int32")
    anchors = 10.0 * np.eye(num_classes)
    d = oracle.distances(logits, anchors)
    expected = oracle.cac_gradient(labels, logits, anchors)
    gradients = {
        "from logits": execution.gradient(
            lambda z, y: cac_loss_from_logits(y, z), mode
        )(logits, labels),
        "of a classifier": execution.gradient(
            lambda z, y: loss_of_outputs(y, z, True), mode
        )(logits, labels),
    }
    for name, gradient in gradients.items():
        error = oracle.row_relative_error(gradient, expected)
        assert error <= 4e-6, (name, error)
    values = execution.compiled(lambda y, z: cac_loss_from_logits(y, z), mode)(
        labels, logits
    )
    assert oracle.relative_error(values, oracle.cac_loss(labels, d)) <= 1e-6


def loss_of_outputs(labels, logits, are_anchors):
    """As a classifier computes it in training."""
    from cac_tf.layers import anchored_distances
    from cac_tf.layers.anchored_distance import Anchors

    outputs = {
        "logits": logits,
        "distances": anchored_distances(logits),
        "anchors": Anchors(10.0, keras.ops.convert_to_tensor(are_anchors)),
    }
    return CACLoss(reduction=None).of_outputs(labels, outputs)


@pytest.mark.usefixtures("stock_operations")
def test_class_means_get_no_correction_of_anchors(rng, mode):
    logits = np.float32(3 * rng.standard_normal((16, 4)))
    labels = rng.integers(0, 4, 16).astype("int32")
    centers = np.float32(3 * rng.standard_normal((4, 4)))

    def loss(y, z):
        from cac_tf.layers import dense_distances
        from cac_tf.layers.anchored_distance import Anchors

        outputs = {
            "logits": z,
            "distances": dense_distances(z, centers),
            "anchors": Anchors(
                10.0, keras.ops.convert_to_tensor(False), centers
            ),
        }
        return CACLoss(reduction=None).of_outputs(y, outputs)

    actual = execution.compiled(loss, mode)(labels, logits)
    expected = oracle.cac_loss(labels, oracle.distances(logits, centers))
    assert oracle.relative_error(actual, expected) <= 2e-6


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_stable_from_tiny_to_huge_distances(rng, mode, scale):
    distances = np.float32(scale * rng.random((64, 6)))
    distances[0] = 0.0
    labels = rng.integers(0, 6, 64).astype("int32")
    for function, reference in (
        (tuplet_loss, oracle.tuplet_loss),
        (anchor_loss, oracle.anchor_loss),
        (cac_loss, oracle.cac_loss),
    ):
        actual = execution.compiled(function, mode)(labels, distances)
        expected = reference(labels, np.float64(distances))
        # A difference of distances loses half a unit in their last place.
        np.testing.assert_allclose(
            actual, expected, rtol=4e-6, atol=max(1e-9, 1e-7 * scale)
        )
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


@pytest.mark.usefixtures("stock_operations")
def test_modes_agree(rng):
    logits = np.float32(5 * rng.standard_normal((64, 20)))
    labels = rng.integers(0, 20, 64).astype("int32")
    eager, *others = [
        execution.compiled(cac_loss_from_logits, mode)(labels, logits)
        for mode in execution.MODES
    ]
    for other in others:
        assert oracle.relative_error(other, eager) <= 2e-6


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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_computed_in_float32(dtype):
    distances = keras.ops.cast([[0.5, 12.0]], dtype)
    loss = cac_loss([0], distances)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    expected = oracle.cac_loss([0], np.float64([[0.5, 12.0]]))
    np.testing.assert_allclose(np.asarray(loss), expected, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "reduction",
    [
        "sum_over_batch_size",
        "mean",
        "sum",
        "none",
        None,
        "mean_with_sample_weight",
    ],
)
def test_reductions(rng, reduction, weighted):
    distances = np.float32(5 * rng.random((5, 3)))
    labels = np.array([0, 1, 2, 0, 1])
    weights = np.float32([1, 0, 2, 0.5, 3]) if weighted else None
    rows = oracle.cac_loss(labels, np.float64(distances), anchor_weight=0.3)
    rows = rows * (1 if weights is None else weights)
    expected = {
        "sum": rows.sum(),
        "none": rows,
        None: rows,
        "mean_with_sample_weight": rows.sum()
        / (5 if weights is None else weights.sum()),
    }.get(reduction, rows.mean())
    loss = CACLoss(anchor_weight=0.3, reduction=reduction)
    for y in (labels, labels[:, None]):
        actual = np.asarray(loss(y, distances, sample_weight=weights))
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
def test_ignored_class_has_no_part(rng, reduction):
    distances = np.float32(5 * rng.random((4, 3)))
    loss = CACLoss(ignore_class=-1, reduction=reduction)
    plain = CACLoss(reduction=reduction)
    np.testing.assert_allclose(
        float(loss(np.array([0, -1, 2, -1]), distances)),
        float(plain(np.array([0, 2]), distances[[0, 2]])),
        rtol=1e-6,
    )
    assert float(loss(np.array([-1] * 4), distances)) == 0.0
    assert float(loss([0, -1, 2, -1], distances.tolist())) == pytest.approx(
        float(loss(np.array([0, -1, 2, -1]), distances))
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
    loss = CACLoss(anchor_weight=0.25, ignore_class=-1, reduction="sum")
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert copy.get_config() == loss.get_config()


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
            CACLoss(anchor_weight)
        with pytest.raises(ValueError, match="anchor_weight must be"):
            cac_loss([0, 1], distances, anchor_weight)
