# SPDX-License-Identifier: Apache-2.0
"""Keeps the numbers of a run in benchmarks/results.

    python benchmarks/keep_run.py runs/mnist_trial0 mnist_trial0

The run may be unfinished: then its learning curve so far is kept, from its
checkpoints.
"""

import json
import os
import pathlib
import sys

import numpy as np

from cac_tf import atomic_files
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import read_config
from cac_tf.experiments.run_folder import read_metrics
from cac_tf.training.loop import TrainingRecord

RESULTS = pathlib.Path(__file__).parent / "results"


def _history(folder):
    path = folder.file("history.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file), None
    # Of trainings after one another, in the order of their last epochs.
    paths = sorted(
        pathlib.Path(folder.checkpoints).glob("*.npz"),
        key=lambda path: path.stat().st_mtime_ns,
    )
    history, seconds = [], 0.0
    for path in paths:
        with np.load(path, allow_pickle=False) as file:
            record = TrainingRecord(**json.loads(str(file["record"])))
        history += [
            {"training": path.stem, **logs} for logs in record.finite_history
        ]
        seconds += record.seconds
    return history, round(seconds, 1)


def without_machine(model):
    """The path of a run's model, without that of the machine's folder."""
    return os.path.join(*pathlib.Path(model).parts[-5:])


def keep(path, name, results=RESULTS):
    """Writes config, metrics and history of a run as one file."""
    folder = RunFolder(path)
    config = read_config(path)
    # No paths of the machine that it ran on.
    settings = config["settings"]
    options = settings["data"]
    options.pop("data_dir", None)
    if os.path.isabs(options["dataset"]):
        options["dataset"] = os.path.basename(options["dataset"])
    if "model" in settings:  # Of the run that trained it.
        settings["model"] = without_machine(settings["model"])
    history, seconds = _history(folder)
    content = {**config, "history": history}
    if folder.is_finished:
        content["metrics"] = read_metrics(path)
        content["metrics"]["dataset"] = options["dataset"]
    else:
        content["seconds"] = seconds
    atomic_files.write_json(results / f"{name}.json", content)


if __name__ == "__main__":
    keep(*sys.argv[1:])
