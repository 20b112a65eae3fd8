# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy of the class, and the error of a reconstruction (CROSR)."""

from typing import Any

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.layers.precision import full_precision
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import checked_weight
from cac_tf.losses.loss import register


@register
@keras.saving.register_keras_serializable(package="CacTf")
class ReconstructionLoss(Loss):
    """The loss of CROSR: of the class, and of the image that is drawn again.

    Yoshihashi et al., "Classification-Reconstruction Learning for Open-Set
    Recognition" (CVPR 2019): cross-entropy plus w times the squared difference
    between image and reconstruction, here its mean over pixels and channels.

    Args:
        weight: w, finite and >= 0.
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices.
        y_pred: dict with `logits`, (B, N), and `pixels` and `reconstruction`,
            (B, ...) both.
        sample_weight: optional (B,).

    Raises:
        ValueError: weight out of range.

    Example:

    >>> import numpy as np
    >>> loss = ReconstructionLoss()
    >>> outputs = {
    ...     "logits": np.zeros((1, 2), "float32"),
    ...     "pixels": np.ones((1, 4, 4, 1), "float32"),
    ...     "reconstruction": np.full((1, 4, 4, 1), 0.5, "float32")}
    >>> round(float(loss(np.array([0]), outputs)), 4)  # log 2 + 0.25
    0.9431
    """

    NAME = "reconstruction"
    READS = ("logits", "pixels", "reconstruction")

    def __init__(
        self,
        weight: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.weight = checked_weight(weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        apart = full_precision(y_pred["reconstruction"]) - full_precision(
            y_pred["pixels"]
        )
        errors = ops.mean(
            ops.square(apart), axis=tuple(range(1, len(apart.shape)))
        )
        return cross_entropy(y_true, y_pred["logits"]) + self.weight * errors

    def get_config(self) -> Config:
        return {**super().get_config(), "weight": self.weight}
