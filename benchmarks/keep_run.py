# SPDX-License-Identifier: Apache-2.0
"""Keeps the numbers of a run in benchmarks/results.

    python benchmarks/keep_run.py runs/mnist_trial0 mnist_trial0

The run may be unfinished: then its learning curve so far is kept, from its
checkpoint.
"""

import json
import os
import pathlib
import sys

import numpy as np

from cac_tf import atomic_files
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import read_config
from cac_tf.run_folder import read_metrics
from cac_tf.training import TrainingRecord

RESULTS = pathlib.Path(__file__).parent / "results"


def _history(folder):
    path = folder.file("history.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file), None
    with np.load(folder.checkpoint, allow_pickle=False) as file:
        record = json.loads(str(file["record"]))
    record = TrainingRecord(**record)
    return record.finite_history, round(record.seconds, 1)


def keep(path, name):
    """Writes config, metrics and history of a run as one file."""
    folder = RunFolder(path)
    config = read_config(path)
    # A path of the machine that it ran on.
    del config["settings"]["data_dir"]
    history, seconds = _history(folder)
    content = {**config, "history": history}
    if folder.is_finished:
        content["metrics"] = read_metrics(path)
    else:
        content["seconds"] = seconds
    atomic_files.write_json(RESULTS / f"{name}.json", content)


if __name__ == "__main__":
    keep(*sys.argv[1:])
