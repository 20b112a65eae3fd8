# SPDX-License-Identifier: Apache-2.0
"""The threshold from unknown scores of data not used for training.

An input is accepted if its unknown score is <= the threshold. Both rules are
those of split conformal prediction: for exchangeable data the expected rate on
new inputs is at least (true-positive) or at most (false-positive) the one
wanted.

The threshold lies between two scores that differ by more than rounding, never
on one: the last bits of a score depend on the size of its batch and on the
runtime, and an input must get the same decision alone, in any batch, in Python
and in an exported graph.
"""

import math
import warnings
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cac_tf.decision.accepted_share import AcceptedShare
from cac_tf.labels import UNKNOWN
from cac_tf.labels import check_labels

# What `threshold_maximizing` can make largest.
MEASURES = ("macro_f1", "balanced_accuracy")

# Some runtimes treat smaller numbers as zero, others do not.
_SMALLEST_NORMAL = float(np.finfo("float32").tiny)
# So many names are in a warning.
_MOST_NAMED = 10
# Of a score, whatever it is computed from.
_ROUNDING = 4 * float(np.finfo("float32").eps)


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


def _rounding(scores, resolution):
    """(n,) differences to the next larger score that are mere rounding."""
    return resolution + _ROUNDING * np.abs(scores) + 2 * _SMALLEST_NORMAL


def _below(scores, rank, resolution):
    """As `_beyond`, below; but above 0 if all scores are.

    No score below 0 may be possible.
    """
    threshold = -_beyond(-scores[::-1], len(scores) - rank + 1, resolution)
    half = float(scores[0]) / 2
    return max(threshold, half) if half >= _SMALLEST_NORMAL else threshold


def _beyond(scores, rank, resolution):
    """A float32 above the rank-th smallest score and all that are as large.

    Args:
        scores: ascending float32.
        rank: from 1 on.
        resolution: see `threshold_for_true_positive_rate`.
    """
    scores = scores.astype("float64")
    rounding = _rounding(scores, resolution)
    is_gap = np.diff(scores) > rounding[:-1]
    gaps = np.flatnonzero(is_gap[rank - 1 :]) + rank - 1
    if len(gaps):
        middle = np.float32((scores[gaps[0]] + scores[gaps[0] + 1]) / 2.0)
        is_denormal = 0 < abs(middle) < _SMALLEST_NORMAL
        # A runtime that treats such numbers as zero must decide alike.
        tiny = math.copysign(_SMALLEST_NORMAL, float(middle))
        return tiny if is_denormal else float(middle)
    # Above the largest, by half the gap to the next smaller one or, if there
    # is none, by a thousandth of its size.
    largest = scores[-1]
    gap = max(abs(largest) * 1e-3, rounding[-1])
    if is_gap.any():
        gap = (largest - scores[np.flatnonzero(is_gap)[-1]]) / 2.0
    limit = float(np.finfo("float32").max)
    return float(np.float32(np.clip(largest + gap, -limit, limit)))


def threshold_for_true_positive_rate(
    known_scores: ArrayLike, rate: float, resolution: float = 0.0
) -> float:
    """The threshold that accepts a share `rate` of known inputs.

    Midway between the ceil((n+1) * rate)-th smallest of n scores and the next
    larger one that differs by more than rounding. If there are fewer examples
    than that rank, the threshold lies above all of them, with a warning.

    Args:
        known_scores: (n,) unknown scores of known inputs, finite.
        rate: desired true-positive rate, in (0, 1).
        resolution: differences between scores up to this size count as rounding
            (`Score.RESOLUTION`), as do a few units in the last place.

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
        rank = scores.size
        warnings.warn(
            f"{scores.size} known examples are too few to guarantee a "
            f"true-positive rate of {rate}, which requires "
            f"{fewest_examples(rate)}; the threshold is set above all of "
            f"their scores and accepts {AcceptedShare(rank, rank).in_words()} "
            "of new known inputs (with 90 % probability).",
            stacklevel=2,
        )
    return _beyond(scores, rank, resolution)


def threshold_for_false_positive_rate(
    unknown_scores: ArrayLike, rate: float, resolution: float = 0.0
) -> float:
    """The largest threshold that accepts at most a share `rate` of unknowns.

    Midway between the floor((n+1) * rate)-th smallest of n scores, which is
    rejected, and the next smaller one that differs by more than rounding. If
    there are too few examples for rank 1, the threshold lies below all of them,
    with a warning.

    Args:
        unknown_scores: (n,) unknown scores of unknown inputs, finite.
        rate: desired false-positive rate, in (0, 1).
        resolution: as for `threshold_for_true_positive_rate`.

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
            f"false-positive rate of {rate}, which requires "
            f"{_fewest(threshold_for_false_positive_rate, rate)}; the "
            "threshold is set below all of their scores and accepts "
            f"{AcceptedShare(0, scores.size).in_words()} of new unknown "
            "inputs (with 90 % probability).",
            stacklevel=2,
        )
        rank = 1
    return _below(scores, rank, resolution)


def fewest_examples(true_positive_rate: float) -> int:
    """Number of known examples from which on a threshold guarantees a rate.

    Raises:
        ValueError: a rate outside (0, 1).

    Example:

    >>> fewest_examples(0.95), fewest_examples(0.8)
    (19, 4)
    """
    rate = true_positive_rate
    if not 0.0 < rate < 1.0:
        raise ValueError(f"true_positive_rate must be in (0, 1); got {rate!r}.")
    return math.ceil(rate / (1.0 - rate) - 1e-9)


def _fewest(rule, rate):
    if rule is threshold_for_false_positive_rate:
        rate = 1.0 - rate
    return fewest_examples(rate)


def thresholds_by_class(
    rule: Callable[[np.ndarray, float, float], float],
    scores: ArrayLike,
    class_ids: ArrayLike,
    class_names: Sequence[str],
    rate: float,
    resolution: float = 0.0,
) -> np.ndarray:
    """One threshold for each predicted class.

    Args:
        rule: one of the two functions above.
        scores: (n,) unknown scores.
        class_ids: (n,) predicted class of each example.
        class_names: N names.
        rate, resolution: as for the rule.

    Returns:
        (N,) float32. A class that is predicted for too few examples to
        guarantee the rate gets the threshold of all examples together; one
        warning names all such classes.

    Example:

    >>> thresholds_by_class(threshold_for_true_positive_rate,
    ...     [1.0, 2.0, 3.0, 7.0, 8.0, 9.0], [0, 0, 0, 1, 1, 1], "ab", 0.5)
    array([2.5, 8.5], dtype=float32)
    """
    scores = np.asarray(scores)
    num_classes = len(class_names)
    predicted: np.ndarray = check_labels(class_ids, num_classes)
    counts = np.bincount(predicted, minlength=num_classes)
    is_few = counts < (_fewest(rule, rate) if 0.0 < rate < 1.0 else 0)
    if not is_few.any():
        common = np.nan
    else:
        few = [
            f"{class_names[i]!r} ({counts[i]})"
            for i in np.flatnonzero(is_few)[:_MOST_NAMED]
        ]
        more = is_few.sum() - len(few)
        warnings.warn(
            f"To guarantee a rate of {rate} for each class, at least "
            f"{_fewest(rule, rate)} examples must be predicted as that class. "
            "These classes have fewer and share one threshold, computed from "
            "all examples: "
            f"{', '.join(few)}{f' and {more} more' if more else ''}.",
            stacklevel=2,
        )
        common = rule(scores, rate, resolution)
    thresholds = [
        common if few else rule(scores[predicted == i], rate, resolution)
        for i, few in enumerate(is_few)
    ]
    return np.asarray(thresholds, "float32")


def threshold_maximizing(
    measure: str,
    scores: ArrayLike,
    labels: ArrayLike,
    class_ids: ArrayLike,
    num_classes: int,
    *,
    unknown_share: float | None = None,
    resolution: float = 0.0,
) -> float:
    """The threshold at which a measure of decisions is largest.

    Every threshold between two scores is tried. Rows can be weighted so that
    the measure is that of a stream with an expected share of unknown inputs.

    Args:
        measure: "macro_f1", the mean of F1 over N known classes and "unknown"
            (`metrics.macro_f1`); or "balanced_accuracy", the mean of the share
            of known inputs that are accepted and that of unknown inputs that
            are rejected.
        scores: (n,) unknown scores of known and unknown examples.
        labels: (n,) class indices, -1 for unknown examples.
        class_ids: (n,) predicted classes, before rejection.
        num_classes: N.
        unknown_share: in (0, 1); None: as among the examples.
        resolution: as of `threshold_for_true_positive_rate`.

    Returns:
        The threshold, a Python float with a float32 value. Of several that are
        equally good it is the one that accepts fewest.

    Raises:
        ValueError: another measure, no known or no unknown example, scores
            that are not finite, or a share outside (0, 1).

    Example:

    >>> threshold_maximizing("macro_f1", [1.0, 2.0, 5.0, 4.0, 6.0],
    ...     [0, 1, 1, -1, -1], [0, 1, 1, 0, 1], num_classes=2)
    3.0
    """
    if measure not in MEASURES:
        raise ValueError(
            f"measure must be one of {', '.join(MEASURES)}; got {measure!r}."
        )
    if unknown_share is not None and not 0.0 < unknown_share < 1.0:
        raise ValueError(
            f"unknown_share must be in (0, 1); got {unknown_share!r}."
        )
    truth = check_labels(labels, num_classes, allow_unknown=True)
    values = np.asarray(scores, "float32")
    is_unknown = truth == UNKNOWN
    if is_unknown.all() or not is_unknown.any():
        kind = "known" if is_unknown.all() else "unknown"
        raise ValueError(f"maximize needs at least one {kind} example.")
    if not np.isfinite(values).all():
        raise ValueError("Unknown scores must be finite.")
    weights = np.ones(len(values))
    if unknown_share is not None:
        weights[is_unknown] = unknown_share / is_unknown.mean()
        weights[~is_unknown] = (1.0 - unknown_share) / (~is_unknown).mean()
    order = np.argsort(values, kind="stable")
    ordered, weights = values[order], weights[order]
    truth, predicted = truth[order], np.asarray(class_ids)[order]

    def accepted_of(rows):
        """How many of some rows, by how many of all are accepted."""
        return np.append(0.0, np.cumsum(weights * rows))

    is_known = truth != UNKNOWN
    of_unknown = accepted_of(~is_known)
    if measure == "balanced_accuracy":
        of_known = accepted_of(is_known)
        measures = of_known / of_known[-1] - of_unknown / of_unknown[-1]
    else:
        rejected = weights.sum() - accepted_of(1)
        right = of_unknown[-1] - of_unknown
        measures = 2.0 * right / (rejected + of_unknown[-1])
        for k in range(num_classes):
            own = accepted_of(predicted == k)
            right = accepted_of((predicted == k) & (truth == k))
            support = (weights * (truth == k)).sum()
            measures += (
                2.0 * right / np.maximum(own + support, _SMALLEST_NORMAL)
            )
    # A threshold does not part scores that are equal but for rounding.
    exact = ordered.astype("float64")
    is_gap = np.diff(exact) > _rounding(exact, resolution)[:-1]
    is_possible = np.append(True, np.append(is_gap, True))
    accepted = int(np.argmax(np.where(is_possible, measures, -1.0)))
    if accepted == 0:
        return _below(ordered, 1, resolution)
    return _beyond(ordered, accepted, resolution)
