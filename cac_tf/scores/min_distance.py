# SPDX-License-Identifier: Apache-2.0
"""The distance to the closest centre."""

import keras
from keras import ops

from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class MinDistance(Score):
    """Unknown score `min_j d_j`, the distance to the closest centre.

    Example:

    >>> import numpy as np
    >>> np.asarray(MinDistance()(np.float32([[2.0, 7.0]])))
    array([2.], dtype=float32)
    """

    NAME, READS = "min_distance", ("distances",)
    IS_NON_NEGATIVE = True

    def call(self, distances):
        return ops.min(distances, axis=-1)
