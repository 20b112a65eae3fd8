# SPDX-License-Identifier: Apache-2.0
"""The threshold theta from unknown scores of data that was not trained on.

An input is kept if its unknown score is <= theta. Both rules are those of
split conformal prediction: for exchangeable data the expected rate on new
inputs is at least (true-positive) or at most (false-positive) the one asked.
"""

import math
import warnings

import numpy as np


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


def threshold_for_true_positive_rate(known_scores, rate):
    """Theta that keeps the share `rate` of known inputs.

    The ceil((n+1) * rate)-th smallest of n scores. With fewer examples than
    that rank the largest score is taken, and a warning says so.

    Args:
        known_scores: (n,) unknown scores of known inputs, finite.
        rate: wanted true-positive rate, in (0, 1).

    Returns:
        Theta, a Python float with a float32 value.

    Raises:
        ValueError: no scores, scores that are not finite, a rate outside.

    Example:

    >>> threshold_for_true_positive_rate([5.0, 1.0, 2.0, 4.0, 3.0], 0.5)
    3.0
    """
    scores = _check(known_scores, rate, "true_positive_rate")
    # Without the tolerance, 0.95 * 20 would round up to rank 20.
    rank = math.ceil((scores.size + 1) * rate - 1e-9)
    if rank > scores.size:
        warnings.warn(
            f"{scores.size} known examples are too few to guarantee a "
            f"true-positive rate of {rate}; the largest of their scores is "
            "taken as theta.",
            stacklevel=2,
        )
        rank = scores.size
    return float(scores[rank - 1])


def threshold_for_false_positive_rate(unknown_scores, rate):
    """The largest theta that keeps at most the share `rate` of unknown inputs.

    Just below the floor((n+1) * rate)-th smallest of n scores. With fewer
    examples than give rank 1 it is below all of them, and a warning says so.

    Args:
        unknown_scores: (n,) unknown scores of unknown inputs, finite.
        rate: wanted false-positive rate, in (0, 1).

    Returns:
        Theta, a Python float with a float32 value.

    Raises:
        ValueError: no scores, scores that are not finite, a rate outside.

    Example:

    >>> theta = threshold_for_false_positive_rate([1.0, 2.0, 3.0, 4.0], 0.4)
    >>> 1.0 < theta < 2.0
    True
    """
    scores = _check(unknown_scores, rate, "false_positive_rate")
    rank = math.floor((scores.size + 1) * rate + 1e-9)
    if rank == 0:
        warnings.warn(
            f"{scores.size} unknown examples are too few to guarantee a "
            f"false-positive rate of {rate}; theta is taken below all of "
            "their scores.",
            stacklevel=2,
        )
        rank = 1
    first_rejected = scores[rank - 1]
    return float(np.nextafter(first_rejected, np.float32(-np.inf)))
