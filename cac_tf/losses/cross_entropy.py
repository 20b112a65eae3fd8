# SPDX-License-Identifier: Apache-2.0
"""Softmax cross-entropy of the logits."""

import keras

from cac_tf.annotations import Tensor
from cac_tf.layers.precision import full_precision
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import register
from cac_tf.ops.stock import tuplet_loss


def cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    r"""\\(-\log \mathrm{softmax}(z)_y\\).

    Args:
        labels: (B,) or (B, 1) class indices.
        logits: (B, N), no activation.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> np.round(np.asarray(cross_entropy([0], [[2.0, 0.0]])), 4)
    array([0.1269], dtype=float32)
    """
    # log(1 + sum_{j != y} e^{z_j - z_y}): the tuplet loss of -z.
    return tuplet_loss(labels, -full_precision(logits))


@register
@keras.saving.register_keras_serializable(package="CacTf")
class CrossEntropyLoss(Loss):
    """Softmax cross-entropy of the logits, as a Keras loss.

    Equals `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`,
    except that an invalid label gives NaN.

    Args:
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices; not one-hot.
        y_pred: (B, N) logits.
        sample_weight: optional (B,).

    Example:

    >>> import numpy as np, cac_tf
    >>> loss = cac_tf.losses.CrossEntropyLoss()
    >>> round(float(loss(np.array([0]), np.float32([[2, 0]]))), 4)
    0.1269
    """

    NAME = "cross_entropy"

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return cross_entropy(y_true, y_pred)
