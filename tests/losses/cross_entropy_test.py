# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from scipy import special

from cac_tf.losses.cross_entropy import cross_entropy
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
