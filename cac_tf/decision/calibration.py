# SPDX-License-Identifier: Apache-2.0
"""The threshold from unknown scores of data not used for training.

An input is accepted if its unknown score is <= the threshold. Both rules are
those of split conformal prediction: for exchangeable data the expected rate on
new inputs is at least (true-positive) or at most (false-positive) the one
wanted.

The threshold lies between two scores, never on one: the last bits of a score
depend on the size of its batch and on the runtime, and an input must get the
same decision alone, in any batch, in Python and in an exported graph.
"""

import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from cac_tf.labels import check_labels

# Some runtimes treat smaller numbers as zero, others do not.
_SMALLEST_NORMAL = float(np.finfo("float32").tiny)


def _check(scores, rate, name):
    scores = np.asarray(scores, dtype="float32").ravel()
    if scores.size == 0:
        kind = "known" if name == "true_positive_rate" else "unknown"
        raise ValueError(
            f"Calibration by {name} needs at least one {kind} example."
        )
    if not np.isfinite(scores).all():
        raise ValueError("Unknown scores must be finite.")
    if not 0.0 < rate < 1.0:
        raise ValueError(f"{name} must be in (0, 1); got {rate!r}.")
    return np.sort(scores)


def _between(accepted, rejected):
    """A float32 between two scores, as far from both as possible."""
    middle = np.float32((np.float64(accepted) + np.float64(rejected)) / 2.0)
    if 0 < abs(middle) < _SMALLEST_NORMAL:
        # A runtime that treats such numbers as zero must decide alike.
        return math.copysign(_SMALLEST_NORMAL, float(middle))
    # For two scores that are adjacent float32 numbers.
    return float(np.clip(middle, accepted, np.nextafter(rejected, accepted)))


def _above(edge, other):
    """A float32 above the largest score.

    Above it by half the gap to the next smaller score or, if the two are
    equal, by a thousandth of its size.
    """
    gap = abs(np.float64(edge) - np.float64(other)) / 2.0
    gap = gap or max(abs(float(edge)) * 1e-3, _SMALLEST_NORMAL)
    largest = np.finfo("float32").max
    threshold = np.float32(np.clip(np.float64(edge) + gap, -largest, largest))
    # Half of the gap between two adjacent numbers is rounded away.
    threshold = max(threshold, np.nextafter(edge, largest))
    is_denormal = 0 < abs(threshold) < _SMALLEST_NORMAL
    return _SMALLEST_NORMAL if is_denormal else float(threshold)


def threshold_for_true_positive_rate(
    known_scores: ArrayLike, rate: float
) -> float:
    """The threshold that accepts the share `rate` of known inputs.

    Midway between the ceil((n+1) * rate)-th smallest of n scores and the next
    larger one. With fewer examples than that rank the threshold lies above all
    of them, and a warning says so.

    Args:
        known_scores: (n,) unknown scores of known inputs, finite.
        rate: wanted true-positive rate, in (0, 1).

    Returns:
        The threshold, a Python float with a float32 value.

    Raises:
        ValueError: no scores, scores that are not finite, or a rate outside
            (0, 1).

    Example:

    >>> threshold_for_true_positive_rate([5.0, 1.0, 2.0, 4.0, 3.0], 0.5)
    3.5
    """
    scores = _check(known_scores, rate, "true_positive_rate")
    # Without the tolerance, 0.95 * 20 would round up to rank 20.
    rank = max(math.ceil((scores.size + 1) * rate - 1e-9), 1)
    if rank > scores.size:
        warnings.warn(
            f"{scores.size} known examples are too few to guarantee a "
            f"true-positive rate of {rate}; the threshold is taken above all "
            "of their scores.",
            stacklevel=2,
        )
        rank = scores.size
    accepted = scores[rank - 1]
    larger = scores[scores > accepted]
    if larger.size:
        return _between(accepted, larger[0])
    smaller = scores[scores < accepted]
    return _above(accepted, smaller[-1] if smaller.size else accepted)


def threshold_for_false_positive_rate(
    unknown_scores: ArrayLike, rate: float
) -> float:
    """The largest threshold that accepts at most the share `rate` of unknowns.

    Midway between the floor((n+1) * rate)-th smallest of n scores, which is
    rejected, and the next smaller one. With fewer examples than give rank 1
    the threshold lies below all of them, and a warning says so.

    Args:
        unknown_scores: (n,) unknown scores of unknown inputs, finite.
        rate: wanted false-positive rate, in (0, 1).

    Returns:
        The threshold, a Python float with a float32 value.

    Raises:
        ValueError: no scores, scores that are not finite, or a rate outside
            (0, 1).

    Example:

    >>> threshold_for_false_positive_rate([1.0, 2.0, 3.0, 4.0], 0.4)
    1.5
    """
    scores = _check(unknown_scores, rate, "false_positive_rate")
    rank = min(math.floor((scores.size + 1) * rate + 1e-9), scores.size)
    if rank == 0:
        warnings.warn(
            f"{scores.size} unknown examples are too few to guarantee a "
            f"false-positive rate of {rate}; the threshold is taken below all "
            "of their scores.",
            stacklevel=2,
        )
        rank = 1
    rejected = scores[rank - 1]
    smaller = scores[scores < rejected]
    if smaller.size:
        return _between(smaller[-1], rejected)
    # Mirrored, so that "above" is below.
    larger = scores[scores > rejected]
    return -_above(-rejected, -larger[0] if larger.size else -rejected)


def thresholds_by_class(
    rule: Callable[[np.ndarray, float], float],
    scores: ArrayLike,
    class_ids: ArrayLike,
    num_classes: int,
    rate: float,
) -> np.ndarray:
    """One threshold for each predicted class.

    Args:
        rule: one of the two functions above.
        scores: (n,) unknown scores.
        class_ids: (n,) predicted class of each example.
        num_classes: N.
        rate: the wanted rate, as for the rule.

    Returns:
        (N,) float32. A class that is predicted for no example gets the
        threshold of all examples together, and a warning says so.

    Example:

    >>> thresholds_by_class(threshold_for_true_positive_rate,
    ...     [1.0, 2.0, 3.0, 7.0, 8.0, 9.0], [0, 0, 0, 1, 1, 1], 2, 0.5)
    array([2.5, 8.5], dtype=float32)
    """
    scores = np.asarray(scores)
    predicted: np.ndarray = check_labels(class_ids, num_classes)
    thresholds = np.empty(num_classes, "float32")
    absent = []
    for class_id in range(num_classes):
        own = predicted == class_id
        if not own.any():
            absent.append(class_id)
        thresholds[class_id] = rule(scores[own] if own.any() else scores, rate)
    if absent:
        warnings.warn(
            f"No calibration example was predicted as the classes {absent}; "
            "they get the threshold of all examples together.",
            stacklevel=2,
        )
    return thresholds
