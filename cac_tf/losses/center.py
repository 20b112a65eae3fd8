# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy with a pull to the class centers (Wen et al., ECCV 2016)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.losses.cac import anchor_loss
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import register


@register
@keras.saving.register_keras_serializable(package="CacTf")
class CenterLoss(Loss):
    r"""\\(-\log \mathrm{softmax}(z)_y + \frac{w}{2} d_y^2\\).

    The centers are those of `AnchoredDistance`: anchors in the CAC paper's
    Table 4, learnt in its Table 5. (Wen et al. pull features, not logits, and
    move each center by a rule of its own.)

    Args:
        weight: weight w of the pull, >= 0. The CAC paper does not give its own.
        reduction: as for every Keras loss.
        name: as for every Keras loss.
        **kwargs: passed to `keras.losses.Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices; not one-hot.
        y_pred: dict of `logits`, (B, N), and `distances`, (B, N).
        sample_weight: optional (B,).

    Raises:
        ValueError: a weight that is negative or not finite.

    Example:

    >>> outputs = {"logits": [[2.0, 0.0]], "distances": [[8.0, 10.2]]}
    >>> round(float(CenterLoss(weight=0.01)([0], outputs)), 4)
    0.4469
    """

    NAME, READS = "center", ("logits", "distances")

    def __init__(
        self,
        weight: float = 0.01,
        reduction: str | None = "sum_over_batch_size",
        name: str = "center_loss",
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction=reduction, name=name, **kwargs)
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight must be finite and >= 0; got {weight!r}.")
        self.weight = float(weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        loss = cross_entropy(y_true, y_pred["logits"])
        pull = ops.square(anchor_loss(y_true, y_pred["distances"]))
        return loss + 0.5 * self.weight * ops.cast(pull, loss.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "weight": self.weight}
