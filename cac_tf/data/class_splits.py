# SPDX-License-Identifier: Apache-2.0
"""The benchmark's known and unknown classes, five trials a data set.

`neal` are the splits of Neal et al. (ECCV 2018), which Table 1 of the paper
uses; `miller2020` the random splits of the authors' released weights (Tables
4 and 5). Numbers of different families must not be mixed in one table.
"""

import functools
import importlib.resources
import json
import typing

# Data set names of the command line -> names in class_splits.json. Digits
# are digits: scikit-learn's small ones are split like MNIST.
_SPLIT_NAMES = {
    "digits": "MNIST",
    "mnist": "MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR10",
    # Known classes of CIFAR10, unknown ones of CIFAR100.
    "cifar+10": "CIFAR+10",
    "cifar+50": "CIFAR+50",
    "tinyimagenet": "TinyImageNet",
}


class ClassSplit(typing.NamedTuple):
    """Class ids of one trial."""

    known: tuple
    unknown: tuple


@functools.cache
def _families():
    resource = importlib.resources.files("cac_tf.data") / "class_splits.json"
    return json.loads(resource.read_text(encoding="utf-8"))["families"]


def split_families():
    """Names of the split families.

    Example:

    >>> split_families()
    ('neal', 'miller2020')
    """
    return tuple(_families())


def has_class_split(dataset):
    """Whether the benchmark splits the classes of this data set."""
    return dataset in _SPLIT_NAMES


def class_split(dataset, split_family="neal", trial=0):
    """The known and unknown classes of one trial.

    Args:
        dataset: e.g. "mnist".
        split_family: "neal" or "miller2020".
        trial: 0 to 4.

    Returns:
        `ClassSplit` of class ids.

    Raises:
        ValueError: no such data set, family or trial; the message lists what
            there is.

    Example:

    >>> class_split("mnist", trial=0).known
    (0, 1, 2, 4, 5, 9)
    """
    if dataset not in _SPLIT_NAMES:
        raise ValueError(
            f"There is no class split for data set {dataset!r}; there are "
            f"splits for: {', '.join(_SPLIT_NAMES)}. For others, name the "
            "known classes."
        )
    if split_family not in _families():
        raise ValueError(
            f"There is no split family {split_family!r}; there are: "
            f"{', '.join(_families())}."
        )
    trials = _families()[split_family][_SPLIT_NAMES[dataset]]
    if not 0 <= trial < len(trials):
        raise ValueError(
            f"There is no trial {trial} of {dataset} in {split_family}; "
            f"trials go from 0 to {len(trials) - 1}."
        )
    return ClassSplit(
        tuple(trials[trial]["known"]), tuple(trials[trial]["unknown"])
    )
