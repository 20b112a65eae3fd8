# SPDX-License-Identifier: Apache-2.0
"""The paper's score: the smallest rejection score gamma."""

import keras
from keras import ops

from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class Gamma(Score):
    """Unknown score `min_j gamma_j` (equations 8 and 9).

    Example:

    >>> import numpy as np
    >>> np.asarray(Gamma()(np.float32([[0.5, 7.0]])))
    array([0.5], dtype=float32)
    """

    NAME, READS = "gamma", ("gamma",)
    IS_NON_NEGATIVE = True

    def call(self, gamma):
        return ops.min(gamma, axis=-1)
