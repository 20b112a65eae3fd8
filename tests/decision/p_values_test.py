# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest
from scipy import stats

from cac_tf.decision.p_values import TABLE_SIZE
from cac_tf.decision.p_values import discovery_level
from cac_tf.decision.p_values import p_value_table
from cac_tf.decision.p_values import p_values


def by_definition(scores, known):
    at_least = (np.asarray(known)[None] >= np.asarray(scores)[:, None]).sum(1)
    return (1 + at_least) / (len(known) + 1)


@pytest.mark.parametrize("count", [1, 2, 37, TABLE_SIZE - 1, TABLE_SIZE])
def test_the_p_value_is_the_share_of_known_scores_at_least_as_large(rng, count):
    known = np.float32(rng.integers(0, 50, count))  # with many that are equal
    scores = np.float32(rng.uniform(-5, 55, 500))
    scores[:100] = known[rng.integers(0, count, 100)]
    # No score is so close to a known one that it might be equal.
    gaps = np.abs(scores[:, None] - known[None])
    scores = scores[((gaps > 0.02) | (gaps == 0)).all(axis=1)]
    found = p_values(scores, *p_value_table(known))
    np.testing.assert_allclose(found, by_definition(scores, known), rtol=1e-6)
    # The last bits of a score do not matter.
    for factor in (1 - 1e-6, 1 + 1e-6):
        np.testing.assert_array_equal(
            p_values(np.float32(known * factor), *p_value_table(known)),
            p_values(known, *p_value_table(known)),
        )


@pytest.mark.parametrize("count", [TABLE_SIZE + 1, 1_500, 60_000])
def test_of_many_scores_it_is_a_little_larger_and_never_smaller(rng, count):
    known = np.float32(rng.normal(size=count))
    scores = np.float32(np.concatenate([rng.normal(size=500), known[:500]]))
    found = p_values(scores, *p_value_table(known))
    exact = by_definition(scores, known)
    # (Rounded to float32.)
    assert (found >= exact * (1 - 1e-7)).all()
    assert (found <= exact * count ** (1.2 / TABLE_SIZE) + 1.01 / count).all()
    # The largest scores are all there.
    largest = np.sort(known)[-20:]
    np.testing.assert_allclose(
        p_values(largest, *p_value_table(known)),
        by_definition(largest, known),
        rtol=1e-6,
    )


def test_tensors_have_the_p_values_of_arrays(rng):
    table = p_value_table(np.float32(rng.normal(size=300)))
    scores = np.float32([*rng.normal(size=40), *table.scores[:9], -3e38, 3e38])
    found = keras.ops.convert_to_numpy(
        p_values(*map(keras.ops.convert_to_tensor, (scores, *table)))
    )
    np.testing.assert_array_equal(found, p_values(scores, *table))


def test_without_known_scores_nothing_is_unusual():
    found = p_values(np.float32([-1e30, 0, 1e30]), *p_value_table([]))
    np.testing.assert_array_equal(found, 1.0)


def test_a_score_that_is_nan_is_the_most_unusual():
    table = p_value_table(np.arange(9.0))
    scores = keras.ops.convert_to_tensor(np.float32([np.nan]))
    found = keras.ops.convert_to_numpy(p_values(scores, *table))
    assert found == np.float32(0.1)


def test_known_inputs_have_small_p_values_as_rarely_as_promised(rng):
    """P(p <= a) <= a, over calibration sets and inputs."""
    level, rejected, trials = 0.1, 0, 4000
    for _ in range(trials):
        scores = np.float32(rng.normal(size=30))
        rejected += p_values(scores[:1], *p_value_table(scores[1:]))[0] <= level
    # Exactly 3 of 30 ranks; four standard deviations.
    assert abs(rejected / trials - 0.1) < 4 * np.sqrt(0.09 / trials)


def test_a_batch_is_screened_at_a_false_discovery_rate(rng):
    """Bates et al. (2023), theorem 2: on average the share of known inputs
    among those that are called unknown is at most the rate."""
    rate, shares = 0.2, []
    for _ in range(300):
        table = p_value_table(np.float32(rng.normal(size=200)))
        known, unknown = rng.normal(size=180), rng.normal(3.5, 1.0, size=20)
        found = p_values(np.float32([*known, *unknown]), *table)
        level = discovery_level(*np.unique(found, return_counts=True), rate)
        called = found <= level
        np.testing.assert_array_equal(
            called, stats.false_discovery_control(found) <= rate * (1 + 1e-6)
        )
        shares.append(called[:180].sum() / max(called.sum(), 1))
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) <= rate + 3 * error
    # The promise is rate * 180 / 200, and it is not far from reached.
    assert np.mean(shares) >= 0.5 * rate


def test_a_level_at_which_nothing_or_everything_is_unknown():
    assert discovery_level([0.3, 1.0], [2, 5], 0.2) == 0.0
    assert discovery_level([0.05], [7], 0.05) == 0.05
    # 1/20 as a float32 is above it.
    assert discovery_level(np.float32([0.05]), [7], 0.05) > 0.05
    assert discovery_level([], [], 0.1) == 0.0
    for rate in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="false_discovery_rate must be"):
            discovery_level([0.5], [1], rate)
