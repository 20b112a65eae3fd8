# SPDX-License-Identifier: Apache-2.0
"""The losses of the paper's Tables 3, 4 and 5, against float64 formulas."""

import numpy as np
import pytest
from scipy import special

from cac_tf import losses
from cac_tf.losses.entropic_open_set import entropic_open_set_loss
from cac_tf.losses.reconstruction import ReconstructionLoss
from cac_tf.losses.symmetry import SymmetryLoss
from tests import execution
from tests import oracle

LABELS = np.array([0, 2, 1, 2, 0])


@pytest.fixture
def outputs(rng):
    return {
        "logits": np.float32(3 * rng.standard_normal((5, 3))),
        "features": np.float32(rng.standard_normal((5, 7))),
    }


def own(values, labels=LABELS):
    return np.float64(values)[np.arange(len(labels)), labels]


@pytest.mark.parametrize("weight", [0.0, 0.01, 2.0])
def test_center(outputs, weight, mode):
    """With the anchors; tests/layers has learnt centers."""
    logits = outputs["logits"]
    logs = special.log_softmax(np.float64(logits), axis=1)
    d = oracle.distances(logits, 5.0 * np.eye(3))
    expected = -own(logs) + weight / 2 * own(d) ** 2

    def loss(values):
        return losses.CenterLoss(weight, magnitude=5, reduction="none")(
            LABELS, values
        )

    actual = execution.compiled(loss, mode)(logits)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_one_vs_all(outputs, mode):
    """Neal et al.'s code: mean softplus(-t z), t = 1 for the own class."""
    signs = np.where(LABELS[:, None] == np.arange(3), 1.0, -1.0)
    logits = np.float64(outputs["logits"])
    logits[0] = [60.0, -50.0, 0.0]  # Where 1 + e^-60 is 1 in float64 too.
    expected = np.logaddexp(0.0, -signs * logits).mean(axis=1)

    def loss(values):
        return losses.OneVsAllLoss(reduction="none")(LABELS, values)

    actual = execution.compiled(loss, mode)(np.float32(logits))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


WITH_NEGATIVES = np.array([0, -1, 1, -1, 0])


def test_entropic_open_set(outputs, mode):
    logs = special.log_softmax(np.float64(outputs["logits"]), axis=1)
    expected = np.where(
        WITH_NEGATIVES < 0, -logs.mean(axis=1), -own(logs, WITH_NEGATIVES)
    )

    def loss(logits):
        return losses.EntropicOpenSetLoss(reduction="none")(
            WITH_NEGATIVES, logits
        )

    actual = execution.compiled(loss, mode)(outputs["logits"])
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    # Least where the softmax is uniform.
    least = entropic_open_set_loss([-1], np.zeros((1, 3), "float32"))
    np.testing.assert_allclose(least, np.log(3), rtol=1e-6)
    assert np.all(np.asarray(actual)[WITH_NEGATIVES < 0] > np.log(3))


def test_objectosphere(outputs, mode):
    features = outputs["features"]
    features[4] = 0.0
    length = np.linalg.norm(np.float64(features), axis=1)
    logs = special.log_softmax(np.float64(outputs["logits"]), axis=1)
    xi, weight = np.median(length), 0.3
    expected = np.where(
        WITH_NEGATIVES < 0,
        -logs.mean(axis=1) + weight * length**2,
        -own(logs, WITH_NEGATIVES) + weight * np.maximum(xi - length, 0) ** 2,
    )

    def loss(logits, features):
        return losses.ObjectosphereLoss(xi, weight, reduction="none")(
            WITH_NEGATIVES, {"logits": logits, "features": features}
        )

    actual = execution.compiled(loss, mode)(outputs["logits"], features)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_objectosphere_has_a_gradient_where_features_are_zero(outputs):
    loss = losses.ObjectosphereLoss()

    def total(features):
        return loss(
            np.array([0]),
            {"logits": np.float32([[1, 2]]), "features": features},
        )

    gradient = execution.gradient(total)(np.zeros((1, 4), "float32"))
    np.testing.assert_array_equal(gradient, np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.CenterLoss(-1.0), "weight must be"),
        (lambda: losses.CenterLoss(np.nan), "weight must be"),
        (lambda: losses.ObjectosphereLoss(length=0.0), "length must be"),
        (lambda: losses.ObjectosphereLoss(weight=-1.0), "weight must be"),
        (lambda: ReconstructionLoss(np.inf), "weight must be finite and >= 0"),
        (lambda: SymmetryLoss(1.1), r"weight must be in \[0, 1\]"),
        (lambda: SymmetryLoss(-0.1), r"weight must be in \[0, 1\]"),
    ],
)
def test_arguments_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()
