# SPDX-License-Identifier: Apache-2.0
"""The largest softmax probability (Hendrycks and Gimpel, ICLR 2017)."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.layers.rejection_score import share_of_others
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class MaxSoftmax(Score):
    r"""Unknown score \\(1 - \max_j p_j\\); p is the softmax.

    It is computed from the probabilities of the other classes, so confident
    inputs keep their order even if the largest probability rounds to 1.

    Paper: Hendrycks, Gimpel, *A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples in Neural Networks*, ICLR 2017.

    Differences: only in rounding.

    Cost: O(N) per row for N classes; nothing is kept.

    Example:

    >>> import numpy as np
    >>> (score,) = np.asarray(MaxSoftmax()(np.float32([[0.0, 30.0]])))
    >>> f"{score:.3g}"
    '9.36e-14'
    """

    NAME, READS = "max_softmax", ("logits",)
    IS_NON_NEGATIVE = True

    def call(self, logits: Tensor) -> Tensor:
        return ops.min(share_of_others(-logits), axis=-1)
