# SPDX-License-Identifier: Apache-2.0
"""Every score on all five `neal` trials of the digits, by two methods.

    python benchmarks/digits_scores.py

Trains CAC and cross-entropy by the same recipe and writes
benchmarks/results/digits_scores.json; docs/benchmarks_scores.md has the table.
"""

import dataclasses
import pathlib
import tempfile

import numpy as np

from cac_tf import atomic_files
from cac_tf import methods
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.environment import environment
from cac_tf.experiments.evaluation import evaluate
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.scores.registry import common_names
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

RESULT = pathlib.Path(__file__).parent / "results" / "digits_scores.json"
METHODS = ("cac", "cross_entropy")
TRIALS = range(5)
SEED = 0


def run_trial(name, trial):
    """Trains a method on a trial as `cac-train` does; compares all scores.

    Returns:
        Dict: `scores` (measures by name), `microseconds_per_image`, `recipe`.
    """
    dataset = load_open_set_dataset("digits", trial=trial)
    method = methods.get(name)
    recipe = method.recipe(**method.preset("digits"))
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(Runtime(SEED), folder)
        classifier = method.train(dataset, recipe, run)
    model = open_set_classifier(classifier, dataset, method.scores[0])
    model.calibrate(dataset.validation.images, true_positive_rate=0.95)
    metrics = evaluate(model, dataset, name, common_names()).metrics
    return {
        "scores": metrics["scores"],
        "microseconds_per_image": metrics["microseconds_per_image"],
        "recipe": dataclasses.asdict(recipe),
    }


def main():
    """Runs everything and writes the result."""
    runs = {}
    for name in METHODS:
        for trial in TRIALS:
            runs.setdefault(name, []).append(run_trial(name, trial))
            aurocs = {
                score: round(measures["auroc"], 4)
                for score, measures in runs[name][-1]["scores"].items()
            }
            print(name, trial, aurocs, flush=True)
    means = {
        name: {
            score: {
                key: float(np.mean([run["scores"][score][key] for run in own]))
                for key in ("auroc", "accuracy", "oscr")
            }
            for score in own[0]["scores"]
        }
        for name, own in runs.items()
    }
    atomic_files.write_json(
        RESULT, {"environment": environment(), "mean": means, "runs": runs}
    )


if __name__ == "__main__":
    main()
