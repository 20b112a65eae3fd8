# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest
from scipy import special

from cac_tf import losses
from cac_tf.layers import anchored_distances
from cac_tf.metrics import CrossEntropy
from tests import execution


def oracle(labels, logits):
    """Softmax cross-entropy of the logits themselves, in float64."""
    logits = np.float64(logits)
    own = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return special.logsumexp(logits, axis=1) - own


@pytest.mark.parametrize("num_classes", [2, 6, 20])
@pytest.mark.parametrize("magnitude", [1.0, 10.0])
def test_loss_and_gradient_are_those_of_the_logits(
    num_classes, magnitude, mode, rng
):
    logits = np.float32(4 * rng.standard_normal((40, num_classes)))
    labels = rng.integers(0, num_classes, 40)

    def loss(z, y):
        return losses.cross_entropy(
            y, anchored_distances(z, magnitude), magnitude
        )

    actual = execution.compiled(loss, mode)(logits, labels)
    np.testing.assert_allclose(
        actual, oracle(labels, logits), rtol=1e-5, atol=2e-5
    )
    gradient = execution.gradient(loss, mode)(logits, labels)
    expected = special.softmax(np.float64(logits), axis=1)
    expected[np.arange(40), labels] -= 1.0
    np.testing.assert_allclose(gradient, expected, atol=2e-5)


def test_keras_loss_and_metric(rng):
    logits = np.float32(rng.standard_normal((10, 4)))
    labels = rng.integers(0, 4, 10)
    distances = anchored_distances(logits, 5.0)
    expected = oracle(labels, logits).mean()
    loss = losses.CrossEntropyLoss(5.0)
    assert float(loss(labels, distances)) == pytest.approx(expected, rel=1e-5)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert again.magnitude == 5.0
    metric = CrossEntropy(5.0)
    metric = CrossEntropy.from_config(metric.get_config())
    # Unknown inputs have no part in it.
    metric.update_state(
        np.r_[labels, -1], np.concatenate([distances, np.ones((1, 4))])
    )
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


def test_bad_input():
    with pytest.raises(ValueError, match="magnitude must be > 0"):
        losses.CrossEntropyLoss(0.0)
    value = losses.cross_entropy([0, 7], np.ones((2, 3), "float32"))
    assert np.isnan(np.asarray(value)).tolist() == [False, True]
