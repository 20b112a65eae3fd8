# SPDX-License-Identifier: Apache-2.0
"""results.csv: the numbers of a benchmark's finished runs, a row per score."""

import csv
import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.experiments.run_folder import FORMAT
from cac_tf.experiments.run_folder import RunFolderError
from cac_tf.experiments.run_folder import changes
from cac_tf.experiments.run_folder import read_config
from cac_tf.experiments.run_folder import read_metrics

# Columns of results.csv and their types; empty cells are None.
COLUMNS = {
    "format": int,
    "dataset": str,
    "split_family": str,
    "method": str,
    "variant": str,
    "score": str,
    "trial": int,
    "auroc": float,
    "fpr_at_95_tpr": float,
    "aupr_known": float,
    "aupr_unknown": float,
    "accuracy": float,
    "ccr@1%": float,
    "ccr@5%": float,
    "ccr@10%": float,
    "oscr": float,
    "macro_f1": float,
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
    "date": str,
}
# What all trials should have in common. (Seeds may differ.)
_ALIKE = (
    "recipe",
    "precision",
    "score",
    "tta",
    "true_positive_rate",
    "maximize",
    "unknown_share",
)
# What need not be the same of the data: which trial, and how they are read.
_DATA_APART = (
    "trial",
    "known_classes",
    "unknown_classes",
    "data_dir",
    "stream",
)


def collect_results(output_dir: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of all finished runs under a folder, one per score.

    And a text for each run that cannot be read, one of another version of
    cac_tf for example.
    """
    rows, problems = [], []
    for folder in _folders(output_dir):
        try:
            rows += _rows(folder)
        except (RunFolderError, OSError, KeyError) as error:
            problems.append(f"{folder}: {error}")
    return rows, problems


def differences_among_trials(output_dir: Path) -> list[str]:
    """Trials that tables average although their configurations differ.

    A text for each finished run that differs from the first one of its split
    family, data set, method and variant.
    """
    found = []
    first: dict[tuple, tuple] = {}
    for folder in _folders(output_dir):
        try:
            _, settings = _training(
                folder, read_metrics(folder), read_config(folder)["settings"]
            )
        except (RunFolderError, OSError, KeyError):
            continue  # No row of the results either.
        own = {name: settings.get(name) for name in _ALIKE}
        own["data"] = {
            name: value
            for name, value in settings.get("data", {}).items()
            if name not in _DATA_APART
        }
        other, theirs = first.setdefault(folder.parts[-4:-1], (folder, own))
        places = ("in the first", "in the second")
        if different := changes(theirs, own, places):
            found.append(
                f"the results average {other} and {folder}, whose "
                f"configurations differ ({different})."
            )
    return found


def _folders(output_dir):
    files = pathlib.Path(output_dir).glob("*/*/*/*/metrics.json")
    return sorted(file.parent for file in files)


def _rows(folder):
    metrics, config = read_metrics(folder), read_config(folder)
    environment = config["environment"]
    training, settings = _training(folder, metrics, config["settings"])
    scores = dict(metrics["scores"])
    if (folder / "scores" / "metrics.json").exists():
        scores |= read_metrics(folder / "scores")["scores"]
    return [
        {
            "format": FORMAT,
            # Of a file, its name.
            "dataset": os.path.basename(metrics["dataset"]),
            "split_family": metrics["split_family"],
            "method": metrics["method"],
            # The values of a sweep; empty where there is none.
            "variant": folder.parts[-2].partition(",")[2],
            # A data set whose known classes are all classes has no trials.
            "trial": metrics["trial"] or 0,
            "score": score,
            **{
                name: value for name, value in by_score.items() if name != "ccr"
            },
            **{
                f"ccr@{float(rate):.0%}": value
                for rate, value in (by_score["ccr"] or {}).items()
            },
            # Of the score that decided.
            "macro_f1": metrics["macro_f1"]
            if score == metrics["score"]
            else None,
            "bhattacharyya": metrics["bhattacharyya"],
            # Nothing of these where released weights were evaluated.
            "epochs": training.get("epochs"),
            "seconds": training.get("seconds"),
            "precision": settings.get("precision"),
            "seed": settings.get("seed"),
            "cpu": environment["hardware"]["cpu"],
            "accelerator": environment["hardware"]["accelerator"],
            "backend": environment["backend"],
            "versions": " ".join(
                f"{name}={version}"
                for name, version in environment["versions"].items()
            ),
            "commit": environment["commit"],
            "date": environment["date"],
        }
        for score, by_score in scores.items()
    ]


def _training(folder, metrics, settings):
    """Metrics and settings of the run that trained the model of a run."""
    if "epochs" in metrics:
        return metrics, settings
    # Only evaluated. The other run has its folder beside this one.
    place = pathlib.Path(settings["model"]).parts[-5:-1]
    source = folder.parents[3].joinpath(*place)
    if not (source / "metrics.json").exists():
        return metrics, settings  # Released weights.
    return read_metrics(source), read_config(source)["settings"]


def write_results(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes `results.csv`, as a whole or not at all."""
    with (
        atomic_files.replacing(path) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, list(COLUMNS))
        writer.writeheader()
        writer.writerows(rows)


def read_results(path: Path) -> list[dict[str, Any]]:
    """Rows of a `results.csv`.

    Returns:
        List of dicts with the keys and types of `COLUMNS`; None where a cell
        is empty.

    Raises:
        ValueError: the file was written by another version of cac_tf, or is
            not a results file.
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
            f"{FORMAT}); differences: {', '.join(different)}. Move it away; "
            "it will be regenerated from the run folders."
        )
    try:
        if any(None in row.values() for row in rows):
            raise ValueError("it is truncated")
        return [
            {
                name: None if row[name] == "" else kind(row[name])
                for name, kind in COLUMNS.items()
            }
            for row in rows
        ]
    except ValueError as error:
        raise ValueError(f"{path} contains a damaged row: {error}") from error
