# SPDX-License-Identifier: Apache-2.0
"""What a threshold promises of new inputs, and how far."""

import numpy as np
import pytest
from scipy import stats

import cac_tf
from cac_tf.decision import calibration
from cac_tf.decision.accepted_share import AcceptedShare
from cac_tf.decision.p_values import TABLE_SIZE
from cac_tf.decision.p_values import p_value_table


def test_the_interval_is_that_of_two_beta_variables():
    low, high = AcceptedShare(144, 151).interval
    assert low == pytest.approx(stats.beta.ppf(0.05, 144, 8))
    assert high == pytest.approx(stats.beta.ppf(0.95, 145, 7))
    assert AcceptedShare(144, 151).rate == 144 / 151
    # 11 of 11: as few as .05 ** (1 / 11) of new ones.
    low, high = AcceptedShare(11, 11).interval
    assert (low, high) == (pytest.approx(0.05 ** (1 / 11)), 1.0)
    assert AcceptedShare(11, 11).in_words() == "76-100 %"
    assert AcceptedShare(0, 30).interval == (0.0, pytest.approx(0.0950, 1e-3))
    assert AcceptedShare(2850, 3000).in_words() == "94.3-95.6 %"


@pytest.mark.parametrize("count", [30, 151])
def test_the_share_of_new_inputs_lies_in_the_interval(rng, count):
    """Over calibrations, of either kind, in 90 % of them or more."""
    inside, trials = {"known": 0, "unknown": 0}, 400
    rules = {
        "known": calibration.threshold_for_true_positive_rate,
        "unknown": calibration.threshold_for_false_positive_rate,
    }
    for _ in range(trials):
        for kind, rule in rules.items():
            scores = rng.gamma(2.0, 1.0, count)
            threshold = rule(scores, 0.95 if kind == "known" else 0.1)
            accepted = int((np.float32(scores) <= threshold).sum())
            low, high = AcceptedShare(accepted, count).interval
            share = stats.gamma.cdf(threshold, 2.0)
            inside[kind] += low <= share <= high
    # Five standard deviations below, and hardly wider than needed.
    assert min(inside.values()) >= (0.9 - 5 * 0.015) * trials
    assert max(inside.values()) <= 0.985 * trials


def test_too_few_examples_are_warned_about_in_numbers():
    with pytest.warns(
        UserWarning, match=r"^11 known .*requires 19; .*76-100 % of new known"
    ):
        calibration.threshold_for_true_positive_rate(range(11), 0.95)
    with pytest.warns(
        UserWarning,
        match=r"^11 unknown .*requires 19; .* 0-24 % of new unknown",
    ):
        calibration.threshold_for_false_positive_rate(range(1, 12), 0.05)


@pytest.mark.parametrize("count", [1, 19, 151, TABLE_SIZE])
def test_a_model_knows_how_many_scores_its_threshold_accepts(rng, count):
    scores = np.sort(np.float32(rng.normal(size=count)))
    table = p_value_table(scores)
    for accepted in {0, count // 2, count - 1, count}:
        around = [scores[0] - 1, *scores, scores[-1] + 1]
        middle = np.float32(sum(around[accepted : accepted + 2]) / 2)
        assert table.accepted_by(middle) == (accepted, count)
    assert p_value_table(()).accepted_by(0.0) is None


def test_of_many_scores_it_is_nearly_all_that_are_accepted(rng):
    scores = np.float32(rng.normal(size=60_000))
    threshold = calibration.threshold_for_true_positive_rate(scores, 0.95)
    accepted, count = p_value_table(scores).accepted_by(threshold)
    assert count == 60_000
    assert 0.9485 <= accepted / count <= 0.9501


def test_shares_of_a_calibrated_model(trained_blobs, tmp_path):
    calibrated, x, _ = trained_blobs
    model = calibrated.with_score("gamma")
    assert model.accepted_shares == {}
    threshold = model.calibrate(x, true_positive_rate=0.8)
    known = model.predict_scores(x).unknown_score <= threshold
    expected = AcceptedShare(int(known.sum()), len(x))
    assert model.accepted_shares == {"known": expected}
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.accepted_shares == {"known": expected}
    threshold = model.calibrate(unknown=-x, false_positive_rate=0.3)
    accepted = model.predict_scores(-x).unknown_score <= threshold
    shares = model.accepted_shares
    assert shares["unknown"] == AcceptedShare(int(accepted.sum()), len(x))
    # The known inputs are still those of before, the threshold is not.
    known = model.predict_scores(x).unknown_score <= threshold
    assert shares["known"] == AcceptedShare(int(known.sum()), len(x))
    model.set_threshold(0.1)
    assert set(model.accepted_shares) == {"known"}
    model.set_threshold(None)
    assert model.accepted_shares == {}
