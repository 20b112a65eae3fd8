# SPDX-License-Identifier: Apache-2.0
"""The paper's score: the smallest rejection score gamma."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class Gamma(Score):
    r"""Unknown score \\(\min_j \gamma_j\\) (equations 8 and 9).

    \\(\gamma_j = d_j \, (1 - \mathrm{softmin}(d)_j)\\), where d are the
    distances to the class centers; `layers.RejectionScore` computes it.

    Paper: Miller, Sünderhauf, Milford, Dayoub, *Class Anchor Clustering: A Loss
    for Distance-based Open Set Recognition*, WACV 2021.

    Differences: none.

    Cost: O(N) a row for N classes, after the distances, which take O(N D) for
    centers of width D; the N D numbers of the centers are the model's own.

    Example:

    >>> import numpy as np
    >>> np.asarray(Gamma()(np.float32([[0.5, 7.0]])))
    array([0.5], dtype=float32)
    """

    NAME, READS = "gamma", ("gamma",)
    IS_NON_NEGATIVE = True
    ENROLLS = True

    def call(self, gamma: Tensor) -> Tensor:
        return ops.min(gamma, axis=-1)
