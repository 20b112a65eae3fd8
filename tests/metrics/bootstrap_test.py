# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from cac_tf import metrics


@pytest.mark.parametrize("decimals", [8, 0])
def test_each_resample_is_measured_as_its_scores_would_be(rng, decimals):
    """With and without ties, against the exact functions."""
    known = rng.normal(0, 1, 70).round(decimals)
    unknown = rng.normal(1, 1, 50).round(decimals)
    same = np.random.default_rng(3)
    values = []
    for _ in range(40):
        # Drawn as the function draws them: known ones first.
        k = known[same.integers(0, 70, 70)]
        u = unknown[same.integers(0, 50, 50)]
        values.append(
            [
                metrics.auroc(k, u),
                metrics.fpr_at_tpr(k, u),
                metrics.aupr(k, u, positive="known"),
                metrics.aupr(k, u, positive="unknown"),
            ]
        )
    expected = np.percentile(values, [10, 90], axis=0)
    actual = metrics.bootstrap_intervals(
        known, unknown, confidence=0.8, resamples=40, seed=3
    )
    assert list(actual) == [
        "auroc",
        "fpr_at_95_tpr",
        "aupr_known",
        "aupr_unknown",
    ]
    np.testing.assert_allclose(
        np.array(list(actual.values())).T, expected, atol=1e-6
    )


def test_the_interval_has_the_width_of_theory(rng):
    """The standard error of AUROC by Hanley and McNeil (1982)."""
    n, m = 400, 300
    known, unknown = rng.normal(0, 1, n), rng.normal(1, 1, m)
    a = metrics.auroc(known, unknown)
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    variance = a * (1 - a) + (m - 1) * (q1 - a * a) + (n - 1) * (q2 - a * a)
    error = np.sqrt(variance / (n * m))
    low, high = metrics.bootstrap_intervals(known, unknown)["auroc"]
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_perfect_scores_have_no_width():
    intervals = metrics.bootstrap_intervals([0.0, 0.1], [1.0, 1.1])
    assert intervals["auroc"] == (1.0, 1.0)
    assert intervals["fpr_at_95_tpr"] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"known_scores": []}, "known_scores is empty"),
        ({"unknown_scores": [np.nan]}, "unknown_scores contains NaN"),
        ({"confidence": 1.0}, "confidence must be in"),
        ({"resamples": 0}, "resamples must be at least 1"),
    ],
)
def test_bad_input(arguments, message):
    good = {"known_scores": [0.0], "unknown_scores": [1.0]}
    with pytest.raises(ValueError, match=message):
        metrics.bootstrap_intervals(**{**good, **arguments})
