# SPDX-License-Identifier: Apache-2.0
"""Finished runs, side by side."""

import json
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from cac_tf import reporting
from cac_tf.annotations import Path
from cac_tf.experiments.run_folder import RunFolderError
from cac_tf.experiments.run_folder import read_config
from cac_tf.experiments.run_folder import read_metrics


def compare_runs(folders: Sequence[Path], path: Path) -> None:
    """Writes a page that shows finished runs side by side.

    Args:
        folders: of at least two runs: trainings or evaluations.
        path: of the HTML file.

    Raises:
        RunFolderError: a folder does not hold a finished run.
        ValueError: fewer than two folders, one that is listed twice, or no
            folder for the page.

    Example:

    >>> compare_runs(["runs/cac"], "comparison.html")
    Traceback (most recent call last):
    ValueError: Name at least two runs to compare; got 1.
    """
    whole = [os.path.realpath(folder) for folder in folders]
    if len(folders) < 2:
        raise ValueError(
            f"Name at least two runs to compare; got {len(folders)}."
        )
    for folder, real in zip(folders, whole, strict=True):
        if whole.count(real) > 1:
            raise ValueError(f"The run {folder} is listed twice.")
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise ValueError(f"The folder for the page does not exist: {parent}.")
    names = _names(whole)
    runs = [
        _read(name, folder) for name, folder in zip(names, folders, strict=True)
    ]
    reporting.write_comparison(path, runs)


def _names(folders):
    """The last parts of the paths, as many as tell them apart."""
    parts = [pathlib.Path(folder).parts for folder in folders]
    for kept in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-kept:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def _read(name, folder):
    try:
        measures, config = read_metrics(folder), read_config(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(
            f"{folder} does not contain a finished run: "
            f"{os.path.basename(error.filename)} is missing."
        ) from error
    history = []
    path = os.path.join(folder, "history.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            history = json.load(file)
    with np.load(os.path.join(folder, "scores.npz")) as arrays:
        return reporting.ComparedRun(
            name,
            measures,
            config,
            history,
            arrays["unknown_score"],
            arrays["labels"],
        )
