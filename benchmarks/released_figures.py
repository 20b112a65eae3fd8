# SPDX-License-Identifier: Apache-2.0
"""The paper's Figures 2 and 3 from the authors' released weights.

    TFDS_DATA_DIR=... python benchmarks/released_figures.py networks/weights

Figure 2 is that of `cac-benchmark`, of trial 0. Figure 3 is drawn from the
accuracies of all trials in released_scores.json, by the largest logit. Needs
PyTorch. Resumes after an interruption, by the same command. The figures go to
benchmarks/results/released_figures.
"""

import json
import sys

from digits_paper import ROOT
from digits_paper import run
from keep_run import RESULTS

from cac_tf.reporting.figures import write_png
from cac_tf.reporting.paper_figures import bars_figure

KEPT = RESULTS / "released_figures"
DATASETS = ("mnist", "cifar10", "cifar+10", "cifar+50")


def accuracy_figure(accuracies):
    """Figure 3 from tuples of data set, method, trial and accuracy."""
    names = ("dataset", "method", "trial", "accuracy")
    rows = [
        {**dict(zip(names, values, strict=True)), "variant": None}
        for values in accuracies
    ]
    return bars_figure(rows, "accuracy")


def released_accuracies():
    """Tuples as of `accuracy_figure`, from released_scores.json."""
    kept_scores = json.loads((RESULTS / "released_scores.json").read_text())
    for dataset in DATASETS:
        for kept in kept_scores["runs"].values():
            if dataset in kept["columns"]:
                accuracy = kept["columns"][dataset]["measured"]["accuracy"]
                yield dataset, kept["training"], kept["trial"], accuracy


def main(weights):
    """Draws both figures."""
    KEPT.mkdir(parents=True, exist_ok=True)
    figure = accuracy_figure(released_accuracies())
    write_png(KEPT / "figure_3.png", figure)
    run(
        [
            "--figure=2",
            f"--datasets={','.join(DATASETS)}",
            "--trials=0",
            f"--released_weights={weights}",
        ],
        ROOT / "runs" / "released_figures",
        KEPT,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
