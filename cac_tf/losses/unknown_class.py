# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy with one more class, "unknown", whose logit is 0.

After Neal et al., "Open Set Learning with Counterfactual Images" (ECCV 2018),
section 3.3, whose released code appends the constant logit.
"""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.layers.precision import full_precision
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import Loss
from cac_tf.losses.loss import is_known
from cac_tf.losses.loss import known_labels
from cac_tf.losses.loss import register


def unknown_class_loss(labels: Tensor, logits: Tensor) -> Tensor:
    r"""\\(-\log p_y\\), with \\(p = \mathrm{softmax}(z_1, \dots, z_N, 0)\\).

    The label of the last class, "unknown", is -1.

    Args:
        labels: (B,) or (B, 1) class indices, -1 for negatives.
        logits: (B, N), no activation.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np
    >>> logits = np.float32([[2, 0], [2, 0]])
    >>> np.asarray(unknown_class_loss([0, -1], logits)).round(4)
    array([0.2395, 2.2395], dtype=float32)
    """
    logits = full_precision(logits)
    with_unknown = ops.pad(logits, ((0, 0), (0, 1)))
    # An index of the unknown class itself is no label.
    of_known = ops.where(
        ops.equal(ops.reshape(known_labels(labels), (-1,)), logits.shape[-1]),
        float("nan"),
        cross_entropy(known_labels(labels), with_unknown),
    )
    return ops.where(
        is_known(labels), of_known, ops.logsumexp(with_unknown, axis=-1)
    )


@register
@keras.saving.register_keras_serializable(package="CacTf")
class UnknownClassLoss(Loss):
    """`unknown_class_loss` as a Keras loss that takes negatives.

    Args:
        **kwargs: see `Loss`.

    Call arguments:
        y_true: (B,) or (B, 1) class indices, -1 for negatives.
        y_pred: (B, N) logits.
        sample_weight: optional (B,).

    Example:

    >>> import numpy as np
    >>> loss = UnknownClassLoss()
    >>> round(float(loss(np.array([-1]), np.float32([[0, 0]]))), 4)
    1.0986
    """

    NAME, TAKES_NEGATIVES = "unknown_class", True

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return unknown_class_loss(y_true, y_pred)
