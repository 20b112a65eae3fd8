# SPDX-License-Identifier: Apache-2.0
"""Figures and reports of what training_queue.py has trained.

    python benchmarks/trained_figures.py

The paper's Figures 2 and 3 by the models of the fast recipe, the AUROC against
minutes where it was measured during the training, and the reports of the best
and the worst trial. They go to benchmarks/results/training. From the folders of
the runs, so it works where these were trained.
"""

import json
import shutil

from matplotlib.figure import Figure
from training_queue import KEPT
from training_queue import reported

from cac_tf import experiments
from cac_tf import reporting

_METHODS = ("cac", "cross_entropy")


def trained():
    """Runs of the fast recipe and what was kept of them, by name."""
    found = {}
    for name, (run, _) in reported().items():
        path = KEPT / f"{name}.json"
        is_fast = ("preset", "fast") in run.variant
        if run.method in _METHODS and is_fast and path.exists():
            found[name] = run, json.loads(path.read_text())
    return found


def accuracy_figure(runs):
    """Figure 3: the accuracy of both methods on each data set."""
    rows = [
        {
            "dataset": run.dataset,
            "method": run.method,
            "trial": run.trial,
            "accuracy": kept["metrics"]["accuracy"],
            "variant": None,
        }
        for run, kept in runs.values()
    ]
    return reporting.bars_figure(rows, "accuracy")


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
        arrays = experiments.arrays_of(first)
        if len(arrays) == len(first):
            figures[dataset] = reporting.distances_figure(
                {(dataset, run.method): arrays[run] for run in first}
            )
    return figures


def learning_curves_figure(runs):
    """AUROC against minutes; None where none was measured in training."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    for i, method in enumerate(_METHODS):
        for run, kept in runs.values():
            history, metrics = kept["history"], kept["metrics"]
            points = [
                (epoch, logs["test_auroc"])
                for epoch, logs in enumerate(history, 1)
                if "test_auroc" in logs
            ]
            if run.method != method or not points:
                continue
            # An epoch takes the same time as any other.
            minutes = metrics["seconds"] / 60 / len(history)
            axes.plot(
                [epoch * minutes for epoch, _ in points],
                [auroc for _, auroc in points],
                color=f"C{i}",
                alpha=0.7,
                label=f"{run.dataset}, {method}, trial {run.trial}",
            )
    if not axes.lines:
        return None
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("AUROC")
    axes.legend(
        frameon=False,
        fontsize="small",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
    return figure


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
                shutil.copyfile(
                    run.folder.file("report.html"),
                    folder / f"{dataset}_{which}.html",
                )


def main():
    """Draws and copies all."""
    runs = trained()
    for dataset, figure in distances_figures(runs).items():
        reporting.write_png(KEPT / f"figure_2_{dataset}.png", figure)
    reporting.write_png(KEPT / "figure_3.png", accuracy_figure(runs))
    figure = learning_curves_figure(runs)
    if figure is not None:
        reporting.write_png(KEPT / "learning_curves.png", figure)
    keep_reports(runs)


if __name__ == "__main__":
    main()
