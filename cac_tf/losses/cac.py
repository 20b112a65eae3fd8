# SPDX-License-Identifier: Apache-2.0
"""The Class Anchor Clustering loss and its two terms (paper, equations 3-5).

All functions are per example: labels (B,) and distances (B, N) in, (B,) out.
A label that is no whole number in 0...N-1 gives NaN in its own row, because
nothing can be raised inside compiled code and a plausible number would hide
the mistake; `OpenSetClassifier.fit` checks labels before they get here. (The
fused operation can raise, and does: see `cac_loss_from_logits`.)
"""

import keras
import numpy as np
from keras import ops

from cac_tf import ops as fused_ops
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.anchored_distance import check_magnitude
from cac_tf.ops.loader import set_stock_loss
from cac_tf.precision import full_precision


def _check_anchor_weight(anchor_weight):
    if not (np.isfinite(anchor_weight) and anchor_weight >= 0):
        raise ValueError(
            f"anchor_weight must be finite and >= 0; got {anchor_weight!r}."
        )


def _label_vector(labels, scores, name):
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
            f"got shape {tuple(labels.shape)}. One-hot labels are not taken: "
            "pass argmax(labels, axis=-1)."
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


def _match_labels(labels, distances):
    """The (B, N) mask of each row's own class and the (B,) valid labels."""
    labels = _label_vector(labels, distances, "distances")
    classes = ops.arange(distances.shape[-1], dtype=distances.dtype)
    labels = ops.expand_dims(ops.cast(labels, distances.dtype), -1)
    is_label = ops.equal(labels, classes)
    return is_label, ops.any(is_label, axis=-1)


def anchor_loss(labels, distances):
    """Distance to the own class's anchor, `d_y` (equation 4).

    Args:
        labels: (B,) or (B, 1) class indices.
        distances: (B, N) distances, >= 0.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> from cac_tf.losses import anchor_loss
    >>> np.asarray(anchor_loss([1], [[3.0, 4.0]]))
    array([4.], dtype=float32)
    """
    distances = full_precision(distances)
    is_label, is_valid = _match_labels(labels, distances)
    own = ops.sum(ops.where(is_label, distances, 0.0), axis=-1)
    return ops.where(is_valid, own, np.nan)


def tuplet_loss(labels, distances):
    r"""\\(\log(1 + \sum_{j \ne y} e^{d_y - d_j})\\) (equation 3).

    Finite for every finite distance; exact also where it is tiny.

    Args:
        labels: (B,) or (B, 1) class indices.
        distances: (B, N) distances, >= 0.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> from cac_tf.losses import tuplet_loss
    >>> np.round(np.asarray(tuplet_loss([0, 0], [[3.0, 4.0], [1e6, 0.0]])), 4)
    array([3.133e-01, 1.000e+06], dtype=float32)
    """
    distances = full_precision(distances)
    is_label, is_valid = _match_labels(labels, distances)
    own = ops.sum(ops.where(is_label, distances, 0.0), axis=-1, keepdims=True)
    # The own class enters as the constant 0, which is the "1 +" of the
    # equation; this keeps its gradient a plain sum over the other classes.
    margin = ops.where(is_label, 0.0, own - distances)
    top = ops.max(margin, axis=-1, keepdims=True, initial=-1.0)
    is_top = ops.equal(margin, top)
    ties = ops.sum(ops.cast(is_top, margin.dtype), axis=-1) - 1.0
    rest = ops.sum(ops.where(is_top, 0.0, ops.exp(margin - top)), axis=-1)
    loss = ops.squeeze(top, axis=-1) + ops.log1p(rest + ties)
    return ops.where(is_valid, loss, np.nan)


def cac_loss(labels, distances, anchor_weight=0.1):
    """Tuplet loss + `anchor_weight` * anchor loss (equation 5).

    Args:
        labels: (B,) or (B, 1) class indices.
        distances: (B, N) distances, >= 0.
        anchor_weight: weight of the anchor loss (the paper's lambda), >= 0.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> from cac_tf.losses import cac_loss
    >>> np.round(np.asarray(cac_loss([0], [[3.0, 4.0]])), 4)
    array([0.6133], dtype=float32)
    """
    _check_anchor_weight(anchor_weight)
    return tuplet_loss(labels, distances) + anchor_weight * anchor_loss(
        labels, distances
    )


def _whole_labels(labels):
    """Labels as int32 or int64; -1 in place of what is no whole number."""
    dtype = keras.backend.standardize_dtype(labels.dtype)
    if dtype in ("int32", "int64"):
        return labels
    if dtype == "uint64":
        # What is too large becomes negative, which no class is.
        return ops.cast(labels, "int64")
    if "float" in dtype:
        is_whole = ops.logical_and(
            ops.equal(labels, ops.floor(labels)), ops.abs(labels) < 2.0**31
        )
        labels = ops.where(is_whole, labels, -ops.ones_like(labels))
    return ops.cast(labels, "int32")


def _anchor_and_tuplet_loss(labels, logits, magnitude):
    distances = anchored_distances(logits, magnitude)
    return anchor_loss(labels, distances), tuplet_loss(labels, distances)


set_stock_loss(_anchor_and_tuplet_loss)


def cac_loss_from_logits(
    labels, logits, magnitude=10.0, anchor_weight=0.1, validate=True
):
    """The CAC loss straight from logits, while the centres are anchors.

    Equals `cac_loss(labels, anchored_distances(logits, magnitude))`. Where
    the fused operation can be used (`cac_tf.ops`), it takes one step, and
    float32 is its type; otherwise it is composed from stock operations.

    Args:
        labels: (B,) or (B, 1) class indices.
        logits: (B, N), no activation.
        magnitude: length of the anchors (the paper's alpha), > 0.
        anchor_weight: weight of the anchor loss (the paper's lambda), >= 0.
        validate: whether the fused operation raises an error where it can, on
            TensorFlow outside XLA and on the CPU, when a label is no class or
            logits are not finite; otherwise that row's loss is NaN.

    Returns:
        (B,) losses, at least float32; NaN where label or logits are invalid.

    Raises:
        ValueError: shapes that do not fit, one-hot labels, an anchor weight
            or a magnitude out of range.
        tensorflow.errors.InvalidArgumentError: see `validate`.

    Example:

    >>> import numpy as np
    >>> from cac_tf.losses import cac_loss_from_logits
    >>> np.round(np.asarray(cac_loss_from_logits([0], [[8.0, 0.0]])), 4)
    array([0.2], dtype=float32)
    """
    _check_anchor_weight(anchor_weight)
    check_magnitude(magnitude)
    logits = full_precision(logits)
    labels = _label_vector(labels, logits, "logits")
    binding = fused_ops.binding_for(logits)
    if binding is not None:
        return binding.anchored_cac_loss(
            _whole_labels(labels), logits, magnitude, anchor_weight, validate
        ).loss
    anchor, tuplet = _anchor_and_tuplet_loss(labels, logits, magnitude)
    return tuplet + anchor_weight * anchor


def weights_of_counted(is_counted, sample_weight, reduction):
    """Sample weights under which only the counted rows form the loss.

    Args:
        is_counted: (B,) or (B, 1) bool; the others get weight 0.
        sample_weight: the caller's (B,) weights or None.
        reduction: of the loss. A mean over the batch is scaled up so that it
            becomes the mean over the counted rows.

    Returns:
        (B,) float32 weights.
    """
    weights = ops.reshape(ops.cast(is_counted, "float32"), (-1,))
    if reduction in ("sum_over_batch_size", "mean"):
        total = ops.cast(ops.shape(weights)[0], "float32")
        weights = weights * ops.divide_no_nan(total, ops.sum(weights))
    if sample_weight is not None:
        weights = weights * ops.reshape(
            ops.cast(sample_weight, "float32"), (-1,)
        )
    return weights


@keras.saving.register_keras_serializable(package="CacTf")
class CACLoss(keras.losses.Loss):
    """The Class Anchor Clustering loss on distances (equation 5).

    A larger `anchor_weight` pulls examples closer to their anchor; a smaller
    one leaves more to the order of the distances. The paper's study finds
    little difference between 0.05 and 0.8.

    Args:
        anchor_weight: weight of the anchor loss (the paper's lambda), >= 0.
        ignore_class: a label whose rows have no part in the loss, for
            validation data that carry unknowns labelled -1; by default every
            label outside 0...N-1 makes its row's loss NaN.
        reduction: as for every Keras loss.
        name: name of the loss.
        dtype: type of the computation, float32 by default.

    Call arguments:
        y_true: (B,) or (B, 1) class indices; not one-hot.
        y_pred: (B, N) distances of `AnchoredDistance`.
        sample_weight: optional (B,).

    Example:

    >>> import numpy as np, cac_tf
    >>> loss = cac_tf.losses.CACLoss()
    >>> distances = np.float32([[1.0, 13.0], [9.0, 8.0]])
    >>> round(float(loss(np.array([0, 0]), distances)), 4)
    1.1566
    """

    def __init__(
        self,
        anchor_weight=0.1,
        ignore_class=None,
        reduction="sum_over_batch_size",
        name="cac_loss",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        _check_anchor_weight(anchor_weight)
        self.anchor_weight = float(anchor_weight)
        self.ignore_class = ignore_class

    def __call__(self, y_true, y_pred, sample_weight=None):
        if self.ignore_class is not None:
            y_true = ops.convert_to_tensor(y_true)
            is_counted = ops.not_equal(y_true, self.ignore_class)
            y_true = ops.where(is_counted, y_true, 0)
            sample_weight = weights_of_counted(
                is_counted, sample_weight, self.reduction
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        return cac_loss(y_true, y_pred, self.anchor_weight)

    def get_config(self):
        return {
            **super().get_config(),
            "anchor_weight": self.anchor_weight,
            "ignore_class": self.ignore_class,
        }
