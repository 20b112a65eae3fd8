# SPDX-License-Identifier: Apache-2.0
"""Many runs of the benchmark: their folders, their numbers, one results.csv."""

import csv
import dataclasses
import os
import pathlib

from cac_tf import atomic_files
from cac_tf import data
from cac_tf.run_folder import FORMAT
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import RunFolderError
from cac_tf.run_folder import read_config
from cac_tf.run_folder import read_metrics

# Columns of results.csv and their types; empty cells are None.
COLUMNS = {
    "format": int,
    "dataset": str,
    "split_family": str,
    "method": str,
    "score": str,
    "trial": int,
    "auroc": float,
    "accuracy": float,
    "ccr@1%": float,
    "ccr@5%": float,
    "ccr@10%": float,
    "oscr": float,
    "bhattacharyya": float,
    "epochs": int,
    "seconds": float,
    "precision": str,
    "seed": int,
    "cpu": str,
    "accelerator": str,
    "backend": str,
    "versions": str,
    "commit": str,
}


@dataclasses.dataclass(frozen=True)
class BenchmarkRun:
    """One data set, method and trial, in a folder of its own."""

    dataset: str
    split_family: str
    method: str
    trial: int
    path: str
    # A run whose model has the same known classes: evaluated, not trained.
    shares_model_of: "BenchmarkRun | None" = None

    @property
    def name(self):
        return f"{self.dataset} {self.method} trial {self.trial}"

    @property
    def folder(self):
        return RunFolder(self.path)

    @property
    def scores_folder(self):
        """Of the evaluation that compares further scores of its model."""
        return RunFolder(self.folder.file("scores"))

    @property
    def model(self):
        """Path of the model that the run's numbers are of."""
        return (self.shares_model_of or self).folder.file("model.keras")


# Data sets whose runs evaluate the model of another set with the same known
# classes, instead of training it again.
_SHARES_MODEL_OF = {"cifar+50": "cifar+10"}


def plan(output_dir, datasets, methods, trials, split_family):
    """The runs of a benchmark, in an order in which shared models come first.

    CIFAR+10 and CIFAR+50 have the same known classes, so one model serves
    both: runs of CIFAR+50 bring those of CIFAR+10 with them.

    Args:
        output_dir: folder of all runs.
        datasets: names; "digits" or of `data.BENCHMARK_SETS`.
        methods: names of methods.
        trials: numbers of trials; a set whose known classes are all classes
            has trial 0 alone.
        split_family: "neal" or "miller2020".

    Returns:
        List of `BenchmarkRun`.

    Raises:
        ValueError: a data set that is no part of the benchmark, or a trial
            that it does not have.

    Example:

    >>> runs = plan("runs", ["cifar+50"], ["cac"], [0], "neal")
    >>> [run.name for run in runs]
    ['cifar+10 cac trial 0', 'cifar+50 cac trial 0']
    >>> runs[1].shares_model_of is runs[0]
    True
    """
    known_names = ("digits", *data.BENCHMARK_SETS)
    for dataset in datasets:
        if dataset not in known_names:
            raise ValueError(
                f"{dataset!r} is no data set of the benchmark; there are: "
                f"{', '.join(known_names)}."
            )
    runs = {}

    def add(dataset, method, trial):
        if (dataset, method, trial) in runs:
            return runs[dataset, method, trial]
        family, shared = "custom", None
        if data.has_class_split(dataset):
            family = split_family
            known = data.class_split(dataset, family, trial).known
            other = _SHARES_MODEL_OF.get(dataset)
            if other and data.class_split(other, family, trial).known == known:
                shared = add(other, method, trial)
        path = os.path.join(
            output_dir, family, dataset, method, f"trial{trial}"
        )
        run = BenchmarkRun(dataset, family, method, trial, path, shared)
        runs[dataset, method, trial] = run
        return run

    for dataset in datasets:
        own_trials = trials
        if not data.has_class_split(dataset):
            own_trials = [trial for trial in trials if trial == 0]
            if not own_trials:
                raise ValueError(
                    f"{dataset} has trial 0 alone: all classes of one data "
                    "set are known."
                )
        for method in methods:
            for trial in own_trials:
                add(dataset, method, trial)
    return list(runs.values())


def training_images(dataset, split_family, trial):
    """How many images a run trains on, without reading any.

    Example:

    >>> training_images("cifar10", "neal", 0)
    24000
    """
    if dataset not in data.BENCHMARK_SETS:
        loaded = data.load_open_set_dataset(
            dataset, split_family=split_family, trial=trial
        )
        return loaded.counts["train"]
    benchmark_set = data.BENCHMARK_SETS[dataset]
    known = None
    if data.has_class_split(dataset):
        known = data.class_split(dataset, split_family, trial).known
    counts = benchmark_set.known.train_counts
    if isinstance(counts, int):
        total = counts * (10 if known is None else len(known))
    else:
        total = sum(counts[i] for i in known)
    return round(total * (1.0 - benchmark_set.validation_fraction))


def collect_results(output_dir):
    """Rows of all finished runs under a folder, one a score.

    Returns:
        The rows, and a text for each run that cannot be read, one of another
        version of cac_tf for example.
    """
    rows, problems = [], []
    for file in sorted(pathlib.Path(output_dir).glob("*/*/*/*/metrics.json")):
        try:
            rows += _rows(file.parent)
        except (RunFolderError, OSError, KeyError) as error:
            problems.append(f"{file.parent}: {error}")
    return rows, problems


def _rows(folder):
    metrics, config = read_metrics(folder), read_config(folder)
    training, settings = metrics, config["settings"]
    environment = config["environment"]
    if "epochs" not in metrics:
        # Evaluated only: the model was trained in the run of another set.
        family, dataset, method, trial = folder.parts[-4:]
        source = folder.parents[3] / family / _SHARES_MODEL_OF[dataset]
        source = source / method / trial
        training = read_metrics(source)
        settings = read_config(source)["settings"]
    scores = dict(metrics["scores"])
    if (folder / "scores" / "metrics.json").exists():
        scores |= read_metrics(folder / "scores")["scores"]
    return [
        {
            "format": FORMAT,
            **{
                name: metrics[name]
                for name in ("dataset", "split_family", "method")
            },
            # A data set whose known classes are all classes has no trials.
            "trial": metrics["trial"] or 0,
            "score": score,
            **{name: by_score[name] for name in ("auroc", "accuracy", "oscr")},
            **{
                f"ccr@{float(rate):.0%}": value
                for rate, value in (by_score["ccr"] or {}).items()
            },
            "bhattacharyya": metrics["bhattacharyya"],
            "epochs": training["epochs"],
            "seconds": training["seconds"],
            "precision": settings["precision"],
            "seed": settings["seed"],
            "cpu": environment["hardware"]["cpu"],
            "accelerator": environment["hardware"]["accelerator"],
            "backend": environment["backend"],
            "versions": " ".join(
                f"{name}={version}"
                for name, version in environment["versions"].items()
            ),
            "commit": environment["commit"],
        }
        for score, by_score in scores.items()
    ]


def write_results(path, rows):
    """Writes `results.csv`, as a whole or not at all."""
    with (
        atomic_files.replacing(path) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, list(COLUMNS))
        writer.writeheader()
        writer.writerows(rows)


def read_results(path):
    """Rows of a `results.csv`.

    Returns:
        List of dicts with the keys and types of `COLUMNS`; None where a cell
        is empty.

    Raises:
        ValueError: the file was written by another version of cac_tf, or is
            no results file.
    """
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    found = set(reader.fieldnames or ())
    formats = {row.get("format") for row in rows} - {str(FORMAT)}
    if found != set(COLUMNS) or formats:
        different = sorted(found ^ set(COLUMNS)) or sorted(map(str, formats))
        raise ValueError(
            f"{path} was not written by this version of cac_tf (format "
            f"{FORMAT}); different: {', '.join(different)}. Move it away; it "
            "is made again from the runs' folders."
        )
    try:
        if any(None in row.values() for row in rows):
            raise ValueError("it is cut off")
        return [
            {
                name: None if row[name] == "" else kind(row[name])
                for name, kind in COLUMNS.items()
            }
            for row in rows
        ]
    except ValueError as error:
        raise ValueError(f"{path} holds a damaged row: {error}") from error
