# SPDX-License-Identifier: Apache-2.0
"""Measures of decisions over N known classes and "unknown", the (N+1)-th.

Labels and decisions are class indices, -1 for unknown. (In `sklearn.metrics`,
which counts, the classes are -1, 0, ..., N-1, in this order.)
"""

from __future__ import annotations

import typing

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.labels import UNKNOWN
from cac_tf.labels import check_labels

sklearn_metrics = lazy.module("sklearn.metrics")


class ClassMeasures(typing.NamedTuple):
    """Arrays (N+1,) by class; the last is "unknown"."""

    precision: np.ndarray  # of the inputs decided for it, those of the class
    recall: np.ndarray  # of the inputs of the class, those decided for it
    f1: np.ndarray  # the harmonic mean of both
    support: np.ndarray  # int64, inputs of the class


def macro_f1(
    labels: ArrayLike, class_ids: ArrayLike, num_classes: int
) -> float:
    """Mean F1 over N known classes and "unknown".

    Args:
        labels: (n,) int, true classes, -1 for unknown inputs.
        class_ids: (n,) int, decisions, -1 where rejected.
        num_classes: N.

    Returns:
        A number in [0, 1]. A class that occurs in neither labels nor decisions
        counts as 0, as in `sklearn.metrics.f1_score`.

    Raises:
        ValueError: no rows, or labels or decisions outside -1...N-1.

    Example:

    >>> round(macro_f1([0, 0, 1, -1], [0, -1, 1, -1], num_classes=2), 4)
    0.7778
    """
    return float(by_class(labels, class_ids, num_classes).f1.mean())


def by_class(
    labels: ArrayLike, class_ids: ArrayLike, num_classes: int
) -> ClassMeasures:
    """Precision, recall, F1 and support of each class and of "unknown".

    Args:
        labels, class_ids, num_classes: as of `macro_f1`.

    Returns:
        `ClassMeasures`; a measure that is 0 / 0 is 0.

    Example:

    >>> found = by_class([0, 0, 1, -1], [0, -1, 1, -1], num_classes=2)
    >>> found.precision, found.recall
    (array([1. , 1. , 0.5]), array([0.5, 1. , 1. ]))
    """
    found = sklearn_metrics.precision_recall_fscore_support(
        *_checked(labels, class_ids, num_classes),
        labels=[*range(num_classes), UNKNOWN],
        zero_division=0.0,
    )
    return ClassMeasures(*found)


def confusion_matrix(
    labels: ArrayLike, class_ids: ArrayLike, num_classes: int
) -> np.ndarray:
    """How often inputs of each class were assigned to each class.

    Args:
        labels, class_ids, num_classes: as of `macro_f1`.

    Returns:
        (N+1, N+1) int64: rows are true classes, columns are decisions; the
        last of each is "unknown".

    Example:

    >>> confusion_matrix([0, 0, 1, -1], [0, -1, 1, -1], num_classes=2)
    array([[1, 0, 1],
           [0, 1, 0],
           [0, 0, 1]])
    """
    return sklearn_metrics.confusion_matrix(
        *_checked(labels, class_ids, num_classes),
        labels=[*range(num_classes), UNKNOWN],
    )


def _checked(labels, class_ids, num_classes):
    checked = [
        check_labels(values, num_classes, allow_unknown=True)
        for values in (labels, class_ids)
    ]
    if len(checked[0]) != len(checked[1]) or not len(checked[0]):
        raise ValueError(
            "There must be at least one decision, and as many decisions as "
            f"labels; got {len(checked[1])} and {len(checked[0])}."
        )
    return checked
