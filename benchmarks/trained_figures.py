# SPDX-License-Identifier: Apache-2.0
"""Figures and reports of what training_queue.py has trained.

    python benchmarks/trained_figures.py

The paper's Figures 2 and 3 by the models of the fast recipe and, if their names
end with "paper", by those of the paper's; of the fast recipe also the AUROC
against minutes where it was measured during the training, and the reports of
the best and the worst trial. They go to benchmarks/results/training. From the
folders of the runs, so it works where these were trained.
"""

import json
import pathlib

from keep_run import without_machine
from released_figures import accuracy_figure
from training_queue import KEPT
from training_queue import kind_of
from training_queue import reported

from cac_tf.experiments.benchmark import arrays_of
from cac_tf.experiments.run_folder import read_config
from cac_tf.reporting.figures import write_png
from cac_tf.reporting.paper_figures import distances_figure
from cac_tf.reporting.paper_figures import lines_figure

_METHODS = ("cac", "cross_entropy")


def trained(recipe):
    """Runs of a recipe, "paper" or "fast", and what was kept of them."""
    found = {}
    for name, (run, _) in reported().items():
        path = KEPT / f"{name}.json"
        is_meant = run.method in _METHODS and kind_of(name) == recipe
        if is_meant and path.exists():
            found[name] = run, json.loads(path.read_text())
    return found


def distances_figures(runs):
    """Figure 2 of each data set: distances to the closest class mean, trial 0.

    Only of data sets whose runs are all here.
    """
    by_dataset = {}
    for run, _ in runs.values():
        if run.trial == 0:
            by_dataset.setdefault(run.dataset, []).append(run)
    figures = {}
    for dataset, first in by_dataset.items():
        arrays = arrays_of(first)
        if len(arrays) == len(first):
            figures[dataset] = distances_figure(
                {(dataset, run.method): arrays[run] for run in first}
            )
    return figures


def learning_curves(runs):
    """AUROC against minutes, as `lines_figure` takes it.

    Of trainings on a CPU: the minutes of a GPU are others.
    """
    lines = {}
    for run, kept in runs.values():
        if kept["environment"]["hardware"]["accelerator"] is not None:
            continue
        history = kept["history"]
        points = {
            # An epoch takes the same time as any other.
            epoch * kept["metrics"]["seconds"] / 60 / len(history): {
                run.trial: logs["test_auroc"]
            }
            for epoch, logs in enumerate(history, 1)
            if "test_auroc" in logs
        }
        if points:
            lines[f"{run.dataset}, {run.method}, trial {run.trial}"] = points
    return lines


def keep_reports(runs):
    """The reports of the best and the worst trial of CAC.

    On each data set; CIFAR+10 and CIFAR+50 share their model, and count as one.
    """
    folder = KEPT / "reports"
    folder.mkdir(exist_ok=True)
    by_dataset = {}
    for run, kept in runs.values():
        if run.method == "cac":
            trained = run.shares_model_of or run
            trials = by_dataset.setdefault(trained.dataset, [])
            trials.append((kept["metrics"]["auroc"], run))
    for dataset, trials in by_dataset.items():
        trials.sort(key=lambda pair: pair[0])
        for (_, run), which in ((trials[-1], "best"), (trials[0], "worst")):
            if run.folder.is_finished and len(trials) > 1:
                page = pathlib.Path(run.folder.file("report.html")).read_text()
                settings = read_config(run.path)["settings"]
                model = settings.get("model")  # Of a shared one.
                if model is not None:
                    page = page.replace(model, without_machine(model))
                (folder / f"{dataset}_{which}.html").write_text(page)


def draw_paper_figures(runs, ending=""):
    """Figures 2 and 3."""
    for dataset, figure in distances_figures(runs).items():
        write_png(KEPT / f"figure_2_{dataset}{ending}.png", figure)
    accuracies = (
        (run.dataset, run.method, run.trial, kept["metrics"]["accuracy"])
        for run, kept in runs.values()
    )
    write_png(KEPT / f"figure_3{ending}.png", accuracy_figure(accuracies))


def main():
    """Draws and copies all."""
    draw_paper_figures(trained("paper"), "_paper")
    runs = trained("fast")
    draw_paper_figures(runs)
    if lines := learning_curves(runs):
        figure = lines_figure(lines, "minutes of training")
        write_png(KEPT / "learning_curves.png", figure)
    keep_reports(runs)


if __name__ == "__main__":
    main()
