# SPDX-License-Identifier: Apache-2.0
"""The tuplet loss by itself, as in the paper's Table 4."""

from typing import Any

import keras

from cac_tf.annotations import Tensor
from cac_tf.losses.cac import tuplet_loss
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import register


@register
# (`metrics` has a class of the same name.)
@keras.saving.register_keras_serializable(package="CacTf.losses")
class TupletLoss(Loss):
    """The modified tuplet loss on distances, the first term of the CAC loss.

    It asks only that the own center is nearer than the others.

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
    >>> loss = TupletLoss()
    >>> round(float(loss(np.array([0]), np.float32([[3, 4]]))), 4)
    0.3133
    """

    NAME, READS = "tuplet", ("distances",)

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str = "tuplet_loss",
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction=reduction, name=name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return tuplet_loss(y_true, y_pred)
