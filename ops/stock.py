# SPDX-License-Identifier: Apache-2.0
"""What the fused operations compute, in stock operations (equations 2, 4, 8).

Losses are per example: labels (B,) and distances or logits (B, N) in, (B,) out.
A label that is not a whole number in 0...N-1 gives NaN in its own row, because
compiled code cannot raise errors and a plausible number would hide the
mistake.
"""

import typing

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.layers.precision import full_precision
from cac_tf.layers.rejection_score import rejection_scores


def label_vector(labels: Tensor, scores: Tensor, name: str) -> Tensor:
    """Labels as (B,), checked against the (B, N) `scores` they belong to."""
    if len(scores.shape) != 2:
        raise ValueError(
            f"{name} must have shape (batch, classes); got "
            f"{tuple(scores.shape)}."
        )
    labels = ops.convert_to_tensor(labels)
    if len(labels.shape) == 2 and labels.shape[-1] == 1:
        labels = ops.squeeze(labels, axis=-1)
    if len(labels.shape) != 1:
        raise ValueError(
            "labels must be class indices of shape (batch,) or (batch, 1); "
            f"got shape {tuple(labels.shape)}. One-hot labels are not "
            "supported: pass argmax(labels, axis=-1)."
        )
    if (
        labels.shape[0] is not None
        and scores.shape[0] is not None
        and labels.shape[0] != scores.shape[0]
    ):
        raise ValueError(
            f"{labels.shape[0]} labels for {scores.shape[0]} rows of {name}."
        )
    return labels


def match_labels(
    labels: Tensor, values: Tensor, name: str = "distances"
) -> tuple[Tensor, Tensor]:
    """(B, N) mask of each row's own class; (B,) mask of valid labels.

    Args:
        labels: (B,) or (B, 1) class indices.
        values: (B, N), what the loss is computed from.
        name: what the values are, for messages.
    """
    labels = label_vector(labels, values, name)
    classes = ops.arange(values.shape[-1], dtype=values.dtype)
    labels = ops.expand_dims(ops.cast(labels, values.dtype), -1)
    is_label = ops.equal(labels, classes)
    return is_label, ops.any(is_label, axis=-1)


def anchor_loss(labels: Tensor, distances: Tensor) -> Tensor:
    """Distance to the own class's anchor, `d_y` (equation 4).

    Args:
        labels: (B,) or (B, 1) class indices.
        distances: (B, N) distances, >= 0.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> from cac_tf.ops.stock import anchor_loss
    >>> np.asarray(anchor_loss([1], [[3.0, 4.0]]))
    array([4.], dtype=float32)
    """
    distances = full_precision(distances)
    is_label, is_valid = match_labels(labels, distances)
    own = ops.sum(ops.where(is_label, distances, 0.0), axis=-1)
    return ops.where(is_valid, own, np.nan)


def tuplet_loss(labels: Tensor, distances: Tensor) -> Tensor:
    r"""\\(\log(1 + \sum_{j \ne y} e^{d_y - d_j})\\) (equation 2).

    Finite for all finite distances, and precise even where it is tiny.

    Args:
        labels: (B,) or (B, 1) class indices.
        distances: (B, N) distances, >= 0.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> from cac_tf.ops.stock import tuplet_loss
    >>> np.round(np.asarray(tuplet_loss([0, 0], [[3.0, 4.0], [1e6, 0.0]])), 4)
    array([3.133e-01, 1.000e+06], dtype=float32)
    """
    distances = full_precision(distances)
    is_label, is_valid = match_labels(labels, distances)
    margins = _own(is_label, distances) - distances
    return ops.where(is_valid, _tuplet_loss(is_label, margins), np.nan)


def _own(is_label, values):
    """(B, 1) values of each row's own class."""
    return ops.sum(ops.where(is_label, values, 0.0), axis=-1, keepdims=True)


def _tuplet_loss(is_label, margins):
    """Equation 2 of the margins d_y - d_j."""
    # The own class enters as the constant 0, which is the "1 +" of the
    # equation; this keeps its gradient a plain sum over the other classes.
    margins = ops.where(is_label, 0.0, margins)
    top = ops.max(margins, axis=-1, keepdims=True, initial=-1.0)
    is_top = ops.equal(margins, top)
    ties = ops.sum(ops.cast(is_top, margins.dtype), axis=-1) - 1.0
    rest = ops.sum(ops.where(is_top, 0.0, ops.exp(margins - top)), axis=-1)
    return ops.squeeze(top, axis=-1) + ops.log1p(rest + ties)


def whole_labels(labels: Tensor) -> Tensor:
    """Labels as int32 or int64; -1 where one is not a whole number."""
    dtype = keras.backend.standardize_dtype(labels.dtype)
    if dtype in ("int32", "int64"):
        return labels
    if dtype == "uint64":
        # Labels that are too large become negative, which no class is.
        return ops.cast(labels, "int64")
    if "float" in dtype:
        is_whole = ops.logical_and(
            ops.equal(labels, ops.floor(labels)), ops.abs(labels) < 2.0**31
        )
        labels = ops.where(is_whole, labels, -ops.ones_like(labels))
    return ops.cast(labels, "int32")


def anchor_and_tuplet_loss(
    labels: Tensor, logits: Tensor, magnitude: float
) -> tuple[Tensor, Tensor]:
    r"""Both losses of logits, (B,) each, precise far from all anchors too.

    There the distances are large and nearly equal: of 1e6, a float32 keeps
    steps of 1/16. But nothing cancels in
    \\(d_y - d_j = (d_y^2 - d_j^2) / (d_y + d_j)
    = 2m (z_j - z_y) / (d_y + d_j)\\), nor in its derivatives.
    """
    logits = full_precision(logits)
    distances = anchored_distances(logits, magnitude)
    is_label, is_valid = match_labels(labels, distances)
    own = _own(is_label, distances)
    # Not 0: no point lies on two anchors.
    sum_of_both = ops.where(is_label, 1.0, own + distances)
    margins = 2.0 * magnitude * (logits - _own(is_label, logits)) / sum_of_both
    own = ops.squeeze(own, axis=-1)
    # A distance that overflows would make margins of 0.
    is_valid = ops.logical_and(is_valid, own < np.inf)
    return (
        ops.where(is_valid, own, np.nan),
        ops.where(is_valid, _tuplet_loss(is_label, margins), np.nan),
    )


class Scores(typing.NamedTuple):
    """Distances to class centers, and what follows from them alone."""

    distances: Tensor  # (B, N)
    gamma: Tensor  # (B, N), equation 8
    unknown_score: Tensor  # (B,), the smallest gamma
    nearest: Tensor  # (B,) int32, the class that has it


def scores_of_distances(distances: Tensor) -> Scores:
    """`Scores` of (B, N) distances."""
    gamma = rejection_scores(distances)
    return Scores(
        distances, gamma, ops.min(gamma, axis=-1), nearest_class(gamma)
    )


def anchored_scores(logits: Tensor, magnitude: float) -> Scores:
    """`Scores` of (B, N) logits, by their distances to the anchors."""
    return scores_of_distances(anchored_distances(logits, magnitude))
