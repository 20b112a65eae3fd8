# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from cac_tf import metrics
from cac_tf.metrics.open_set import oscr_curve
from cac_tf.metrics.open_set import roc_curve


def brute_force_auroc(known, unknown):
    """Chance that an unknown input scores higher, ties half."""
    wins = [(u > k) + 0.5 * (u == k) for k in known for u in unknown]
    return np.mean(wins)


def brute_force_ccr(known, is_correct, unknown, rate):
    """Over every threshold that can make a difference."""
    best = 0.0
    for threshold in [-np.inf, *known, *unknown, np.inf]:
        if np.mean(unknown <= threshold) <= rate:
            best = max(best, np.mean(is_correct & (known <= threshold)))
    return best


@pytest.fixture(params=["continuous", "with ties"])
def scores(request, rng):
    known, unknown = rng.normal(0, 1, 60), rng.normal(1, 1, 45)
    if request.param == "with ties":
        known, unknown = np.round(known), np.round(unknown)
    return known, rng.random(60) < 0.8, unknown


def test_openness_of_the_benchmarks():
    """The paper prints 13.39, 33.33, 62.86 and 57.35 %, cut off."""
    for known, unknown, percent in (
        (6, 4, 13.40),
        (4, 10, 33.33),
        (4, 50, 62.86),
        (20, 180, 57.36),
    ):
        openness = 100 * metrics.openness(known, unknown)
        assert openness == pytest.approx(percent, abs=0.005)
    assert metrics.openness(5, 0) == 0.0


def test_auroc(scores):
    known, _, unknown = scores
    expected = brute_force_auroc(known, unknown)
    assert metrics.auroc(known, unknown) == pytest.approx(expected, abs=1e-12)
    fpr, tpr = roc_curve(known, unknown)
    assert np.trapezoid(tpr, fpr) == pytest.approx(expected, abs=1e-12)
    # Calling the other class positive changes nothing.
    flipped = metrics.auroc(-unknown, -known)
    assert flipped == pytest.approx(expected, abs=1e-12)


def test_oscr_counts_pairs(scores):
    """An unknown input scores higher than a known one that is right."""
    known, is_correct, unknown = scores
    wins = [
        correct * ((u > k) + 0.5 * (u == k))
        for k, correct in zip(known, is_correct, strict=True)
        for u in unknown
    ]
    actual = metrics.oscr(known, is_correct, unknown)
    assert actual == pytest.approx(np.mean(wins), abs=1e-12)


def test_oscr_equals_auroc_when_all_is_correct(scores):
    known, _, unknown = scores
    all_correct = np.ones(known.size, bool)
    assert metrics.oscr(known, all_correct, unknown) == pytest.approx(
        metrics.auroc(known, unknown), abs=1e-12
    )
    assert metrics.oscr(known, ~all_correct, unknown) == 0.0


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.05, 0.1, 0.5, 1.0])
def test_ccr_at_fpr(scores, rate):
    known, is_correct, unknown = scores
    actual = metrics.ccr_at_fpr(known, is_correct, unknown, rate)
    expected = brute_force_ccr(known, is_correct, unknown, rate)
    assert actual == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.5, 0.95, 1.0])
def test_fpr_at_tpr(scores, rate):
    known, _, unknown = scores
    expected = min(
        np.mean(unknown <= threshold)
        for threshold in known
        if np.mean(known <= threshold) >= rate
    )
    actual = metrics.fpr_at_tpr(known, unknown, rate)
    assert actual == pytest.approx(expected, abs=1e-12)


def test_aupr(scores):
    """The mean precision over the positives, each at its own threshold."""
    known, _, unknown = scores
    for positive, own, other in (
        ("known", known, unknown),
        ("unknown", -unknown, -known),
    ):
        expected = np.mean(
            [np.sum(own <= t) / np.sum(np.r_[own, other] <= t) for t in own]
        )
        actual = metrics.aupr(known, unknown, positive)
        assert actual == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rate", [0.0, 1.1, float("nan")])
def test_a_rate_out_of_range(rate):
    with pytest.raises(ValueError, match="true_positive_rate"):
        metrics.fpr_at_tpr([0.0], [1.0], rate)


def test_aupr_of_something_else():
    with pytest.raises(ValueError, match='"unknown" or "known"'):
        metrics.aupr([0.0], [1.0], positive="cat")


def test_accuracy():
    assert metrics.accuracy([0, 1, 2], [0, 1, 1]) == pytest.approx(2 / 3)


def test_bhattacharyya_of_histograms(rng):
    known, unknown = rng.normal(0, 1, 500), rng.normal(2, 1, 400)
    edges = np.linspace(
        min(known.min(), unknown.min()), max(known.max(), unknown.max()), 21
    )
    expected = 0.0
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        last = high == edges[-1]
        shares = [
            np.mean((v >= low) & ((v <= high) if last else (v < high)))
            for v in (known, unknown)
        ]
        expected += np.sqrt(shares[0] * shares[1])
    actual = metrics.bhattacharyya(known, unknown, bins=20)
    assert actual == pytest.approx(expected, abs=1e-9)


def test_bhattacharyya_of_gaussians_is_near_its_closed_form(rng):
    known, unknown = rng.normal(0, 1, 200_000), rng.normal(2, 1, 200_000)
    assert metrics.bhattacharyya(known, unknown) == pytest.approx(
        np.exp(-(2**2) / 8), abs=0.01
    )


def test_bad_input():
    with pytest.raises(ValueError, match="unknown_scores is empty"):
        metrics.auroc([1.0], [])
    with pytest.raises(ValueError, match="known_scores contains NaN"):
        metrics.oscr([np.nan], [True], [1.0])
    with pytest.raises(ValueError, match="is_correct has 1 entries for 2"):
        oscr_curve([1.0, 2.0], [True], [1.0])
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        metrics.ccr_at_fpr([1.0], [True], [1.0], 5)
    with pytest.raises(ValueError, match="at least one known class"):
        metrics.openness(0, 3)
