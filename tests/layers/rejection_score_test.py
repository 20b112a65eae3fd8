# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.layers.rejection_score import softmin
from tests import execution
from tests import oracle


@pytest.mark.parametrize("num_classes", [2, 6, 20, 200])
def test_gamma_from_logits_equals_oracle(rng, mode, num_classes):
    """Of anchors and of class means, from far away to almost on them."""
    anchors = 10.0 * np.eye(num_classes)
    shift = rng.standard_normal(anchors.shape) / np.sqrt(num_classes)
    means = np.float32(anchors + 0.5 * shift)
    for centers, distances in (
        (anchors, anchored_distances),
        (means, lambda z: dense_distances(z, means)),
    ):
        logits = np.concatenate(
            [
                oracle.near_centers(rng, centers, noise, rows=16)[0]
                for noise in (1.0, 0.1, 0.01, 0.001)
            ]
        )
        actual = execution.compiled(
            lambda z, of=distances: rejection_scores(of(z)), mode
        )(logits)
        expected = oracle.gamma(oracle.distances(logits, centers))
        assert oracle.relative_error(actual, expected) <= 4e-6


def test_at_a_center_gamma_is_zero_and_the_rest_finite():
    gamma = np.asarray(rejection_scores(np.float32([[0.0, 14.0, 1e6]])))
    assert gamma[0, 0] == 0.0
    np.testing.assert_allclose(gamma[0, 1:], [14.0, 1e6], rtol=1e-5)


def test_far_from_all_other_centers_the_distance_decides(mode):
    """The share of the others is below every float32 number."""
    distances = np.float32([[1, 150, 160], [3, 150, 160], [2, 99, 99]])
    gamma = execution.compiled(rejection_scores, mode)(distances)[:, 0]
    assert 0 < gamma[0] < gamma[2] < gamma[1] < 1e-36


def test_equal_distances_share(mode):
    actual = execution.compiled(rejection_scores, mode)(np.float32([[3, 3, 3]]))
    np.testing.assert_allclose(actual, [[2.0, 2.0, 2.0]], rtol=1e-6)


def test_softmin_rows_sum_to_one(rng):
    distances = 20 * rng.random((16, 6))
    with execution.float64():
        actual = np.asarray(softmin(distances))
    np.testing.assert_allclose(actual, oracle.softmin(distances), rtol=1e-12)


def test_gradient_is_finite_everywhere(mode):
    distances = np.float32([[0, 0, 5], [1e6, 0, 3], [2, 2, 2]])
    gradient = execution.gradient(rejection_scores, mode)(distances)
    assert np.isfinite(gradient).all()
