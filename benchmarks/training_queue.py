# SPDX-License-Identifier: Apache-2.0
"""Trains the benchmark by a fast recipe, one run after another.

    TFDS_DATA_DIR=... nice -n 19 python benchmarks/training_queue.py [NAME ...]

Resumes after an interruption, by the same command. The numbers of each run go
to benchmarks/results/training as soon as it ends; a run that fails is reported,
and the next one begins. Names, or their beginnings, choose among the runs.

"search" runs compare recipes without any test image: known are four of the six
known CIFAR10 classes of `miller2020` trial 0, unknown the other two, and all
images, those to test with as well, are of the *training* part of CIFAR10. (Each
CIFAR10 class is unknown in some `neal` trial, but not by these images.) They
are compared by accuracy, validation loss and AUROC of gamma. All others are
reported; their recipes were fixed before the first of them.
"""

import pathlib
import sys
import tempfile
import traceback

import numpy as np
from keep_run import RESULTS
from keep_run import keep

from cac_tf import atomic_files
from cac_tf import data
from cac_tf import experiments

RUNS = pathlib.Path(__file__).parent.parent / "runs" / "training"
KEPT = RESULTS / "training"
METHODS = ("cac", "cross_entropy")

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
# 590,000 training images, 14,400 an epoch.
SEARCH = {**FAST, "epochs": 41, "scale": 0.8, "flip": 0.5, "rotation": 0.0}
KNOWN, HELD_OUT = ("bird", "cat", "frog", "ship"), ("deer", "truck")


def held_out_classes():
    """Path of an .npz file of CIFAR10's training images; see above."""
    # A fixed path: it is part of a run's configuration.
    path = pathlib.Path(tempfile.gettempdir()) / "cifar10_held_out.npz"
    if path.exists():
        return str(path)
    whole = data.load_open_set_dataset(
        "cifar10", known_classes=(*KNOWN, *HELD_OUT), validation_fraction=0.1
    )
    # A tenth of each class is there to test with.
    parts = {"train": whole.train, "test": whole.validation}
    arrays = {}
    for part, (images, labels) in parts.items():
        used = labels < len(KNOWN) if part == "train" else slice(None)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = images[used], labels[used]
    with atomic_files.replacing(path) as temporary:
        np.savez(
            temporary,
            **arrays,
            class_names=whole.class_names,
            known_classes=KNOWN,
        )
    return str(path)


def configuration(options, recipe, method):
    """The `ExperimentConfig` of a run."""
    return experiments.ExperimentConfig(
        options,
        method=method,
        recipe=recipe,
        scores=("gamma", "max_logit", "max_softmax", "energy", "vim"),
        precision="mixed_bfloat16",
    )


def trials(dataset, recipe, method):
    """The five `neal` trials of a data set."""
    return {
        f"{dataset}_{method}_{trial}": configuration(
            {"dataset": dataset, "split_family": "neal", "trial": trial},
            recipe,
            method,
        )
        for trial in range(5)
    }


def search(name, method="cac", **recipe):
    """One recipe on the held-out classes of CIFAR10."""
    options = {"dataset": held_out_classes()}
    recipe = {**SEARCH, **recipe}
    return {f"search_{name}": configuration(options, recipe, method)}


def queue():
    """All runs by name, in their order."""
    return {
        **trials("mnist", MNIST, "cac"),
        **search("base"),
        **search("cross_entropy", "cross_entropy"),
        **search("larger_rate", learning_rate=0.1),
        **search("weaker_decay", weight_decay=1e-4),
        **search("wider_crops", scale=0.5),
        **search("dropout", dropout=0.1),
        **trials("mnist", MNIST, "cross_entropy"),
    }


def main(*prefixes):
    """Trains what is not kept yet."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, config in queue().items():
        if (KEPT / f"{name}.json").exists():
            continue
        if prefixes and not name.startswith(prefixes):
            continue
        print(name, flush=True)
        try:
            experiments.train(config, RUNS / name)
            keep(RUNS / name, name, KEPT)
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    main(*sys.argv[1:])
