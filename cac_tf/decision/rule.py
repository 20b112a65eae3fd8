# SPDX-License-Identifier: Apache-2.0
"""The rule by which an input is accepted or rejected (equation 9).

Written once: prediction, evaluation, reports and exported graphs all call it.
The functions take NumPy arrays and tensors of any framework.
"""

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.annotations import Tensor
from cac_tf.labels import UNKNOWN

# Arrays do without it.
ops = lazy.module("keras.ops")


def accepts(unknown_score: Tensor, threshold: Tensor) -> Tensor:
    """Whether inputs are accepted: unknown score <= the threshold.

    Where either is NaN, the input is rejected.

    Args:
        unknown_score: (B,) float32, larger = more unknown.
        threshold: a float32 scalar, or (B,), one for each input.

    Returns:
        (B,) bool.

    Example:

    >>> accepts(np.float32([0.1, 0.9, np.nan]), np.float32(0.5))
    array([ True, False, False])
    """
    return unknown_score <= threshold


def threshold_of_rows(threshold: Tensor, predicted_class_id: Tensor) -> Tensor:
    """The threshold that each input's score is compared with.

    Args:
        threshold: a scalar, or (N,), one for each class.
        predicted_class_id: (B,) int32 in 0...N-1.

    Returns:
        A scalar, or (B,): the threshold of each input's predicted class.

    Example:

    >>> thresholds = np.float32([0.5, 2.0])
    >>> np.asarray(threshold_of_rows(thresholds, np.int32([1, 1, 0])))
    array([2. , 2. , 0.5], dtype=float32)
    """
    if isinstance(threshold, (list, tuple)):
        threshold = np.asarray(threshold, "float32")
    if not getattr(threshold, "shape", ()):
        return threshold
    take = np.take if _are_arrays(threshold, predicted_class_id) else ops.take
    return take(threshold, predicted_class_id, axis=0)


def decide(
    unknown_score: Tensor,
    predicted_class_id: Tensor,
    threshold: Tensor,
    is_valid: Tensor = True,
) -> Tensor:
    """The predicted class of accepted inputs, -1 for rejected ones.

    Args:
        unknown_score: (B,) float32, larger = more unknown.
        predicted_class_id: (B,) int32.
        threshold: a scalar or (B,); (N,) thresholds of the classes first go
            through `threshold_of_rows`.
        is_valid: (B,) bool, false for inputs to reject whatever their score.

    Returns:
        (B,) int32.

    Example:

    >>> decide(np.float32([0.1, 0.9]), np.int32([3, 4]), np.float32(0.5))
    array([ 3, -1], dtype=int32)
    """
    is_accepted = accepts(unknown_score, threshold) & is_valid
    if _are_arrays(is_accepted, predicted_class_id):
        return np.where(is_accepted, predicted_class_id, np.int32(UNKNOWN))
    return ops.where(is_accepted, predicted_class_id, UNKNOWN)


def _are_arrays(*values):
    """Whether NumPy computes them: a tensor's operation costs far more."""
    return all(isinstance(value, np.ndarray) for value in values)


def check_threshold(
    threshold: ArrayLike,
    num_classes: int | None = None,
    lowest: float | None = None,
) -> np.ndarray:
    """The threshold as float32, checked.

    Args:
        threshold: a finite number, or N of them, one for each class.
        num_classes: N, where it is known.
        lowest: no score is below it, where there is such a number.

    Returns:
        A float32 array of shape () or (N,). Denormal numbers become the
        normal number next to them.

    Raises:
        ValueError: something that is not a number, is not finite, is not one
            number for each class, or is below every possible score.

    Example:

    >>> check_threshold(0.25)
    array(0.25, dtype=float32)
    """
    try:
        values = np.asarray(threshold, dtype="float32")
    except (TypeError, ValueError, OverflowError):
        values = None
    if (
        values is None
        or isinstance(threshold, (str, bytes, bool))
        or values.ndim > 1
        or (num_classes is None and not values.size)
    ):
        raise ValueError(
            "threshold must be a number, or one number per class; got "
            f"{threshold!r}."
        )
    if values.ndim == 1 and num_classes not in (None, len(values)):
        raise ValueError(
            "threshold must be one number, or one for each of the "
            f"{num_classes} classes; got {len(values)}."
        )
    if not np.isfinite(values).all():
        raise ValueError(
            f"threshold must be finite as a float32; got {threshold!r}."
        )
    if lowest is not None and values.min() < lowest:
        raise ValueError(
            f"No unknown score is below {lowest:g}, so a threshold of "
            f"{threshold!r} would reject every input."
        )
    # Some processors take these for 0, and others do not.
    smallest = np.finfo("float32").tiny
    is_denormal = (values != 0) & (np.abs(values) < smallest)
    return np.where(is_denormal, np.sign(values) * smallest, values).astype(
        "float32"
    )
