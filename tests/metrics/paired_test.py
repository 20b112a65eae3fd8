# SPDX-License-Identifier: Apache-2.0
"""The interval of a difference of two AUROCs."""

import numpy as np
import pytest

from cac_tf.metrics import auroc
from cac_tf.metrics.paired import auroc_difference_interval


def oracle(known, unknown, other_known, other_unknown):
    """DeLong's interval, from all pairs."""

    def wins(known, unknown):
        return np.greater(unknown, known[:, None]) + 0.5 * np.equal(
            unknown, known[:, None]
        )

    difference = wins(known, unknown) - wins(other_known, other_unknown)
    n, m = difference.shape
    variance = difference.mean(axis=1).var(ddof=1) / n
    variance += difference.mean(axis=0).var(ddof=1) / m
    half = 1.959963984540054 * np.sqrt(variance)
    return difference.mean() - half, difference.mean() + half


@pytest.mark.parametrize("has_ties", [False, True])
def test_it_is_that_of_all_pairs(has_ties, rng):
    scores = [rng.normal(shift, 1, n) for shift, n in ((0, 40), (1, 70))]
    others = [own + rng.normal(0, 1, own.size) for own in scores]
    if has_ties:
        scores = [own.round() for own in scores]
        others = [own.round() for own in others]
    found = auroc_difference_interval(*scores, *others)
    np.testing.assert_allclose(found, oracle(*scores, *others), rtol=1e-9)
    assert sum(found) / 2 == pytest.approx(auroc(*scores) - auroc(*others))


def test_it_covers_the_true_difference_as_often_as_it_says(rng):
    """Equally good scores: 0 lies inside in about 95 % of the draws."""
    inside = 0
    for _ in range(400):
        known, unknown = rng.normal(0, 1, 60), rng.normal(1, 1, 60)
        one, other = rng.normal(0, 1, (2, 120))
        low, high = auroc_difference_interval(
            *(known + one[:60], unknown + one[60:]),
            *(known + other[:60], unknown + other[60:]),
        )
        inside += low <= 0 <= high
    assert 0.92 <= inside / 400 <= 0.98


def test_what_is_refused():
    with pytest.raises(ValueError, match="the same inputs; got 2 and 1"):
        auroc_difference_interval([0, 1], [2], [0], [2])
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\)"):
        auroc_difference_interval([0], [1], [0], [1], confidence=95)
    # One input of a kind tells nothing of the variance.
    for known in ([0], [0, 1]):
        found = auroc_difference_interval(known, [2], known, [-1])
        assert found == (-1.0, 1.0)
