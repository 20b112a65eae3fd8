# SPDX-License-Identifier: Apache-2.0
"""The anchor loss by itself, as in the paper's Table 4."""

from typing import Any

import keras

from cac_tf.annotations import Tensor
from cac_tf.losses.cac import anchor_loss
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import register


@register
# (`metrics` has a class of the same name.)
@keras.saving.register_keras_serializable(package="CacTf.losses")
class AnchorLoss(Loss):
    """The distance to the own center, the second term of the CAC loss.

    It asks nothing about the other centers. With learnt centers it has a
    trivial minimum: all centers and all logits in one point.

    Args:
        reduction: as for every Keras loss.
        name: as for every Keras loss.
        **kwargs: passed to `keras.losses.Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices; not one-hot.
        y_pred: (B, N) distances of `AnchoredDistance`.
        sample_weight: optional (B,).

    Example:

    >>> import numpy as np
    >>> loss = AnchorLoss()
    >>> float(loss(np.array([0, 1]), np.float32([[3, 4], [3, 4]])))
    3.5
    """

    NAME, READS = "anchor", ("distances",)

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str = "anchor_loss",
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction=reduction, name=name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return anchor_loss(y_true, y_pred)
