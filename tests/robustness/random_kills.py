# SPDX-License-Identifier: Apache-2.0
"""A training run that is killed at random moments ends as if it had not been.

Each case kills a run once or twice and then lets it finish: its weights, scores
and measures are bit by bit those of a run that nobody disturbed. After every
kill, what is there under its final name is whole.
"""

import json
import multiprocessing
import os
import time
import zipfile

from tests.robustness import runs

_LONGEST = 300


def _train_quietly(folder):
    log = os.open(f"{folder}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    runs.train(folder)


def _start(function, *arguments):
    # The server has imported everything and forks: TensorFlow's import would
    # take most of a run's time.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.robustness.runs"])
    process = context.Process(target=function, args=arguments)
    process.start()
    return process


def _finish(folder):
    process = _start(_train_quietly, folder)
    process.join(_LONGEST)
    if process.exitcode is None:
        process.kill()
    with open(f"{folder}.log", encoding="utf-8") as log:
        assert process.exitcode == 0, log.read()


def prepare(folder):
    _start(os.getpid).join()  # The server imports.
    started = time.monotonic()
    _finish(folder / "reference")
    return folder / "reference", time.monotonic() - started


def case(rng, folder, prepared):
    reference, seconds = prepared
    run = folder / "run"
    num_kills = 0
    for _ in range(rng.integers(1, 3)):
        process = _start(_train_quietly, run)
        process.join(rng.uniform(0, seconds))
        if process.exitcode is None:
            process.kill()
            num_kills += 1
        process.join()
        _check_what_is_there(run)
    _finish(run)
    runs.assert_same_result(run, reference)
    return f"{num_kills} kills, then finished: the same bits"


def _check_what_is_there(run):
    for name in ("config.json", "metrics.json", "history.json"):
        if (run / name).exists():
            json.loads((run / name).read_text())
    for name in ("model.keras", "scores.npz", "checkpoints/classifier.npz"):
        if (run / name).exists():
            assert zipfile.ZipFile(run / name).testzip() is None
