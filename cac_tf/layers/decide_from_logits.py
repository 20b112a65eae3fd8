# SPDX-License-Identifier: Apache-2.0
"""Everything that follows from logits at inference, in one step."""

import typing

import numpy as np
from keras import ops

from cac_tf import ops as fused_ops
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.anchored_distance import check_magnitude
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.layers.open_set_decision import UNKNOWN
from cac_tf.layers.open_set_decision import decide
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.layers.rejection_score import softmin
from cac_tf.precision import full_precision


class LogitsDecision(typing.NamedTuple):
    """What `decide_from_logits` gives for B rows and N classes."""

    distances: typing.Any  # (B, N) float32
    softmin: typing.Any  # (B, N) float32
    gamma: typing.Any  # (B, N) float32 rejection scores
    unknown_score: typing.Any  # (B,) float32, the smallest gamma
    nearest_class_id: typing.Any  # (B,) int32
    class_id: typing.Any  # (B,) int32, -1 for unknown


def decide_from_logits(logits, threshold, centres=None, magnitude=10.0):
    """Distances, softmin, gamma and the open-set decision of logits.

    The layers `AnchoredDistance`, `RejectionScore` and `OpenSetDecision` in
    one function, which takes one step where the fused operation can be used
    (`cac_tf.ops`). It cannot be differentiated there.

    `OpenSetClassifier` does not use it: theta is a score of its own
    calibration data, so the scores that it is compared with must come from
    the same operations, to the last bit, as those of an exported model.

    Args:
        logits: (B, D), no activation.
        threshold: theta, a scalar or one for each row.
        centres: (N, D) class means, N >= 2; by default the anchors.
        magnitude: length of the anchors, > 0.

    Returns:
        `LogitsDecision`. A row with a logit that is not finite has NaN scores
        and is unknown.

    Raises:
        ValueError: shapes that do not fit, fewer than two classes.

    Example:

    >>> import numpy as np
    >>> from cac_tf.layers import decide_from_logits
    >>> logits = np.float32([[9.0, 0.0], [5.0, 5.0]])
    >>> np.asarray(decide_from_logits(logits, threshold=1.0).class_id)
    array([ 0, -1], dtype=int32)
    """
    logits = full_precision(logits)
    if len(logits.shape) != 2:
        raise ValueError(
            f"logits must have shape (batch, width); got {tuple(logits.shape)}."
        )
    width = logits.shape[1]
    if centres is not None:
        centres = ops.cast(centres, logits.dtype)
        if len(centres.shape) != 2 or centres.shape[1] != width:
            raise ValueError(
                f"centres must have shape (classes, {width}); got "
                f"{tuple(centres.shape)}."
            )
    num_classes = width if centres is None else centres.shape[0]
    if width is None or num_classes is None:
        raise ValueError(
            "The number of logits and of centres must be known when the "
            f"function is traced; got {width} and {num_classes}."
        )
    if num_classes < 2:
        raise ValueError(f"There must be two classes; got {num_classes}.")
    check_magnitude(magnitude)
    threshold = ops.cast(threshold, logits.dtype)
    rows = logits.shape[0]
    if len(threshold.shape) > 1 or (
        len(threshold.shape) == 1
        and None not in (rows, threshold.shape[0])
        and threshold.shape[0] != rows
    ):
        raise ValueError(
            f"threshold must be a scalar or one for each of {rows} rows; got "
            f"shape {tuple(threshold.shape)}."
        )
    binding = fused_ops.binding_for(logits)
    if binding is not None:
        return LogitsDecision(
            *binding.decide_from_logits(
                logits, centres, threshold, float(magnitude)
            )
        )
    if centres is None:
        distances = anchored_distances(logits, magnitude)
    else:
        distances = dense_distances(logits, centres)
    # Compilers do not agree on what NaN becomes in a minimum: it is put in
    # afterwards.
    is_finite = ops.all(ops.isfinite(distances), axis=-1)
    is_finite_row = ops.expand_dims(is_finite, -1)
    distances = ops.where(is_finite_row, distances, 0.0)
    gamma = rejection_scores(distances)
    return LogitsDecision(
        distances=ops.where(is_finite_row, distances, np.nan),
        softmin=ops.where(is_finite_row, softmin(distances), np.nan),
        gamma=ops.where(is_finite_row, gamma, np.nan),
        unknown_score=ops.where(
            is_finite, ops.min(gamma, axis=-1, initial=np.inf), np.nan
        ),
        nearest_class_id=nearest_class(gamma),
        class_id=ops.where(is_finite, decide(gamma, threshold), UNKNOWN),
    )
