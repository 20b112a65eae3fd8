# SPDX-License-Identifier: Apache-2.0
"""cac-monitor: reports when a stream of answers has changed.

Example: cac-monitor --model=runs/photos --state=watch.json answers.csv

Or as a stream: cac-predict --model=runs/photos photos/ | cac-monitor
--model=runs/photos --state=watch.json -

It reports changes in the share of unknown inputs, in the mix of classes and in
the p-values of accepted inputs, however often you look. An input is a CSV or
JSONL file from cac-predict, a folder of them, or - for rows on standard input.
The counts are kept in the state file: the same command continues from there,
even if a file has grown. The exit status is 3 once a change has been reported.
"""

import hashlib
import os
import sys
import time

from cac_tf import atomic_files
from cac_tf import batch
from cac_tf import file_lock
from cac_tf.data.regular_file import opened
from cac_tf.open_world import Monitor
from cac_tf.open_world.prometheus import prometheus_text
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet
from cac_tf.train import terminal

CHANGED = 3
STANDARD_INPUT = "-"
_ENDINGS = (".csv", ".jsonl")
# Bytes that are read at once, and seconds between two writes of the state.
_PIECE, _SECONDS = 1 << 18, 1.0


def define_flags(values):
    """Defines the flags of `cac-monitor`."""
    flag_kinds.define_text(
        values,
        "model",
        None,
        "The .keras file, or the folder of the run that contains it. Needed "
        "to start a new state.",
    )
    flag_kinds.define_text(
        values,
        "state",
        None,
        "JSON file with all counts so far; created if missing. To continue "
        "after an alarm, name a new file.",
        required=True,
    )
    flag_kinds.define_number(
        values,
        "false_alarm_rate",
        0.01,
        "Upper bound on the probability of ever raising a false alarm.",
    )
    flag_kinds.define_text(
        values,
        "prometheus",
        None,
        "File for the counts, in the Prometheus text format.",
    )
    flag_kinds.define_switch(
        values,
        "merge",
        False,
        "The inputs are the state files of several workers that each counted "
        "different answers; --state becomes their sum.",
    )


def main(values, inputs):
    """Counts what the inputs hold.

    Returns:
        The exit status: 3 if a change was told.
    """
    if not inputs:
        raise ValueError(
            "Specify the answers: CSV or JSONL files written by cac-predict, "
            "folders, or - to read rows from standard input."
        )
    paths = _files_of(inputs)
    with file_lock.writing(values.state, f"{values.state}.lock"):
        if values.merge:
            monitor, before = _merged(values, paths), 0
            _say_alarms(monitor.alarms)
        else:
            monitor = _monitor(values)
            before = len(monitor.alarms)
            _count(values, monitor, paths)
        _write(values, monitor)
    _say_what_is(monitor, monitor.alarms[:before])
    return CHANGED if monitor.alarms else 0


def _monitor(values):
    """The monitor of the state, or a new one of the model."""
    digest = None
    if values.model is not None:
        path = command_line.model_file(values)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    if os.path.exists(values.state):
        monitor = Monitor.load(values.state)
        _check_begun(values, monitor, digest)
        return monitor
    if digest is None:
        raise ValueError(
            f"The state file {values.state} does not exist yet: give --model "
            "to start one."
        )
    quiet.load("keras")
    from cac_tf.models.saving import load_model

    monitor = Monitor.of(
        load_model(path), false_alarm_rate=values.false_alarm_rate
    )
    monitor.notes = {"model": digest, "inputs": {}}
    return monitor


def _check_begun(values, monitor, digest):
    if not {"model", "inputs"} <= monitor.notes.keys():
        raise ValueError(f"{values.state} is not a state file of cac-monitor.")
    if digest not in (None, monitor.notes["model"]):
        raise ValueError(
            f"{values.state} belongs to a different model than {values.model}."
        )
    rate = values.false_alarm_rate
    if values["false_alarm_rate"].present and rate != monitor.false_alarm_rate:
        raise ValueError(
            f"--false_alarm_rate={rate:g} has no effect on a state that was "
            f"started with {monitor.false_alarm_rate:g}."
        )


def _files_of(inputs):
    """Paths, those in folders too, and - for standard input."""
    found = []
    for path in inputs:
        if os.path.isdir(path):
            own = [
                os.path.join(path, name)
                for name in sorted(os.listdir(path))
                if name.endswith(_ENDINGS) and not name.startswith(".")
            ]
            if not own:
                raise ValueError(
                    f"The folder {path} contains no CSV or JSONL files."
                )
            found += own
        elif path == STANDARD_INPUT or os.path.exists(path):
            found.append(path)
        else:
            raise ValueError(f"File not found: {path}.")
    for path in found:
        if path.endswith(".parquet"):
            raise ValueError(
                f"{path}: answers must be CSV or JSONL (cac-predict "
                "--format=csv)."
            )
        if found.count(path) > 1:
            raise ValueError(f"{path} is listed twice.")
    return found


def _count(values, monitor, paths):
    written = time.monotonic()
    for path in paths:
        for rows in _rows_of(path, monitor):
            try:
                alarms = monitor.update(*rows[:3])
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
            _say_alarms(alarms)
            if path != STANDARD_INPUT:
                name = os.path.realpath(path)
                monitor.notes["inputs"][name] = rows.position
            if time.monotonic() > written + _SECONDS:
                _write(values, monitor)
                written = time.monotonic()
    if not any(monitor.counts.values()):
        raise ValueError(f"No answers found in {', '.join(paths)}.")


def _rows_of(path, monitor):
    if path == STANDARD_INPUT:
        source = sys.stdin.buffer
        pieces = iter(lambda: source.read1(_PIECE), b"")
        yield from batch.read_answers(
            pieces, "standard input", monitor.class_names
        )
        return
    before = monitor.notes["inputs"].get(os.path.realpath(path), ())
    with opened(path) as file:
        yield from batch.read_answers(
            iter(lambda: file.read(_PIECE), b""),
            path,
            monitor.class_names,
            batch.Position(*before),
        )


def _merged(values, paths):
    """One monitor of several workers' states."""
    for name in ("model", "false_alarm_rate"):
        if values[name].present:
            raise ValueError(f"--{name} has no effect with --merge.")
    if os.path.realpath(values.state) in map(os.path.realpath, paths):
        raise ValueError("--state must not be one of the files to merge.")
    if os.path.exists(values.state):
        _check_merged(values.state, paths)
    workers = [Monitor.load(path) for path in paths]
    for path, worker in zip(paths, workers, strict=True):
        if not {"model", "inputs"} <= worker.notes.keys():
            raise ValueError(f"{path} is not a state file of cac-monitor.")
    if len({worker.notes["model"] for worker in workers}) > 1:
        raise ValueError("The states belong to different models.")
    counted = [name for one in workers for name in one.notes["inputs"]]
    twice = {name for name in counted if counted.count(name) > 1}
    if twice:
        raise ValueError(f"Two of the states both include {min(twice)}.")
    monitor = Monitor.merged(workers)
    monitor.notes = {
        "model": workers[0].notes["model"],
        "inputs": {k: v for w in workers for k, v in w.notes["inputs"].items()},
        "merged": len(workers),
    }
    return monitor


def _check_merged(state, paths):
    if "merged" not in Monitor.load(state).notes:
        raise ValueError(
            f"{state} was not written by --merge, so it is not overwritten."
        )


def _write(values, monitor):
    monitor.save(values.state)
    if values.prometheus is not None:
        atomic_files.write_text(values.prometheus, prometheus_text(monitor))


def _say_alarms(alarms):
    terminal.say(*(f"ALARM at {one.in_words()}" for one in alarms))


def _say_what_is(monitor, earlier):
    values = ", ".join(
        f"{test} {value:.3g}" for test, value in monitor.e_values().items()
    )
    terminal.say(
        batch.Counts(**monitor.counts).in_words(),
        f"E-values: {values}; an alarm is raised at {monitor.alarm_level:g}.",
        *(f"Reported earlier, at {one.in_words()}" for one in earlier),
    )


def run():
    """Entry point of the console script."""
    command_line.run(
        define_flags,
        main,
        __doc__,
        "The same command continues from there.",
        takes_inputs=True,
    )


if __name__ == "__main__":
    run()
