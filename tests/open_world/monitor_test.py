# SPDX-License-Identifier: Apache-2.0
"""Whether a stream changed: exact under no change, and told under one."""

import itertools
import json

import numpy as np
import pytest

import cac_tf
from cac_tf.decision.p_values import p_value_table
from cac_tf.decision.p_values import p_values
from cac_tf.open_world import Monitor
from cac_tf.open_world import betting
from cac_tf.open_world.betting import Bets
from cac_tf.open_world.online_ranks import ranks_of_hits
from cac_tf.open_world.online_ranks import ranks_of_levels

CATS_AND_DOGS = ("cat", "dog")


def mean_of_the_ties(low, high):
    """The mean of a martingale when each of its numbers lies in an interval.

    By its equation; each number is uniform there.
    """
    inside = (np.minimum(high, betting._BELOW[:, None]) - low).clip(0)
    share = inside / (high - low)
    factors = betting._IF_BELOW[:, None] * share
    factors += betting._ELSE[:, None] * (1 - share)
    size = len(low)
    weights = 1 / np.log2(np.arange(2, size + 3))
    value = weights[-1]
    for t, weight in enumerate(-np.diff(weights)):
        value += weight * factors[:, t:].prod(axis=1).mean()
    return value


def test_the_martingale_is_that_of_the_equation(rng):
    uniform = rng.random(7)
    bets = Bets(3)
    parts = uniform[:4, None], uniform[4:, None]
    values = np.r_[*(bets.bet(slice(1, 2), part)[0] for part in parts)][:, 0]
    for size in range(1, 8):
        points = uniform[:size], uniform[:size] + 1e-12
        assert values[size - 1] == pytest.approx(mean_of_the_ties(*points))
    np.testing.assert_allclose(bets.values(), [1.0, values[-1], 1.0])
    assert bets.numbers.tolist() == [0, 7, 0]


def test_over_all_orders_of_hits_the_mean_is_one():
    found = []
    for order in itertools.permutations([1, 1, 0, 0, 0, 0]):
        hits = np.array(order, bool)[:, None]
        ends = [
            ranks_of_hits(hits, np.array([0]), 0, np.full(6, tie))[:, 0]
            for tie in (0.0, 1.0)
        ]
        found.append(mean_of_the_ties(*ends))
    assert np.ptp(found) > 0.1
    assert np.mean(found) == pytest.approx(1.0)


def test_over_all_orders_of_scores_with_ties_the_mean_is_one():
    found = []
    for levels in itertools.permutations([0, 0, 2, 3, 3]):
        ends = [
            ranks_of_levels(np.array(levels), np.zeros(4, int), np.full(5, tie))
            for tie in (0.0, 1.0)
        ]
        found.append(mean_of_the_ties(*ends))
    assert np.mean(found) == pytest.approx(1.0)


def test_over_all_orders_of_calibration_and_stream_the_mean_is_one():
    """With gaps that fill; and with gaps that stay, it is not."""
    found, naive = [], []
    for scores in itertools.permutations(np.arange(5.0)):
        table = p_value_table(scores[:2])
        p_value = p_values(np.float32(scores[2:]), *table)
        levels = np.rint(3 * p_value).astype(int) - 1
        ends = [
            ranks_of_levels(levels, np.ones(3, int), np.full(3, tie), own=0)
            for tie in (0.0, 1.0)
        ]
        found.append(mean_of_the_ties(*ends))
        naive.append(mean_of_the_ties(levels / 3, (levels + 1) / 3))
    assert np.mean(found) == pytest.approx(1.0)
    assert np.mean(naive) > 1.005


def answers(rng, size, unknown=0.0, classes=(0.5, 0.5), scores=None, known=99):
    """Class ids and p-values of a stream, against scores 0...1 of known ones.

    The threshold accepts all but the 4 % largest.
    """
    scores = rng.random(size) if scores is None else scores
    calibration = np.linspace(0, 1, known + 2)[1:-1]
    scores = np.where(rng.random(size) < unknown, 2.0, scores)
    p_value = p_values(np.float32(scores), *p_value_table(calibration))
    class_id = rng.choice(len(classes), size, p=classes)
    return np.where(scores > 0.955, -1, class_id), p_value


def watching(**settings):
    return Monitor(CATS_AND_DOGS, calibration=(95, 99), **settings)


def test_alarms_without_a_change_are_as_rare_as_promised(rng):
    """Calibrations of 20 examples, a rate of .2, and not a tenth is used up."""
    told = 0
    for seed in range(60):
        known = np.sort(rng.random(20))
        p_value = p_values(np.float32(rng.random(600)), *p_value_table(known))
        rejected = p_value <= 2 / 21
        class_id = np.where(rejected, -1, rng.integers(0, 2, 600))
        monitor = Monitor(
            CATS_AND_DOGS, (18, 20), false_alarm_rate=0.2, seed=seed
        )
        told += bool(monitor.update(class_id, p_value))
    assert told <= 12


@pytest.mark.parametrize(
    ("change", "test", "rose", "name"),
    [
        ({"unknown": 0.3}, "unknown share", True, ""),
        ({"classes": (0.75, 0.25)}, "class mix", True, "cat"),
        ({"scores": np.linspace(0.7, 0.9, 800)}, "p-values", False, ""),
    ],
    ids=["unknown", "classes", "p-values"],
)
def test_a_change_is_told(rng, change, test, rose, name):
    monitor = watching(seed=3)
    assert monitor.update(*answers(rng, 1000, unknown=0.05)) == []
    assert max(monitor.e_values().values()) < monitor.alarm_level == 400
    given = monitor.update(*answers(rng, 800, **change))
    first = next(one for one in given if one.test == test)
    assert 1000 < first.answer < 1400
    assert first.e_value >= 400
    if name:
        # One class rose and the other fell; either may be told first.
        told = {(one.class_name, one.rose) for one in given}
        assert told <= {("cat", True), ("dog", False), ("", True), ("", False)}
        assert first.class_name in CATS_AND_DOGS
    else:
        assert first.rose == rose
    # No alarm is given twice.
    again = monitor.update(*answers(rng, 100, **change | {"scores": None}))
    assert not {one[0::4] for one in again} & {one[0::4] for one in given}


def test_what_comes_after_an_alarm_does_not_change_it(rng):
    class_id = np.where(rng.random(1792) < 0.3, -1, 0)
    class_id = np.r_[class_id, np.full(40, -1), np.zeros(216, int)]
    alarms = []
    for size in (1832, len(class_id)):
        monitor = Monitor(["cat"], seed=1)
        alarms.append(monitor.update(class_id[:size], np.ones(size)))
    assert alarms[0][0].rose
    assert alarms[0] == alarms[1]


def test_the_calibration_tells_what_was_so_from_the_first_answer(rng):
    monitor = watching(seed=1)
    monitor.update(*answers(rng, 600, scores=rng.uniform(0, 0.6, 600)))
    assert {one.test for one in monitor.alarms} == {"calibration"}
    (alarm,) = monitor.alarms
    assert alarm.rose
    assert alarm.in_words() == (
        f"answer {alarm.answer:,}: the p-values of accepted inputs, "
        "relative to the calibration, are larger (e-value "
        f"{alarm.e_value:.3g})."
    )
    # Its value is a mean of 1 over calibrations, not only large after changes.
    assert monitor.e_values()["calibration"] > 400


def test_without_calibration_shares_are_tested(rng):
    monitor = Monitor(CATS_AND_DOGS, seed=0)
    assert [*monitor.e_values()] == ["unknown share", "class mix"]
    class_id = rng.integers(-1, 2, 300)
    assert monitor.update(class_id, np.ones(300)) == []
    alarms = monitor.update(np.full(200, -1), np.ones(200))
    assert (alarms[0].test, alarms[0].rose) == ("unknown share", True)
    assert monitor.accepted_by_class() == {
        "cat": (class_id == 0).sum(),
        "dog": (class_id == 1).sum(),
    }


def test_a_saved_monitor_goes_on_as_if_nothing_had_been(rng, tmp_path):
    """Wherever the stream is cut, and after an alarm as before."""
    class_id, p_value = answers(rng, 900, unknown=0.05)
    class_id[600:][::2] = -1
    p_value[600:][::2] = 0.01
    whole = watching(seed=5)
    expected = whole.update(class_id, p_value, failed=2)
    assert expected
    path = tmp_path / "state.json"
    watching(seed=5).save(path)
    given = []
    for start, end in itertools.pairwise([0, 1, 255, 700, 900]):
        monitor = Monitor.load(path)
        given += monitor.update(class_id[start:end], p_value[start:end])
        monitor.notes["position"] = end
        monitor.save(path)
    monitor.update([], [], failed=2)
    assert monitor.counts == whole.counts
    assert monitor.e_values() == pytest.approx(whole.e_values())
    assert [one[:2] for one in given] == [one[:2] for one in expected]
    loaded = Monitor.load(path)
    assert loaded.alarms == given
    assert loaded.notes == {"position": 900}
    assert path.stat().st_size < 10_000


def test_merged_monitors_have_the_mean_of_e_values(rng):
    workers = [watching(seed=seed) for seed in range(3)]
    for worker in workers:
        worker.update(*answers(rng, 400, unknown=0.05), failed=1)
    merged = Monitor.merged(workers, seed=9)
    of_workers = [list(one.e_values().values()) for one in workers]
    found = merged.e_values()
    for test in ("unknown share", "p-values", "calibration"):
        place = list(found).index(test)
        mean = np.mean([one[place] for one in of_workers])
        assert found[test] == pytest.approx(mean)
    assert merged.counts["failed"] == 3
    assert merged.answers == 1200
    assert not merged.alarms
    # It goes on, from the answers of all of them.
    alarms = merged.update(*answers(rng, 300, unknown=0.4))
    assert {one[0:4:3] for one in alarms} == {
        ("unknown share", True),
        ("p-values", False),
    }
    # What is large enough in the mean is told by the merge.
    again = Monitor.merged([merged, *workers[:1]])
    assert "unknown share" in {one.test for one in again.alarms}
    for others, message in (
        ([], "There are no monitors to merge"),
        ([workers[0], workers[0]], "the same seed"),
        ([workers[0], Monitor(["cat"], (95, 99))], "the same model"),
    ):
        with pytest.raises(ValueError, match=message):
            Monitor.merged(others)


@pytest.mark.parametrize(
    ("class_id", "p_value", "message"),
    [
        ([0, 1], [0.5, np.nan], "Answer 2 has the p-value nan"),
        ([0], [0.0], "Answer 1 has the p-value 0"),
        ([0], [1.5], "multiples of 1/100"),
        ([0], [0.505], "another model, or rounded"),
        ([2], [0.5], "the class id 2, but this model has 2 classes"),
        ([-2], [0.5], "the class id -2"),
        ([0.5], [0.5], "the class id 0.5"),
        ([-1], [0.06], "inputs above 0.05: it is from another model or"),
        ([0, 1], [0.5], r"the same shape \(B,\); got \(2,\) and \(1,\)"),
    ],
)
def test_answers_that_the_model_cannot_have_given(class_id, p_value, message):
    monitor = watching()
    with pytest.raises(ValueError, match=message):
        monitor.update(class_id, p_value)
    assert monitor.answers == 0
    assert monitor.e_values() == watching().e_values()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"class_names": []}, "at least one name"),
        ({"calibration": (5, 4)}, "calibration must be a pair"),
        ({"calibration": (5,)}, "calibration must be a pair"),
        ({"false_alarm_rate": 0.0}, "false_alarm_rate must be in"),
        ({"false_alarm_rate": np.nan}, "false_alarm_rate must be in"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Monitor(**{"class_names": CATS_AND_DOGS, **arguments})


def test_damaged_states_are_refused(tmp_path):
    path = tmp_path / "state.json"
    monitor = watching()
    monitor.update([0, 1], [0.5, 0.7])
    monitor.save(path)
    good = json.loads(path.read_text())
    for name, value in (
        ("format", 0),
        ("calibration", [1, 0]),
        ("counts", {}),
        ("accepted_by_class", [1, 2]),
        ("by_p_value", [1, 1]),
        ("alarms", [{"row": 1}]),
        ("bets", good["bets"] | {"reserve": [1, 1, 1]}),
        ("bets", good["bets"] | {"reserve": [-1] * 5}),
    ):
        path.write_text(json.dumps(good | {name: value}))
        with pytest.raises(
            ValueError, match=r"state\.json is not a monitor's state"
        ):
            Monitor.load(path)
    path.write_bytes(b"\xff{")
    with pytest.raises(ValueError, match="or is damaged"):
        Monitor.load(path)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("size", [150, 1_500])
def test_the_monitor_of_a_model_takes_its_answers(rng, size, by_class):
    """Every p-value is one of its levels, and none beyond is rejected."""
    import keras

    classifier = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    model = cac_tf.OpenSetClassifier(classifier, CATS_AND_DOGS)
    with pytest.raises(ValueError, match="no threshold"):
        Monitor.of(model)
    x = np.float32(rng.normal(size=(size, 3)))
    model.calibrate(x, true_positive_rate=0.9, by_class=by_class)
    monitor = Monitor.of(model, seed=0)
    assert monitor.class_names == CATS_AND_DOGS
    if not by_class:
        assert monitor.calibration == model.accepted_shares["known"]
    found = model.predict_open_set(np.float32(rng.normal(size=(1000, 3))))
    assert monitor.update(found.class_id, found.p_value) == []
    # What is below the threshold in its gap is not ranked.
    highest = monitor._bets.numbers[-1]
    assert 0.8 * 1000 < highest <= monitor.counts["accepted"]
    assert monitor._bets.numbers[0] == 1000
