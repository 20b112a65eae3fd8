# SPDX-License-Identifier: Apache-2.0
"""The score of the Objectosphere loss (Dhamija et al., NeurIPS 2018)."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class Objectosphere(Score):
    r"""Unknown score \\(-\max_j p_j \, \|x\|\\), of softmax and features.

    For models trained with the method `objectosphere`, which makes the features
    x of unknown inputs short.

    Paper: Dhamija, Günther, Boult, *Reducing Network Agnostophobia*, NeurIPS
    2018.

    Differences: none.

    Cost: O(N + D) per row for N classes and D features; nothing is kept.

    Example:

    >>> import numpy as np
    >>> score = Objectosphere()
    >>> np.asarray(score(np.float32([[2, 2]]), np.float32([[3, 4]])))
    array([-2.5], dtype=float32)
    """

    NAME, READS = "objectosphere", ("logits", "features")

    def call(self, logits: Tensor, features: Tensor) -> Tensor:
        largest = ops.max(ops.softmax(logits), axis=-1)
        squares = ops.square(features)
        return -largest * ops.sqrt(ops.sum(squares, axis=-1))
