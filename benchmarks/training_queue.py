# SPDX-License-Identifier: Apache-2.0
"""Trains the benchmark, one run after another.

    TFDS_DATA_DIR=... nice -n 19 python benchmarks/training_queue.py [NAME ...]

Resumes after an interruption, by the same command. The numbers of each run go
to benchmarks/results/training as soon as it ends; a run that fails is reported,
and the next one begins. Names, or their beginnings, choose among the runs; all
of CIFAR+ share the model of cifar+10_..._0.

What `cac-benchmark` would train with `--sweep=preset=fast` and, for a few,
`--sweep=preset=paper` is trained here with all scores of a classifier, in an
order in which whole columns of a table come first.

"search" runs look around the fast recipe without any test image: known are four
of the six known CIFAR10 classes of `miller2020` trial 0, unknown the other two,
and all images, those to test with as well, are of the *training* part of
CIFAR10. (Each CIFAR10 class is unknown in some `neal` trial, but not by these
images.)

Where AVX-512 is missing, TF_ENABLE_ONEDNN_OPTS=1 in the environment makes it
faster; `cac-train` sets that.
"""

import pathlib
import sys
import tempfile

import numpy as np
from keep_run import RESULTS
from keep_run import keep

from cac_tf import atomic_files
from cac_tf import data
from cac_tf import experiments
from cac_tf.experiments.benchmark_plan import BenchmarkRun
from cac_tf.experiments.benchmark_plan import configurations
from cac_tf.experiments.environment import bfloat16_is_slow

RUNS = pathlib.Path(__file__).parent.parent / "runs" / "training"
KEPT = RESULTS / "training"
FAST, PAPER = {"preset": "fast"}, {"preset": "paper"}
# All of the generator's 30 epochs take ten hours on two cores.
FEW_EPOCHS = {**PAPER, "gan_epochs": 4}
# In this order: data set, methods, recipe, number of trials. TinyImageNet needs
# its images in the TFDS folder; its five trials would take a day. All five of
# CIFAR+50 are the same.
REPORTED = (
    ("mnist", ("cac", "cross_entropy"), FAST, 5),
    ("cifar+10", ("cac", "cross_entropy"), FAST, 5),
    ("cifar+50", ("cac", "cross_entropy"), FAST, 1),
    ("cifar10", ("cac", "cross_entropy"), FAST, 5),
    ("tinyimagenet", ("cac", "cross_entropy"), FAST, 1),
    ("mnist", ("crosr",), PAPER, 1),
    ("cifar10", ("c2ae", "osrci"), FAST, 1),
    ("mnist", ("osrci", "g_openmax"), FEW_EPOCHS, 1),
    # What Table 1 has, by its own recipe.
    ("mnist", ("cac",), PAPER, 5),
    ("cifar10", ("cac",), PAPER, 5),
    ("cifar+10", ("cac",), PAPER, 5),
    ("cifar+50", ("cac",), PAPER, 1),
    ("mnist", ("cross_entropy",), PAPER, 5),
    ("cifar10", ("cross_entropy",), PAPER, 5),
    ("tinyimagenet", ("cac",), PAPER, 1),
    ("mnist", ("osrci", "g_openmax"), PAPER, 1),
)
# What this processor trains fastest with; stands in each result.
PRECISION = "float32" if bfloat16_is_slow() else "mixed_bfloat16"
# Those with one network that returns logits and features.
CLASSIFIERS = {"cac", "cross_entropy"}
# Epochs between points of the learning curve of CIFAR10.
CURVE = 5
# The fast recipe with half of its epochs: 288,000 training images.
SEARCH = {
    "schedule": "cosine",
    "epochs": 20,
    "learning_rate": 0.05,
    "batch_size": 128,
    "weight_decay": 5e-4,
    "dropout": 0.0,
    "scale": 0.8,
    "flip": 0.5,
    "rotation": 0.0,
}
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


def name_of(run, recipe):
    """E.g. "mnist_cac_0", or "mnist_osrci_paper_gan_epochs=4_0"."""
    parts = [run.dataset, run.method]
    if recipe["preset"] != "fast":
        parts.append(recipe["preset"])
    parts += [f"{k}={v}" for k, v in recipe.items() if k != "preset"]
    return "_".join([*parts, str(run.trial)])


def kind_of(name):
    """Of a run, by its name: "search", or its recipe, "paper" or "fast"."""
    if name.startswith("search_"):
        return "search"
    return "paper" if "_paper_" in name else "fast"


def reported():
    """The runs that are reported, and their configurations, by name."""
    found = {}
    for dataset, methods, recipe, trials in REPORTED:
        runs = experiments.plan(
            RUNS,
            [dataset],
            methods,
            range(trials),
            "neal",
            sweep={field: (value,) for field, value in recipe.items()},
        )
        are_classifiers = CLASSIFIERS.issuperset(methods)
        configs = configurations(
            runs,
            scores="all" if are_classifiers else None,
            precision=PRECISION,
            evaluate_every=CURVE
            if dataset == "cifar10" and are_classifiers
            else 0,
        )
        for run, config in configs.items():
            found[name_of(run, recipe)] = run, config
    return found


def search(name, method="cac", **recipe):
    """One recipe on the held-out classes of CIFAR10."""
    config = experiments.ExperimentConfig(
        {"dataset": held_out_classes()},
        method=method,
        recipe={**SEARCH, **recipe},
        scores="all",
        precision=PRECISION,
    )
    name = f"search_{name}"
    run = BenchmarkRun("cifar10", "custom", method, 0, str(RUNS / name))
    return {name: (run, config)}


def queue():
    """All runs and their configurations by name, in their order."""
    return {
        **search("base"),
        **search("cross_entropy", "cross_entropy"),
        **search("two_heads", "two_heads"),
        **search("larger_rate", learning_rate=0.1),
        **search("weaker_decay", weight_decay=1e-4),
        **search("wider_crops", scale=0.5),
        **search("dropout", dropout=0.1),
        **reported(),
    }


def main(*prefixes):
    """Trains what is not kept yet."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, (run, config) in queue().items():
        if (KEPT / f"{name}.json").exists():
            continue
        if prefixes and not name.startswith(prefixes):
            continue
        print(name, flush=True)
        state = experiments.run_benchmark({run: config}, RUNS)
        for problem in state.failed.values():
            print(problem, flush=True)
        if run in state.finished:
            keep(run.path, name, KEPT)


if __name__ == "__main__":
    main(*sys.argv[1:])
