# SPDX-License-Identifier: Apache-2.0
"""The Class Anchor Clustering loss and its two terms.

Equations 2, 4 and 5 of the paper.

All functions are per example: labels (B,) and distances (B, N) in, (B,) out.
A label that is not a whole number in 0...N-1 gives NaN in its own row, because
compiled code cannot raise errors and a plausible number would hide the mistake.
`OpenSetClassifier.fit` checks labels beforehand. (The fused operation can raise
an error, and does: see `cac_loss_from_logits`.)
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf import ops as fused_ops
from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Tensor
from cac_tf.arguments import as_float
from cac_tf.hyperparameters import ANCHOR_WEIGHT
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.anchored_distance import checked_magnitude
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.layers.precision import full_precision
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import is_label
from cac_tf.losses.loss import only_counted
from cac_tf.losses.loss import register
from cac_tf.losses.loss import weights_of_counted
from cac_tf.ops.loader import set_stock_loss


def _checked_anchor_weight(anchor_weight):
    """It as a float, if it can be one."""
    number = as_float(anchor_weight)
    if not 0 <= number < math.inf:
        raise ValueError(
            f"anchor_weight must be finite and >= 0; got {anchor_weight!r}."
        )
    return number


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
            f"got shape {tuple(labels.shape)}. One-hot labels are refused: "
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


def match_labels(
    labels: Tensor, values: Tensor, name: str = "distances"
) -> tuple[Tensor, Tensor]:
    """(B, N) mask of each row's own class; (B,) mask of valid labels.

    Args:
        labels: (B,) or (B, 1) class indices.
        values: (B, N), what the loss is computed from.
        name: what the values are, for messages.
    """
    labels = _label_vector(labels, values, name)
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
    >>> from cac_tf.losses import anchor_loss
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
    >>> from cac_tf.losses import tuplet_loss
    >>> np.round(np.asarray(tuplet_loss([0, 0], [[3.0, 4.0], [1e6, 0.0]])), 4)
    array([3.133e-01, 1.000e+06], dtype=float32)
    """
    return _tuplet_loss(labels, full_precision(distances))


def _tuplet_loss(labels, distances, correction=None):
    """Equation 2; `correction(is_label, own)` is added to the margins.

    The margins are the differences of the own distance and all distances.
    """
    is_label, is_valid = match_labels(labels, distances)
    own = ops.sum(ops.where(is_label, distances, 0.0), axis=-1, keepdims=True)
    margin = own - distances
    if correction is not None:
        margin = margin + correction(is_label, own)
    # The own class enters as the constant 0, which is the "1 +" of the
    # equation; this keeps its gradient a plain sum over the other classes.
    margin = ops.where(is_label, 0.0, margin)
    top = ops.max(margin, axis=-1, keepdims=True, initial=-1.0)
    is_top = ops.equal(margin, top)
    ties = ops.sum(ops.cast(is_top, margin.dtype), axis=-1) - 1.0
    rest = ops.sum(ops.where(is_top, 0.0, ops.exp(margin - top)), axis=-1)
    loss = ops.squeeze(top, axis=-1) + ops.log1p(rest + ties)
    return ops.where(is_valid, loss, np.nan)


def _rounding_of_margins(logits, distances, magnitude):
    r"""What margins lose as differences of rounded distances to the anchors.

    Far from all anchors the distances are large and nearly equal: of 1e6, a
    float32 keeps steps of 1/16. But nothing cancels in
    \\(d_y - d_j = (d_y^2 - d_j^2) / (d_y + d_j)
    = 2m (z_j - z_y) / (d_y + d_j)\\). The loss takes the value from there;
    its gradient by the distances stays.

    Returns:
        A `correction` for `_tuplet_loss`.
    """

    def correction(is_label, own):
        own_logit = ops.sum(
            ops.where(is_label, logits, 0.0), axis=-1, keepdims=True
        )
        # Not 0: no point lies on two anchors.
        sum_of_both = ops.where(is_label, 1.0, own + distances)
        exact = 2.0 * magnitude * (logits - own_logit) / sum_of_both
        return ops.stop_gradient(exact - (own - distances))

    return correction


def cac_loss(
    labels: Tensor, distances: Tensor, anchor_weight: float = ANCHOR_WEIGHT
) -> Tensor:
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
    anchor_weight = _checked_anchor_weight(anchor_weight)
    return tuplet_loss(labels, distances) + anchor_weight * anchor_loss(
        labels, distances
    )


def _whole_labels(labels):
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


def _anchor_and_tuplet_loss(labels, logits, magnitude):
    distances = anchored_distances(logits, magnitude)
    correction = _rounding_of_margins(logits, distances, magnitude)
    return (
        anchor_loss(labels, distances),
        _tuplet_loss(labels, distances, correction),
    )


set_stock_loss(_anchor_and_tuplet_loss)


def cac_loss_from_logits(
    labels: Tensor,
    logits: Tensor,
    magnitude: float = MAGNITUDE,
    anchor_weight: float = ANCHOR_WEIGHT,
    validate: bool = True,
) -> Tensor:
    """The CAC loss straight from logits, while the centers are anchors.

    Equals `cac_loss(labels, anchored_distances(logits, magnitude))`, but keeps
    its precision far from all anchors, where distances round. Where the fused
    operation can be used (`cac_tf.ops`), it is one step in float32; otherwise
    it is composed of stock operations.

    Args:
        labels: (B,) or (B, 1) class indices.
        logits: (B, N), no activation.
        magnitude: length of the anchors (the paper's alpha), > 0.
        anchor_weight: weight of the anchor loss (the paper's lambda), >= 0.
        validate: whether the fused operation raises an error where it can, on
            TensorFlow outside XLA and on the CPU, when a label is not a class
            or logits are not finite; otherwise that row's loss is NaN.

    Returns:
        (B,) losses, at least float32; NaN where label or logits are not valid.

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
    anchor_weight = _checked_anchor_weight(anchor_weight)
    magnitude = checked_magnitude(magnitude)
    logits = full_precision(logits)
    labels = _label_vector(labels, logits, "logits")
    binding = fused_ops.binding_for(logits)
    if binding is not None:
        return binding.anchored_cac_loss(
            _whole_labels(labels), logits, magnitude, anchor_weight, validate
        ).loss
    anchor, tuplet = _anchor_and_tuplet_loss(labels, logits, magnitude)
    return tuplet + anchor_weight * anchor


@register
@keras.saving.register_keras_serializable(package="CacTf")
class CACLoss(Loss):
    """The Class Anchor Clustering loss on distances (equation 5).

    A larger `anchor_weight` pulls examples closer to their anchors; a smaller
    one puts more weight on the order of the distances. The paper's study finds
    little difference between 0.05 and 0.8.

    Args:
        anchor_weight: weight of the anchor loss (the paper's lambda), >= 0.
        ignore_class: a label whose rows are left out of the loss, for
            validation data with unknown inputs labelled -1. By default every
            label outside 0...N-1 makes its row's loss NaN.
        reduction: as for every Keras loss.
        name: name of the loss.
        dtype: type of the computation; at least float32.

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

    NAME, READS = "cac", ("distances",)
    MAY_READ = ("logits", "anchors")

    def __init__(
        self,
        anchor_weight: float = ANCHOR_WEIGHT,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str = "cac_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.anchor_weight = _checked_anchor_weight(anchor_weight)
        self.ignore_class = ignore_class

    def __call__(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        if self.ignore_class is not None:
            y_true = ops.convert_to_tensor(y_true)
            is_counted = ops.logical_not(is_label(y_true, self.ignore_class))
            y_true = ops.where(is_counted, y_true, 0)
            y_true = only_counted(is_counted, y_true)
            y_pred = only_counted(is_counted, y_pred)
            sample_weight = weights_of_counted(
                is_counted, sample_weight, self.reduction
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return cac_loss(y_true, y_pred, self.anchor_weight)

    def of_outputs(
        self,
        labels: Tensor,
        outputs: Outputs,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """As in `Loss`; while the centers are anchors, from the logits."""
        anchors, logits = outputs.get("anchors"), outputs.get("logits")
        is_own_formula = type(self).call is CACLoss.call
        if (
            anchors is None
            or not is_own_formula
            or self.ignore_class is not None
        ):
            return super().of_outputs(labels, outputs, sample_weight)
        # (Of a head in double precision.)
        distances = full_precision(outputs["distances"])
        logits = ops.cast(logits, distances.dtype)
        if fused_ops.binding_for(logits) is None:
            values = self._of_anchors(labels, logits, distances, anchors)
        elif anchors.class_means is None:
            values = self._fused(labels, logits, anchors)
        else:
            values = ops.cond(
                anchors.are_in_force,
                lambda: self._fused(labels, logits, anchors),
                # Not of `distances`: their gradient would always be computed.
                lambda: cac_loss(
                    labels,
                    dense_distances(logits, anchors.class_means),
                    self.anchor_weight,
                ),
            )
        return self.reduce(values, sample_weight)

    def _fused(self, labels, logits, anchors):
        # An invalid row is NaN, as with stock operations: `fit` then says what
        # happened, and a scaled loss may overflow occasionally.
        return cac_loss_from_logits(
            labels,
            logits,
            anchors.magnitude,
            self.anchor_weight,
            validate=False,
        )

    def _of_anchors(self, labels, logits, distances, anchors):
        """Of stock operations; `cac_loss` where they are not in force."""
        rounding = _rounding_of_margins(logits, distances, anchors.magnitude)
        tuplet = _tuplet_loss(
            labels,
            distances,
            lambda *margins: ops.where(
                anchors.are_in_force, rounding(*margins), 0.0
            ),
        )
        return tuplet + self.anchor_weight * anchor_loss(labels, distances)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "anchor_weight": self.anchor_weight,
            "ignore_class": self.ignore_class,
        }
