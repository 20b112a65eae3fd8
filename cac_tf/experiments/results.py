# SPDX-License-Identifier: Apache-2.0
"""The files that an evaluation leaves in a run's folder."""

import os
import typing

import numpy as np

from cac_tf import atomic_files
from cac_tf.experiments.evaluation import Evaluation
from cac_tf.experiments.pictures import kept_pictures
from cac_tf.experiments.pictures import reconstructions
from cac_tf.experiments.run_folder import FORMAT
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import read_config
from cac_tf.reporting import write_report
from cac_tf.reporting.model_card import write_model_card
from cac_tf.reporting.predictions import write_predictions


class Done(typing.NamedTuple):
    """A finished training or evaluation."""

    folder: RunFolder
    # None where the run was finished before.
    evaluation: Evaluation | None


def write_results(folder, evaluation, dataset, model, run=None):
    """Writes all files of an evaluation into a run's folder.

    `metrics.json` comes last: with it the run is finished.

    Args:
        folder: `RunFolder`.
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` that was evaluated on.
        model: `OpenSetClassifier` that was evaluated.
        run: `TrainingRun`, if the model was trained in this run.
    """
    history = run.history if run else []
    with atomic_files.replacing(folder.file("scores.npz")) as temporary:
        np.savez_compressed(temporary, **evaluation.arrays())
    write_predictions(folder.file("predictions.csv"), evaluation, dataset)
    config = read_config(folder.path)
    write_report(
        folder.file("report.html"),
        evaluation,
        dataset,
        config,
        model.centers,
        history,
        [*reconstructions(model, dataset), *kept_pictures(folder)],
        _model_beside(folder, config),
    )
    measures = {"format": FORMAT, **evaluation.metrics}
    if run:
        atomic_files.write_json(folder.file("history.json"), history)
        measures["epochs"] = len(history)
        measures["seconds"] = round(run.seconds, 1)
    if os.path.exists(folder.file("model.keras")):
        write_model_card(folder.file("MODEL_CARD.md"), measures, config)
    atomic_files.write_json(folder.file("metrics.json"), measures)


def _model_beside(folder, config):
    """The path from a run's folder to the model that was evaluated.

    An evaluation that changes nothing about the model leaves it where it is.
    """
    elsewhere = config["settings"].get("model")
    if elsewhere is None or os.path.exists(folder.file("model.keras")):
        return "."
    return os.path.relpath(elsewhere, folder.path)
