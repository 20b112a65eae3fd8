# SPDX-License-Identifier: Apache-2.0
import warnings

import numpy as np
import pytest

from cac_tf.decision import calibration
from cac_tf.decision import rule


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [100, 151, 1000])
def test_threshold_lies_midway_above_the_ranked_score(rng, n, rate):
    scores = np.sort(np.float32(rng.random(n)))
    threshold = calibration.threshold_for_true_positive_rate(scores, rate)
    rank = np.sum(scores <= threshold)
    if rank < n:
        expected = (np.float64(scores[rank - 1]) + scores[rank]) / 2
        assert threshold == pytest.approx(expected, rel=1e-6)
    else:
        assert threshold > scores[-1]
    # The smallest rank r with r >= (n + 1) * rate.
    assert rank >= (n + 1) * rate - 1e-9 > rank - 1


def test_rank_does_not_suffer_from_binary_fractions():
    """0.95 * 20 = 19 exactly, but not in floating point."""
    scores = np.arange(1.0, 20.0)
    threshold = calibration.threshold_for_true_positive_rate(scores, 0.95)
    assert np.sum(scores <= threshold) == 19
    scores = np.arange(1.0, 100.0)
    threshold = calibration.threshold_for_true_positive_rate(scores, 0.95)
    assert threshold == 95.5


def test_the_rate_holds_on_average(rng):
    """Split conformal: over draws of both parts, at least the rate asked."""
    kept = []
    for _ in range(400):
        threshold = calibration.threshold_for_true_positive_rate(
            rng.gamma(2.0, 1.0, 60), 0.9
        )
        kept.append((rng.gamma(2.0, 1.0, 200) <= threshold).mean())
    assert np.mean(kept) == pytest.approx(
        (np.ceil(61 * 0.9) + 0.5) / 61, abs=0.005
    )


def test_too_few_examples_are_warned_about():
    with pytest.warns(UserWarning, match="10 known examples are too few"):
        threshold = calibration.threshold_for_true_positive_rate(
            range(10), 0.95
        )
    assert 9.0 < threshold < 10.0


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("n", [99, 300, 1000])
def test_false_positive_rate_is_not_exceeded(rng, n, rate):
    scores = np.float32(rng.random(n))
    threshold = calibration.threshold_for_false_positive_rate(scores, rate)
    kept = np.mean(scores <= np.float32(threshold))
    assert rate - 2 / n <= kept <= rate


def test_the_false_positive_rate_holds_on_average(rng):
    kept = []
    for _ in range(400):
        threshold = calibration.threshold_for_false_positive_rate(
            rng.gamma(2.0, 1.0, 99), 0.1
        )
        kept.append((rng.gamma(2.0, 1.0, 200) <= threshold).mean())
    assert np.mean(kept) == pytest.approx(0.1, abs=0.008)


def test_false_positive_rate_with_ties_and_few_examples():
    ties = np.float32([1, 1, 1, 2, 2, 2, 2, 2, 2, 2])
    threshold = calibration.threshold_for_false_positive_rate(ties, 0.5)
    assert np.mean(ties <= np.float32(threshold)) == 0.3
    with pytest.warns(UserWarning, match="2 unknown examples are too few"):
        threshold = calibration.threshold_for_false_positive_rate(
            [3.0, 4.0], 0.01
        )
    assert threshold < 3.0


@pytest.mark.parametrize("edge", [-1.0, 1.5, 0.0, -7e5, 1e-38])
def test_scores_that_are_adjacent_numbers(edge):
    """Half of their gap is no float32: it must not be the rejected one."""
    edge = np.float32(edge)
    scores = np.repeat([edge, np.nextafter(edge, np.float32(np.inf))], 50)
    threshold = calibration.threshold_for_false_positive_rate(scores, 0.1)
    assert not rule.accepts(scores, np.float32(threshold)).any()
    threshold = calibration.threshold_for_true_positive_rate(scores, 0.9)
    assert threshold > scores.max()


def test_rates_that_are_almost_0_or_1():
    scores = [1.0, 2.0, 3.0, 4.0, 5.0]
    low = calibration.threshold_for_true_positive_rate(scores, 1e-10)
    high = calibration.threshold_for_false_positive_rate(scores, 1 - 1e-12)
    assert (low, high) == (1.5, 4.5)


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


def _neighbours_rejected_and_accepted(scores, rate):
    threshold = calibration.threshold_for_true_positive_rate(scores, rate)
    assert threshold == np.float32(threshold)
    return threshold, rule.accepts(np.float32(scores), np.float32(threshold))


def test_no_score_is_near_threshold(rng):
    """The last bits of a score depend on its batch; it stays clear of them."""
    scores = np.float32(rng.gamma(2.0, 1.0, 500))
    for rate in (0.5, 0.9, 0.95):
        for function in (
            calibration.threshold_for_true_positive_rate,
            calibration.threshold_for_false_positive_rate,
        ):
            threshold = np.float32(function(scores, rate))
            gaps = np.diff(np.sort(scores))
            assert np.abs(scores - threshold).min() >= 0.49 * gaps.min() > 0
    ties = np.float32([1.0] * 50 + [2.0] * 50)
    threshold, accepted = _neighbours_rejected_and_accepted(ties, 0.3)
    assert threshold == 1.5 and accepted.sum() == 50


def test_threshold_is_no_denormal_number():
    """Some runtimes take denormals for 0: it is above or below them all."""
    tiny = float(np.finfo("float32").tiny)
    scores = np.float32([0.0, 1e-42, 1e-41, 1e-40, 1.0])
    for rate in (0.2, 0.4, 0.6):
        threshold, _ = _neighbours_rejected_and_accepted(scores, rate)
        assert threshold == 0.0 or abs(threshold) >= tiny
    for scores in ([0.0, 0.0], [1e-42, 1e-42], [0.0, 1e-39]):
        with pytest.warns(UserWarning, match="too few"):
            threshold, accepted = _neighbours_rejected_and_accepted(scores, 0.9)
        assert threshold >= tiny and accepted.all()
        with pytest.warns(UserWarning, match="too few"):
            threshold = calibration.threshold_for_false_positive_rate(
                scores, 0.1
            )
        assert threshold <= -tiny or threshold == 0.0


def test_equal_and_huge_scores():
    largest = float(np.finfo("float32").max)
    for value in (0.0, 3.0, -3.0, largest, -largest):
        with pytest.warns(UserWarning, match="too few"):
            threshold, accepted = _neighbours_rejected_and_accepted(
                [value] * 5, 0.9
            )
        assert np.isfinite(threshold) and accepted.all()


def test_one_threshold_a_class(rng):
    scores = np.float32(rng.random(400))
    class_ids = np.arange(400) % 2
    scores[class_ids == 1] += 10
    rule_of_rate = calibration.threshold_for_true_positive_rate
    thresholds = calibration.thresholds_by_class(
        rule_of_rate, scores, class_ids, "ab", 0.9
    )
    for label in (0, 1):
        assert thresholds[label] == rule_of_rate(
            scores[class_ids == label], 0.9
        )


@pytest.mark.parametrize(
    ("rule_of_rate", "rate", "fewest"),
    [
        (calibration.threshold_for_true_positive_rate, 0.95, 19),
        (calibration.threshold_for_false_positive_rate, 0.05, 19),
        (calibration.threshold_for_true_positive_rate, 0.5, 1),
    ],
)
def test_classes_with_too_few_examples_share_a_threshold(
    rng, rule_of_rate, rate, fewest
):
    """One warning names them; the others have their own."""
    counts = [fewest, 50, fewest - 1, *(12 * [0])]
    class_ids = np.repeat(np.arange(15), counts)
    scores = np.float32(rng.random(len(class_ids)) + class_ids)
    names = [f"class {i}" for i in range(15)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thresholds = calibration.thresholds_by_class(
            rule_of_rate, scores, class_ids, names, rate
        )
    (text,) = [str(one.message) for one in caught]
    assert f" {fewest} examples must be predicted as that class" in text
    assert f": 'class 2' ({fewest - 1}), 'class 3' (0), " in text
    assert text.endswith(" and 3 more.") and "'class 1'" not in text
    expected = np.full(15, rule_of_rate(scores, rate))
    for label in (0, 1):
        expected[label] = rule_of_rate(scores[class_ids == label], rate)
    np.testing.assert_array_equal(thresholds, np.float32(expected))


def test_scores_that_differ_by_rounding_are_the_same(rng):
    """As 1 - s of duplicates of what is compared with: 0, or some 1e-7."""
    duplicates = np.float32(rng.choice([0.0, 6e-8, 1.2e-7, 2.4e-7], 200))
    scores = np.concatenate([duplicates, np.float32([0.1, 0.2, 0.3])])
    for_known = calibration.threshold_for_true_positive_rate
    for_unknown = calibration.threshold_for_false_positive_rate
    half = (duplicates.max() + np.float64(scores[200])) / 2
    for rate in (0.2, 0.5, 0.9):
        threshold = for_known(scores, rate, 4e-6)
        assert threshold == pytest.approx(half, rel=1e-6)
        assert for_known(duplicates, rate, 4e-6) >= duplicates.max() + 3.9e-6
        assert for_unknown(scores, rate, 4e-6) <= -3.9e-6
    # Those of a larger score are a few units in its last place.
    close = np.float32(500.0) + np.float32(3e-5) * np.arange(4)
    scores = np.concatenate([np.repeat(close, 50), [501.0, 502.0]])
    assert for_known(scores, 0.5) == pytest.approx(500.5, rel=1e-6)
    assert for_unknown(scores, 0.5) < 499.9997
    assert for_unknown(scores, 0.995) == pytest.approx(500.5, rel=1e-6)


def test_a_threshold_below_scores_above_0_is_above_0():
    with pytest.warns(UserWarning, match="too few"):
        threshold = calibration.threshold_for_false_positive_rate(
            [0.125, 5.0], 0.1
        )
    assert threshold == 0.0625


@pytest.mark.parametrize(
    ("threshold", "match"),
    [
        (np.nan, "finite"),
        (np.inf, "finite"),
        (1e39, "finite"),
        ([1.0, np.nan], "finite"),
        ("much", "must be a number"),
        ("0.3", "must be a number"),
        (None, "must be a number|finite"),
        ([[1.0]], "must be a number"),
        ([1.0, 2.0, 3.0], "one for each of the 2"),
    ],
)
def test_bad_thresholds(threshold, match):
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match=match),
    ):
        rule.check_threshold(threshold, 2)
