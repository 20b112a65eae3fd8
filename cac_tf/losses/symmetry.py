# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy of the class and of how an image was turned (GFROR)."""

from typing import Any

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import register


@register
@keras.saving.register_keras_serializable(package="CacTf")
class SymmetryLoss(Loss):
    """The loss of GFROR's classifier.

    Perera et al., "Generative-discriminative Feature Representations for
    Open-set Recognition" (CVPR 2020): cross-entropy of the class,
    and cross-entropy of the symmetry that a second copy of the image was
    changed by, with the weights 1 - w and w.

    Args:
        weight: w, in [0, 1].
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices.
        y_pred: dict with `logits`, (B, N), `symmetry_logits`, (B, 8), and
            `symmetry`, (B,), its true one.
        sample_weight: optional (B,).

    Raises:
        ValueError: weight out of range.

    Example:

    >>> import numpy as np
    >>> loss = SymmetryLoss(weight=0.5)
    >>> outputs = {
    ...     "logits": np.zeros((1, 2), "float32"),
    ...     "symmetry_logits": np.zeros((1, 8), "float32"),
    ...     "symmetry": np.int32([3])}
    >>> round(float(loss(np.array([0]), outputs)), 4)  # mean of log 2, log 8
    1.3863
    """

    NAME = "symmetry"
    READS = ("logits", "symmetry_logits", "symmetry")

    def __init__(
        self,
        weight: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= weight <= 1.0:
            raise ValueError(f"weight must be in [0, 1]; got {weight!r}.")
        self.weight = float(weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        of_class = cross_entropy(y_true, y_pred["logits"])
        of_symmetry = cross_entropy(
            ops.cast(y_pred["symmetry"], "int32"), y_pred["symmetry_logits"]
        )
        return (1.0 - self.weight) * of_class + self.weight * of_symmetry

    def get_config(self) -> Config:
        return {**super().get_config(), "weight": self.weight}
