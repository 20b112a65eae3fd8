# SPDX-License-Identifier: Apache-2.0
"""The files that an evaluation leaves in a run's folder."""

from cac_tf import atomic_files
from cac_tf.experiments.run_folder import FORMAT
from cac_tf.experiments.run_folder import read_config
from cac_tf.reporting import write_report


def write_results(folder, evaluation, dataset, centres, run=None):
    """Writes scores, report, history and metrics into a run's folder.

    `metrics.json` comes last: with it the run is finished.

    Args:
        folder: `RunFolder`.
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` that was evaluated on.
        centres: (N, D) class centres in force.
        run: `TrainingRun`, if the model was trained in this run.
    """
    history = run.history if run else []
    folder.write_scores(evaluation)
    config = read_config(folder.path)
    write_report(
        folder.file("report.html"),
        evaluation,
        dataset,
        config,
        centres,
        history,
    )
    measures = {"format": FORMAT, **evaluation.metrics}
    if run:
        atomic_files.write_json(folder.file("history.json"), history)
        measures["epochs"] = len(history)
        measures["seconds"] = round(run.seconds, 1)
    atomic_files.write_json(folder.file("metrics.json"), measures)
