# SPDX-License-Identifier: Apache-2.0
"""The distance to the closest center."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class MinDistance(Score):
    r"""Unknown score \\(\min_j d_j\\), the distance to the closest center.

    Paper: none of its own; the distances are those of Class Anchor Clustering
    (Miller et al., WACV 2021), as in its Table 2.

    Differences: that paper rejects by gamma, and uses this distance only for
    comparison.

    Cost: O(N) per row for N classes, after the distances, which take O(N D) for
    centers of width D; the N D numbers of the centers are the model's own.

    Example:

    >>> import numpy as np
    >>> np.asarray(MinDistance()(np.float32([[2.0, 7.0]])))
    array([2.], dtype=float32)
    """

    NAME, READS = "min_distance", ("distances",)
    IS_NON_NEGATIVE = True
    ENROLLS = True

    def call(self, distances: Tensor) -> Tensor:
        return ops.min(distances, axis=-1)
