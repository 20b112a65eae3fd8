# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from cac_tf import calibration


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [100, 151, 1000])
def test_theta_is_the_ranked_score(rng, n, rate):
    scores = np.float32(rng.random(n))
    theta = calibration.threshold_for_true_positive_rate(scores, rate)
    rank = np.sum(np.sort(scores) <= theta)
    assert theta in scores
    # The smallest rank r with r >= (n + 1) * rate.
    assert rank >= (n + 1) * rate - 1e-9 > rank - 1


def test_rank_does_not_suffer_from_binary_fractions():
    """0.95 * 20 = 19 exactly, but not in floating point."""
    scores = np.arange(1.0, 20.0)
    assert calibration.threshold_for_true_positive_rate(scores, 0.95) == 19.0


def test_the_rate_holds_on_average(rng):
    """Split conformal: over draws of both parts, at least the rate asked."""
    kept = []
    for _ in range(400):
        theta = calibration.threshold_for_true_positive_rate(
            rng.gamma(2.0, 1.0, 60), 0.9
        )
        kept.append((rng.gamma(2.0, 1.0, 200) <= theta).mean())
    assert np.mean(kept) == pytest.approx(np.ceil(61 * 0.9) / 61, abs=0.01)


def test_too_few_examples_are_warned_about():
    with pytest.warns(UserWarning, match="10 known examples are too few"):
        theta = calibration.threshold_for_true_positive_rate(range(10), 0.95)
    assert theta == 9.0


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("n", [99, 300, 1000])
def test_false_positive_rate_is_not_exceeded(rng, n, rate):
    scores = np.float32(rng.random(n))
    theta = calibration.threshold_for_false_positive_rate(scores, rate)
    kept = np.mean(scores <= np.float32(theta))
    assert rate - 2 / n <= kept <= rate


def test_the_false_positive_rate_holds_on_average(rng):
    kept = []
    for _ in range(400):
        theta = calibration.threshold_for_false_positive_rate(
            rng.gamma(2.0, 1.0, 99), 0.1
        )
        kept.append((rng.gamma(2.0, 1.0, 200) <= theta).mean())
    assert np.mean(kept) == pytest.approx(0.1, abs=0.008)


def test_false_positive_rate_with_ties_and_few_examples():
    ties = np.float32([1, 1, 1, 2, 2, 2, 2, 2, 2, 2])
    theta = calibration.threshold_for_false_positive_rate(ties, 0.5)
    assert np.mean(ties <= np.float32(theta)) == 0.3
    with pytest.warns(UserWarning, match="2 unknown examples are too few"):
        theta = calibration.threshold_for_false_positive_rate([3.0, 4.0], 0.01)
    assert theta < 3.0


def test_bad_input():
    for function in (
        calibration.threshold_for_true_positive_rate,
        calibration.threshold_for_false_positive_rate,
    ):
        with pytest.raises(ValueError, match="at least one"):
            function([], 0.5)
        with pytest.raises(ValueError, match="finite"):
            function([1.0, np.nan], 0.5)
        for rate in (0.0, 1.0, 2.0, np.nan):
            with pytest.raises(ValueError, match=r"must be in \(0, 1\)"):
                function([1.0], rate)
