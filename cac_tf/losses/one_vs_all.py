# SPDX-License-Identifier: Apache-2.0
"""One logistic loss per class: the "Softmax" rows behind the paper's Table 1.

The baselines there were trained by the code of Neal et al. (ECCV 2018), which
calls its score softmax and trains like this.
"""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.layers.precision import full_precision
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import register
from cac_tf.ops.stock import match_labels


def one_vs_all(labels: Tensor, logits: Tensor) -> Tensor:
    r"""\\(\frac{1}{N} \sum_j \log(1 + e^{-t_j z_j})\\).

    \\(t_j\\) is 1 for the own class and -1 for the others.

    Args:
        labels: (B,) or (B, 1) class indices.
        logits: (B, N), no activation.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> np.asarray(one_vs_all([0], [[2.0, 0.0]])).round(4)
    array([0.41], dtype=float32)
    """
    logits = full_precision(logits)
    is_label, is_valid = match_labels(labels, logits, "logits")
    losses = ops.softplus(ops.where(is_label, -logits, logits))
    # Keras' mean computes in float32 on JAX, whatever it is given.
    mean = ops.sum(losses, axis=-1) / logits.shape[-1]
    return ops.where(is_valid, mean, float("nan"))


@register
@keras.saving.register_keras_serializable(package="CacTf")
class OneVsAllLoss(Loss):
    """`one_vs_all` as a Keras loss.

    Args:
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices; not one-hot.
        y_pred: (B, N) logits.
        sample_weight: optional (B,).

    Example:

    >>> import numpy as np
    >>> loss = OneVsAllLoss()
    >>> round(float(loss(np.array([0]), np.float32([[2, 0]]))), 4)
    0.41
    """

    NAME = "one_vs_all"

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return one_vs_all(y_true, y_pred)
