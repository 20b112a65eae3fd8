# SPDX-License-Identifier: Apache-2.0
"""All five `neal` trials of the digits, with three seeds.

    python benchmarks/digits.py

Writes benchmarks/results/digits.json; docs/benchmarks_paper.md has the table.
"""

import dataclasses
import pathlib
import tempfile
import time

import numpy as np

from cac_tf import atomic_files
from cac_tf import methods
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.environment import environment
from cac_tf.experiments.evaluation import evaluate
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

RESULT = pathlib.Path(__file__).parent / "results" / "digits.json"
TRIALS = range(5)
SEEDS = (0, 1, 2)


def run_trial(trial, seed):
    """Trains, calibrates and evaluates one trial, as `cac-train` does.

    Returns:
        The metrics, with `seed`, the training's `seconds` and `recipe`.
    """
    dataset = load_open_set_dataset("digits", trial=trial)
    method = methods.get("cac")
    recipe = method.recipe(**method.preset("digits"))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(Runtime(seed), folder)
        classifier = method.train(dataset, recipe, run)
    model = open_set_classifier(classifier, dataset, "gamma")
    seconds = time.monotonic() - started
    model.calibrate(dataset.validation.images, true_positive_rate=0.95)
    return {
        **evaluate(model, dataset).metrics,
        "seed": seed,
        "seconds": round(seconds, 1),
        "recipe": dataclasses.asdict(recipe),
    }


def main():
    """Runs everything and writes the result."""
    runs = []
    for seed in SEEDS:
        for trial in TRIALS:
            runs.append(run_trial(trial, seed))
            print(
                f"seed {seed} trial {trial}  AUROC {runs[-1]['auroc']:.4f}  "
                f"accuracy {runs[-1]['accuracy']:.4f}  "
                f"{runs[-1]['seconds']} s",
                flush=True,
            )
    means = {
        str(seed): {
            name: float(np.mean([r[name] for r in runs if r["seed"] == seed]))
            for name in ("auroc", "accuracy")
        }
        for seed in SEEDS
    }
    atomic_files.write_json(
        RESULT,
        {"environment": environment(), "mean_by_seed": means, "runs": runs},
    )
    print(means)


if __name__ == "__main__":
    main()
