# SPDX-License-Identifier: Apache-2.0
"""Trains the benchmark by a fast recipe, one run after another.

    nice -n 19 python benchmarks/training_queue.py

Resumes after an interruption, by the same command. The numbers of each run go
to benchmarks/results/training as soon as it ends.

"search" runs compare recipes without the unknown classes of any split that is
reported: of the six known CIFAR10 classes of `miller2020` trial 0, four are
known and two are held out. "mnist" runs are reported; their recipe was fixed
before the first of them.
"""

import pathlib

from keep_run import RESULTS
from keep_run import keep

from cac_tf import experiments

RUNS = pathlib.Path(__file__).parent.parent / "runs" / "training"
KEPT = RESULTS / "training"

# One cosine at a higher rate than the paper's, and weaker regularisation: a
# short training is under-fitted, not over-fitted.
FAST = {
    "schedule": "cosine",
    "learning_rate": 0.05,
    "batch_size": 128,
    "weight_decay": 5e-4,
    "dropout": 0.0,
}
# About 300,000 training images.
MNIST = {**FAST, "epochs": 10}
# About 670,000 training images.
SEARCH = {**FAST, "epochs": 42, "scale": 0.8, "rotation": 0.0}
HELD_OUT = {
    "dataset": "cifar10",
    "known_classes": ["bird", "cat", "frog", "ship"],
    "unknown_classes": ["deer", "truck"],
}


def configuration(data, recipe, method):
    """The `ExperimentConfig` of a run."""
    return experiments.ExperimentConfig(
        data,
        method=method,
        recipe=recipe,
        scores=("gamma", "max_logit", "max_softmax", "energy", "vim"),
        precision="mixed_bfloat16",
    )


def mnist(method):
    """The five `neal` trials of MNIST."""
    return {
        f"mnist_{method}_{trial}": configuration(
            {"dataset": "mnist", "split_family": "neal", "trial": trial},
            MNIST,
            method,
        )
        for trial in range(5)
    }


def search(name, method="cac", **recipe):
    """One recipe on the held-out classes of CIFAR10."""
    return {
        f"search_{name}": configuration(HELD_OUT, {**SEARCH, **recipe}, method)
    }


def queue():
    """All runs by name, in their order."""
    return {
        **mnist("cac"),
        **search("base"),
        **search("cross_entropy", "cross_entropy"),
        **search("larger_rate", learning_rate=0.1),
        **search("wider_crops", scale=0.5),
        **search("dropout", dropout=0.1),
        **mnist("cross_entropy"),
    }


def main():
    """Trains what is not kept yet."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, config in queue().items():
        if (KEPT / f"{name}.json").exists():
            continue
        print(name, flush=True)
        experiments.train(config, RUNS / name)
        keep(RUNS / name, name, KEPT)


if __name__ == "__main__":
    main()
