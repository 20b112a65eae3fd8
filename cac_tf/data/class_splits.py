# SPDX-License-Identifier: Apache-2.0
"""The benchmark's known and unknown classes, five trials per data set.

`neal` are the splits of Neal et al. (ECCV 2018), which Table 1 of the paper
uses; `miller2020` the random splits of the authors' released weights (Tables
4 and 5). `random<n>` draws n known classes and as many unknown ones, e.g.
`random5`: the openness is the same for every n (the paper's figure of growing
numbers of classes). Numbers of different families must not be mixed in one
table.
"""

import functools
import importlib.resources
import json
import random
import re
import typing
from collections.abc import Sequence

import numpy as np

from cac_tf.registry import did_you_mean

# Data set names of the command line -> names in class_splits.json.
# Scikit-learn's small digits are split like MNIST.
SPLIT_NAMES = {
    "digits": "MNIST",
    "mnist": "MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR10",
    # Known classes of CIFAR10, unknown ones of CIFAR100.
    "cifar+10": "CIFAR+10",
    "cifar+50": "CIFAR+50",
    "tinyimagenet": "TinyImageNet",
}
# How many classes a family `random<n>` draws from.
_NUM_CLASSES = {
    "digits": 10,
    "mnist": 10,
    "svhn": 10,
    "cifar10": 10,
    "tinyimagenet": 200,
}
_TRIALS = 5


class ClassSplit(typing.NamedTuple):
    """Class ids of one trial."""

    known: tuple
    unknown: tuple | None


@functools.cache
def _families():
    resource = importlib.resources.files("cac_tf.data") / "class_splits.json"
    return json.loads(resource.read_text(encoding="utf-8"))["families"]


def split_families() -> tuple[str, ...]:
    """Names of the split families.

    Example:

    >>> split_families()
    ('neal', 'miller2020')
    """
    return tuple(_families())


def has_class_split(dataset: str) -> bool:
    """Whether the benchmark splits the classes of this data set."""
    return dataset in SPLIT_NAMES


def class_split(
    dataset: str, split_family: str = "neal", trial: int = 0
) -> ClassSplit:
    """The known and unknown classes of one trial.

    Args:
        dataset: e.g. "mnist".
        split_family: "neal", "miller2020", or "random<n>" with a number n.
        trial: 0 to 4.

    Returns:
        `ClassSplit` of class ids.

    Raises:
        ValueError: no such data set, family or trial; the message lists the
            available ones.

    Example:

    >>> class_split("mnist", trial=0).known
    (0, 1, 2, 4, 5, 9)
    >>> class_split("mnist", "random2", trial=1)
    ClassSplit(known=(1, 6), unknown=(2, 9))
    """
    if dataset not in SPLIT_NAMES:
        raise ValueError(
            f"There is no class split for the data set {dataset!r}, only for: "
            f"{', '.join(SPLIT_NAMES)}. For other data, name the known "
            "classes."
        )
    drawn = re.fullmatch(r"random([1-9]\d{0,3})", split_family)
    if drawn:
        return _random_split(dataset, int(drawn[1]), trial)
    if split_family not in _families():
        raise ValueError(
            "Unknown split family "
            f"{split_family!r}{did_you_mean(split_family, _families())} "
            f"Available: {', '.join(_families())}, and random<n> with n known "
            "and n unknown classes."
        )
    trials = _families()[split_family][SPLIT_NAMES[dataset]]
    _check_trial(trial, len(trials), dataset, split_family)
    return ClassSplit(
        tuple(trials[trial]["known"]), tuple(trials[trial]["unknown"])
    )


def _check_trial(trial, number, dataset, split_family):
    if not 0 <= trial < number:
        raise ValueError(
            f"{split_family} has no trial {trial} of {dataset}; trials are "
            f"numbered 0 to {number - 1}."
        )


def _random_split(dataset, size, trial):
    split_family = f"random{size}"
    _check_trial(trial, _TRIALS, dataset, split_family)
    total = _NUM_CLASSES.get(dataset)
    if total is None:
        raise ValueError(
            f"{dataset} takes its unknown classes from another data set, so "
            f"split_family={split_family} cannot be used with it."
        )
    if not 2 <= size <= total // 2:
        raise ValueError(
            f"split_family={split_family}: {dataset} has {total} classes, so "
            f"n must be 2 to {total // 2}."
        )
    draw = random.Random(f"{dataset} {size} {trial}")
    classes = draw.sample(range(total), 2 * size)
    return ClassSplit(
        tuple(sorted(classes[:size])), tuple(sorted(classes[size:]))
    )


def drawn_classes(
    class_names: Sequence[str], share: float, trial: int
) -> tuple[str, ...]:
    """A share of the classes, drawn at random: those that are known.

    Of the K names in order of the alphabet, those at the first
    `round(share * K)` numbers of
    `numpy.random.default_rng(trial).permutation(K)`, again in that order.

    Args:
        class_names: names of all classes.
        share: share of them, in (0, 1].
        trial: the draw.

    Example:

    >>> drawn_classes(["cat", "dog", "cow", "hen"], 0.5, trial=0)
    ('cat', 'dog')
    """
    ordered = sorted(class_names)
    order = np.random.default_rng(trial).permutation(len(ordered))
    count = round(share * len(ordered))
    return tuple(ordered[i] for i in sorted(order[:count]))
