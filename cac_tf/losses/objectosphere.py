# SPDX-License-Identifier: Apache-2.0
"""The Objectosphere loss (Dhamija et al., NeurIPS 2018)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.hyperparameters import FEATURE_LENGTH
from cac_tf.hyperparameters import LENGTH_WEIGHT
from cac_tf.layers.precision import full_precision
from cac_tf.losses.entropic_open_set import entropic_open_set_loss
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import checked_weight
from cac_tf.losses.loss import is_known
from cac_tf.losses.loss import register


@register
@keras.saving.register_keras_serializable(package="CacTf")
class ObjectosphereLoss(Loss):
    r"""Entropic open-set loss, and features of negatives pulled to zero.

    With the length f of the features, it adds
    \\(w \max(\xi - f, 0)^2\\) for known inputs and \\(w f^2\\) for
    negatives.

    Paper: Dhamija, Günther, Boult, *Reducing Network Agnostophobia*, NeurIPS
    2018.

    Differences: the authors' code weights each example by 100 over the number
    of examples of its class (or of negatives), which `sample_weight` can do,
    and its logits have no bias.

    Args:
        length: minimum length that known features should have, the authors' xi,
            > 0.
        weight: weight w, the authors' lambda, >= 0.
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices, -1 for negatives.
        y_pred: dict of `logits`, (B, N), and `features`, (B, D).
        sample_weight: optional (B,).

    Raises:
        ValueError: an argument out of range.

    Example:

    >>> outputs = {"logits": [[1.0, 1.0]], "features": [[3.0, 4.0]]}
    >>> loss = ObjectosphereLoss(length=7, weight=0.1)
    >>> [round(float(loss([label], outputs)), 4) for label in (0, -1)]
    [1.0931, 3.1931]
    """

    NAME, READS = "objectosphere", ("logits", "features")
    TAKES_NEGATIVES = True

    def __init__(
        self,
        length: float = FEATURE_LENGTH,
        weight: float = LENGTH_WEIGHT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not (np.isfinite(length) and length > 0):
            raise ValueError(f"length must be finite and > 0; got {length!r}.")
        self.length, self.weight = float(length), checked_weight(weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        features = full_precision(y_pred["features"])
        squared = ops.sum(ops.square(features), axis=-1)
        # The square root has no gradient at 0.
        is_zero = ops.equal(squared, 0.0)
        length = ops.where(
            is_zero, 0.0, ops.sqrt(ops.where(is_zero, 1.0, squared))
        )
        missing = ops.square(ops.maximum(self.length - length, 0.0))
        return entropic_open_set_loss(y_true, y_pred["logits"]) + (
            self.weight * ops.where(is_known(y_true), missing, squared)
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "length": self.length,
            "weight": self.weight,
        }
