# SPDX-License-Identifier: Apache-2.0
"""cac-monitor, from files of answers to alarms, whatever is killed."""

import io
import json
import shutil
import sys

import keras
import numpy as np
import pytest
from absl import flags

import cac_tf
from cac_tf import batch
from cac_tf.batch.classifier import Answer
from cac_tf.open_world import Monitor
from cac_tf.train import cac_monitor

NAMES = ("cat", "dog")


@pytest.fixture(scope="module")
def model():
    """A model of two numbers; far from both classes, it rejects."""
    classifier = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    classifier.layers[0].set_weights([np.eye(2), np.zeros(2)])
    made = cac_tf.OpenSetClassifier.from_outputs(
        classifier,
        {"logits": np.float32(4 * np.eye(2))},
        [0, 1],
        class_names=NAMES,
        score="min_distance",
    )
    rng = np.random.default_rng(0)
    made.calibrate(inputs(rng, 199), true_positive_rate=0.95)
    return made


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    """Of its file."""
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    return path


def inputs(rng, size, unknown=0.0):
    x = 4 * np.eye(2)[rng.integers(0, 2, size)] + rng.normal(size=(size, 2))
    x[rng.random(size) < unknown] = -30
    return np.float32(x)


def write(path, model, x, errors=0):
    """The answers to inputs, as cac-predict writes them."""
    found = model.predict_open_set(x)
    with batch.rows_file(str(path)) as row:
        for i in range(len(x)):
            answer = Answer(
                found.label[i],
                int(found.class_id[i]),
                bool(found.is_unknown[i]),
                float(found.unknown_score[i]),
                float(found.p_value[i]),
                model.threshold,
                NAMES[found.predicted_class_id[i]],
            )
            row(f"x:{i}", answer)
        for i in range(errors):
            row(f"error:{i}", Answer(error="no image"))
    return path


def watch(*arguments):
    values = flags.FlagValues()
    cac_monitor.define_flags(values)
    rest = values(["cac-monitor", *map(str, arguments)])
    return cac_monitor.main(values, rest[1:])


@pytest.fixture
def answers(tmp_path, model):
    """600 usual answers; then 300 of which 40 % are unknown."""
    rng = np.random.default_rng(2)
    usual, other = inputs(rng, 600, 0.05), inputs(rng, 300, 0.4)
    write(tmp_path / "usual.csv", model, usual, errors=3)
    write(tmp_path / "more.csv", model, inputs(rng, 100, 0.05))
    write(tmp_path / "other.jsonl", model, other)
    return tmp_path


def test_a_change_is_told_in_words_counts_and_status(answers, path, capsys):
    state, counts = answers / "watch.json", answers / "cac.prom"
    begun = (f"--state={state}", f"--prometheus={counts}")
    usual, other = answers / "usual.csv", answers / "other.jsonl"
    assert watch(f"--model={path}", *begun, usual) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("603 inputs: ")
    assert first.endswith(" unknown, 3 unreadable.")
    assert second.endswith("; an alarm is raised at 400.")
    # Files that were counted are not counted again; the folder holds both.
    (answers / "both").mkdir()
    shutil.copy(other, answers / "both")
    assert watch(*begun, usual, answers / "both") == 3
    *alarms, first, _ = capsys.readouterr().out.splitlines()
    assert all(one.startswith("ALARM at answer 6") for one in alarms)
    said = " ".join(alarms)
    assert "the share of unknown inputs rose (e-value" in said
    assert "the p-values fell (e-value" in said
    assert first.startswith("903 inputs: ")
    text = counts.read_text()
    assert 'cac_answers_total{decision="failed"} 3\n' in text
    assert 'cac_alarm{test="unknown share"} 1\n' in text
    assert 'cac_alarm{test="class mix"} 0\n' in text
    loaded = Monitor.load(state)
    assert f'cac_accepted_total{{class="cat"}} {loaded._of_class[0]}\n' in text
    assert loaded.answers == 900
    # The alarms stay.
    assert watch(*begun, usual) == 3
    told = capsys.readouterr().out.splitlines()[2:]
    assert told == [
        one.replace("ALARM at", "Reported earlier, at") for one in alarms
    ]


def test_a_killed_command_goes_on_at_the_right_row(answers, path, monkeypatch):
    """Killed after any piece; and the file may grow meanwhile."""
    monkeypatch.setattr(cac_monitor, "_PIECE", 4_000)
    monkeypatch.setattr(cac_monitor, "_SECONDS", 0)
    state, usual = answers / "watch.json", answers / "usual.csv"
    command = (f"--model={path}", f"--state={state}", usual)
    update, left = Monitor.update, iter([3, 0, 1, 5])

    def update_or_die(self, *rows):
        nonlocal alive
        if not alive:
            raise KeyboardInterrupt
        alive -= 1
        return update(self, *rows)

    monkeypatch.setattr(Monitor, "update", update_or_die)
    for alive in left:  # noqa: B007
        with pytest.raises(KeyboardInterrupt):
            watch(*command)
        assert not (answers / "watch.json.lock").exists()
    killed = Monitor.load(state)
    assert 0 < killed.answers < 600
    alive = 1000
    watch(*command)
    whole = Monitor.load(state)
    assert whole.counts["failed"] == 3
    assert whole.answers == 600
    # As if nobody had killed it.
    again = Monitor(NAMES, whole.calibration, seed=whole.seed)
    ((_, position),) = whole.notes["inputs"].items()
    with open(usual, "rb") as file:
        rows = [*batch.read_answers([file.read()], "usual", NAMES)]
    for one in rows:
        again.update(*one[:3])
        assert [*one.position] == position
    assert again.counts == whole.counts
    assert again.e_values() == pytest.approx(whole.e_values())
    with open(usual, "ab") as file, open(answers / "more.csv", "rb") as more:
        file.write(more.read())
    watch(*command)
    assert Monitor.load(state).answers == 700


def test_rows_as_they_come(answers, path, monkeypatch, capsys):
    content = (answers / "usual.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    state = answers / "watch.json"
    assert watch(f"--model={path}", f"--state={state}", "-") == 0
    assert capsys.readouterr().out.startswith("603 inputs: ")
    # They are always new.
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert watch(f"--state={state}", "-") == 0
    assert Monitor.load(state).answers == 1200


def test_workers_are_merged(answers, path, capsys):
    states = [answers / "one.json", answers / "two.json"]
    for state, name in zip(states, ("usual.csv", "other.jsonl"), strict=True):
        watch(f"--model={path}", f"--state={state}", answers / name)
    both = answers / "both.json"
    for _ in range(2):  # The merged one is made again.
        assert watch("--merge", f"--state={both}", *states) == 0
    merged, one, two = map(Monitor.load, (both, *states))
    assert merged.counts["rejected"] == sum(
        worker.counts["rejected"] for worker in (one, two)
    )
    assert merged.e_values()["p-values"] == pytest.approx(
        (one.e_values()["p-values"] + two.e_values()["p-values"]) / 2
    )
    # What a worker has counted is not counted again.
    assert watch(f"--state={both}", answers / "usual.csv") == 0
    assert Monitor.load(both).answers == 900
    for arguments, message in (
        ((f"--state={states[0]}", *states), "one of the files to merge"),
        ((f"--state={states[0]}", states[1]), "not written by --merge"),
        ((f"--state={answers}/new.json", both, states[0]), "both include"),
        ((f"--state={both}", "--model=m.keras", both), "no effect with"),
    ):
        with pytest.raises(ValueError, match=message):
            watch("--merge", *arguments)
    capsys.readouterr()


def test_one_sentence_says_what_is_wrong(answers, path, tmp_path, rng):
    state = tmp_path / "watch.json"
    begun, usual = f"--state={state}", tmp_path / "usual.csv"
    (tmp_path / "empty.csv").touch()
    (tmp_path / "none").mkdir()
    (tmp_path / "rows.parquet").touch()
    nan = (tmp_path / "nan.csv").open("w")
    print("class_id,p_value\n0,nan", file=nan, flush=True)
    new = (f"--model={path}", begun)
    for arguments, message in (
        ((begun,), "Specify the answers"),
        ((begun, usual), "give --model to start"),
        ((*new, "no.csv"), "File not found: no.csv"),
        ((*new, usual, usual), "is listed twice"),
        ((*new, tmp_path / "none"), "contains no CSV or JSONL file"),
        ((*new, tmp_path / "rows.parquet"), "must be CSV or JSONL"),
        ((*new, tmp_path / "empty.csv"), "No answers found in"),
        ((*new, nan.name), "nan.csv: Answer 1 has the p-value nan"),
        ((*new, "--false_alarm_rate=2", usual), "must be in"),
        (("--model=no.keras", begun, usual), "not found"),
    ):
        with pytest.raises(ValueError, match=message):
            watch(*arguments)
        assert not state.exists()
    watch(*new, usual)
    other = cac_tf.load_model(path)
    other.calibrate(inputs(rng, 98), true_positive_rate=0.9)
    other.save(tmp_path / "other.keras")
    more = write(tmp_path / "more.csv", other, inputs(rng, 50))
    before = state.read_bytes()
    for arguments, message in (
        (
            (f"--model={tmp_path}/other.keras", usual),
            "belongs to a different model than",
        ),
        (("--false_alarm_rate=.1", usual), "started with 0.01"),
        ((more,), "more.csv: Answer 60. has .*another model"),
    ):
        with pytest.raises(ValueError, match=message):
            watch(begun, *arguments)
        assert state.read_bytes() == before
    state.write_text(json.dumps({"format": 1}))
    with pytest.raises(ValueError, match="is not a monitor's state"):
        watch(begun, usual)
