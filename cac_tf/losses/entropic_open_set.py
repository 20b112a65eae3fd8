# SPDX-License-Identifier: Apache-2.0
"""The entropic open-set loss (Dhamija et al., NeurIPS 2018)."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.layers.precision import full_precision
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import is_known
from cac_tf.losses.loss import known_labels
from cac_tf.losses.loss import register


def entropic_open_set_loss(labels: Tensor, logits: Tensor) -> Tensor:
    r"""Cross-entropy; for negatives, \\(-\frac{1}{N} \sum_j \log p_j\\).

    The loss of a negative is smallest, log N, where all classes are equally
    likely.

    Args:
        labels: (B,) or (B, 1) class indices, -1 for negatives.
        logits: (B, N), no activation.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> logits = np.float32([[2, 0], [2, 0]])
    >>> np.asarray(entropic_open_set_loss([0, -1], logits)).round(4)
    array([0.1269, 1.1269], dtype=float32)
    """
    logits = full_precision(logits)
    uniform = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
    return ops.where(
        is_known(labels), cross_entropy(known_labels(labels), logits), uniform
    )


@register
@keras.saving.register_keras_serializable(package="CacTf")
class EntropicOpenSetLoss(Loss):
    """`entropic_open_set_loss` as a Keras loss that takes negatives.

    Args:
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices, -1 for negatives.
        y_pred: (B, N) logits.
        sample_weight: optional (B,).

    Example:

    >>> import numpy as np
    >>> loss = EntropicOpenSetLoss()
    >>> round(float(loss(np.array([-1]), np.float32([[1, 1]]))), 4)
    0.6931
    """

    NAME, TAKES_NEGATIVES = "entropic_open_set", True

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return entropic_open_set_loss(y_true, y_pred)
