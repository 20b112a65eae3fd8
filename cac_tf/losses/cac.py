# SPDX-License-Identifier: Apache-2.0
"""The Class Anchor Clustering loss and its two terms, alone and together.

Equations 2, 4 and 5 of the paper. The functions are per example, (B,) out; the
classes reduce. What is invalid gives NaN in its own row: see `ops/stock.py`.
"""

from typing import Any

import keras
from keras import ops

from cac_tf import ops as fused_ops
from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.hyperparameters import ANCHOR_WEIGHT
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.layers.anchored_distance import checked_magnitude
from cac_tf.layers.precision import full_precision
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import checked_weight
from cac_tf.losses.loss import register
from cac_tf.ops.stock import anchor_and_tuplet_loss
from cac_tf.ops.stock import anchor_loss
from cac_tf.ops.stock import label_vector
from cac_tf.ops.stock import tuplet_loss
from cac_tf.ops.stock import whole_labels


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
    >>> from cac_tf.losses.cac import cac_loss
    >>> np.round(np.asarray(cac_loss([0], [[3.0, 4.0]])), 4)
    array([0.6133], dtype=float32)
    """
    anchor_weight = checked_weight(anchor_weight, "anchor_weight")
    return tuplet_loss(labels, distances) + anchor_weight * anchor_loss(
        labels, distances
    )


def cac_loss_from_logits(
    labels: Tensor,
    logits: Tensor,
    magnitude: float = MAGNITUDE,
    anchor_weight: float = ANCHOR_WEIGHT,
    validate: bool = True,
) -> Tensor:
    """The CAC loss computed directly from logits.

    Equals `cac_loss(labels, anchored_distances(logits, magnitude))`, but stays
    precise far from all anchors, where distances round. It is one float32 step
    if the fused operation can be used (`cac_tf.ops`), and composed of stock
    operations otherwise.

    Args:
        labels: (B,) or (B, 1) class indices.
        logits: (B, N), no activation. Half precision is computed in float32,
            and its gradient is rounded once.
        magnitude: length of the anchors (the paper's alpha), > 0.
        anchor_weight: weight of the anchor loss (the paper's lambda), >= 0.
        validate: whether the fused operation raises an error if a label is not
            a class or logits are not finite. This is possible on TensorFlow,
            outside XLA, on the CPU; otherwise that row's loss is NaN.

    Returns:
        (B,) losses, at least float32; NaN where label or logits are not valid.

    Raises:
        ValueError: shapes that do not match, one-hot labels, or an anchor
            weight or magnitude out of range.
        tensorflow.errors.InvalidArgumentError: see `validate`.

    Example:

    >>> import numpy as np
    >>> from cac_tf.losses.cac import cac_loss_from_logits
    >>> np.round(np.asarray(cac_loss_from_logits([0], [[8.0, 0.0]])), 4)
    array([0.2], dtype=float32)
    """
    anchor_weight = checked_weight(anchor_weight, "anchor_weight")
    magnitude = checked_magnitude(magnitude)
    logits = ops.convert_to_tensor(logits)
    labels = label_vector(labels, logits, "logits")
    binding = fused_ops.binding_for(logits)
    if binding is not None:
        return binding.anchored_cac_loss(
            whole_labels(labels), logits, magnitude, anchor_weight, validate
        ).loss
    anchor, tuplet = anchor_and_tuplet_loss(labels, logits, magnitude)
    return tuplet + anchor_weight * anchor


class OfDistances:
    """What losses and metrics of the distances to class centers share.

    Args:
        magnitude: length of the anchors (the paper's alpha), > 0. Without
            effect if `from_distances`.
        from_distances: whether `y_pred` is what `layers.ClassDistances` gives,
            negative distances to centers of its own, in place of logits.
        **kwargs: passed to the base class of Keras.
    """

    READS: tuple[str, ...] = ("logits",)

    def __init__(
        self,
        magnitude: float = MAGNITUDE,
        *,
        from_distances: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.magnitude = checked_magnitude(magnitude)
        self.from_distances = bool(from_distances)
        if self.from_distances:
            self.READS = ("class_distances",)

    def get_config(self) -> Config:
        return {
            **super().get_config(),  # type: ignore[misc]
            "magnitude": self.magnitude,
            "from_distances": self.from_distances,
        }

    def terms(self, labels: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The anchor and the tuplet loss, (B,) each."""
        if not self.from_distances:
            return anchor_and_tuplet_loss(labels, values, self.magnitude)
        distances = -full_precision(values)
        return anchor_loss(labels, distances), tuplet_loss(labels, distances)


@register
@keras.saving.register_keras_serializable(package="CacTf")
class CACLoss(OfDistances, Loss):
    """The Class Anchor Clustering loss (equation 5), for any Keras model.

    It pulls the logits of class y to the anchor `magnitude` * e_y. The largest
    logit is that of the nearest anchor, so Keras' `metrics=["accuracy"]` works.
    A larger `anchor_weight` pulls examples closer to their anchors; a smaller
    one puts more weight on the order of the distances. The paper finds little
    difference between 0.05 and 0.8. The fused operation is used if it is built
    (`cac_tf.ops`).

    Args:
        magnitude: length of the anchors (the paper's alpha), > 0.
        anchor_weight: weight of the anchor loss (the paper's lambda), >= 0.
        from_distances: whether `y_pred` is the output of
            `layers.ClassDistances` instead of logits; `magnitude` then has no
            effect.
        **kwargs: `ignore_class`, `name`, `reduction`, `dtype`: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices; not one-hot.
        y_pred: (B, N) logits, no activation.
        sample_weight: optional (B,).

    Raises:
        ValueError: an argument out of range; labels or logits of the wrong
            shape.

    Example:

    >>> import numpy as np, cac_tf
    >>> loss = cac_tf.losses.CACLoss()
    >>> logits = np.float32([[9.0, 1.0], [3.0, 2.0]])
    >>> round(float(loss(np.array([0, 0]), logits)), 4)
    0.5591
    """

    NAME = "cac"

    def __init__(
        self,
        magnitude: float = MAGNITUDE,
        anchor_weight: float = ANCHOR_WEIGHT,
        *,
        from_distances: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(magnitude, from_distances=from_distances, **kwargs)
        self.anchor_weight = checked_weight(anchor_weight, "anchor_weight")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if self.from_distances:
            anchor, tuplet = self.terms(y_true, y_pred)
            return tuplet + self.anchor_weight * anchor
        # An invalid row is NaN, as with stock operations, and a scaled loss
        # may overflow occasionally.
        return cac_loss_from_logits(
            y_true, y_pred, self.magnitude, self.anchor_weight, validate=False
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "anchor_weight": self.anchor_weight}


@register
# (`metrics` has a class of the same name.)
@keras.saving.register_keras_serializable(package="CacTf.losses")
class AnchorLoss(OfDistances, Loss):
    """The distance to the true class's anchor, the second term of the CAC loss.

    It ignores the other anchors; a row of the paper's Table 4. With learnt
    centers it has a trivial minimum: all centers and all logits at one point.

    Args:
        magnitude, from_distances: as of `CACLoss`.
        **kwargs: see `Loss`.

    Call arguments:
        y_true, y_pred, sample_weight: as of `CACLoss`.

    Example:

    >>> import numpy as np
    >>> loss = AnchorLoss(magnitude=10)
    >>> float(loss(np.array([0, 1]), np.float32([[7, 4], [0, 5]])))
    5.0
    """

    NAME = "anchor"

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return self.terms(y_true, y_pred)[0]


@register
# (`metrics` has a class of the same name.)
@keras.saving.register_keras_serializable(package="CacTf.losses")
class TupletLoss(OfDistances, Loss):
    """The modified tuplet loss, the first term of the CAC loss.

    It only requires the true class's anchor to be nearer than the others; a row
    of the paper's Table 4.

    Args:
        magnitude, from_distances: as of `CACLoss`.
        **kwargs: see `Loss`.

    Call arguments:
        y_true, y_pred, sample_weight: as of `CACLoss`.

    Example:

    >>> import numpy as np
    >>> loss = TupletLoss(from_distances=True)
    >>> round(float(loss(np.array([0]), np.float32([[-3, -4]]))), 4)
    0.3133
    """

    NAME = "tuplet"

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return self.terms(y_true, y_pred)[1]


@register
@keras.saving.register_keras_serializable(package="CacTf")
class CenterLoss(OfDistances, Loss):
    r"""\\(-\log \mathrm{softmax}(z)_y + \frac{w}{2} d_y^2\\).

    Cross-entropy with a pull to the class centers (Wen et al., ECCV 2016):
    anchors in the CAC paper's Table 4, learnt in its Table 5. (Wen et al. pull
    features, not logits, and update the centers by a separate rule.)

    Args:
        weight: weight w of the pull, >= 0. The CAC paper does not state its
            value.
        magnitude: length of the anchors, > 0.
        from_distances: whether the centers are those of
            `layers.ClassDistances`; `y_pred` is then a dict of `logits` and
            `class_distances`.
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices; not one-hot.
        y_pred: (B, N) logits, no activation.
        sample_weight: optional (B,).

    Raises:
        ValueError: a weight that is negative or not finite.

    Example:

    >>> round(float(CenterLoss(weight=0.01)([0], [[2.0, 0.0]])), 4)
    0.4469
    """

    NAME = "center"

    def __init__(
        self,
        weight: float = 0.01,
        magnitude: float = MAGNITUDE,
        *,
        from_distances: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(magnitude, from_distances=from_distances, **kwargs)
        self.weight = checked_weight(weight)
        if self.from_distances:
            self.READS = ("logits", "class_distances")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        logits = of_centers = y_pred
        if self.from_distances:
            logits, of_centers = y_pred["logits"], y_pred["class_distances"]
        pull = ops.square(self.terms(y_true, of_centers)[0])
        loss = cross_entropy(y_true, logits)
        return loss + 0.5 * self.weight * ops.cast(pull, loss.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "weight": self.weight}
