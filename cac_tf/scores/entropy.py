# SPDX-License-Identifier: Apache-2.0
"""The entropy of the softmax probabilities."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class Entropy(Score):
    r"""Unknown score \\(-\sum_j p_j \log p_j\\), in nats; p is the softmax.

    Paper: none; Shannon's entropy of the prediction is a common baseline.

    Differences: none.

    Cost: O(N) per row for N classes; nothing is kept.

    Example:

    >>> import numpy as np
    >>> np.asarray(Entropy()(np.float32([[2.0, 2.0], [0.0, 9.0]]))).round(4)
    array([0.6931, 0.0012], dtype=float32)
    """

    NAME, READS = "entropy", ("logits",)
    IS_NON_NEGATIVE = True

    def call(self, logits: Tensor) -> Tensor:
        logs = ops.log_softmax(logits, axis=-1)
        return ops.sum(-ops.exp(logs) * logs, axis=-1)
