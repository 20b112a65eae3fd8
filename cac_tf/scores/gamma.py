# SPDX-License-Identifier: Apache-2.0
"""The paper's score: the smallest rejection score gamma."""

import keras
from keras import ops

from cac_tf import ops as fused_ops
from cac_tf.annotations import Tensor
from cac_tf.ops import stock
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


def scores_of_anchors(logits: Tensor, magnitude: float) -> stock.Scores:
    """Distances, gamma, the smallest one and its class, of the anchors.

    In one step where the fused operation can be used (`cac_tf.ops`).

    Args:
        logits: (B, N), one for each class.
        magnitude: length of the anchors, > 0.

    Example:

    >>> import numpy as np
    >>> from cac_tf.scores.gamma import scores_of_anchors
    >>> scores = scores_of_anchors(np.float32([[0.0, 7.0]]), 10.0)
    >>> np.round(np.asarray(scores.distances), 4)
    array([[12.2066,  3.    ]], dtype=float32)
    >>> float(scores.unknown_score[0]) == float(scores.gamma[0, 1])
    True
    """
    binding = fused_ops.binding_for(logits)
    if binding is not None:
        return binding.anchored_scores(logits, magnitude)
    return stock.anchored_scores(logits, magnitude)


@register
@keras.saving.register_keras_serializable(package="CacTf")
class Gamma(Score):
    r"""Unknown score \\(\min_j \gamma_j\\) (equations 8 and 9).

    \\(\gamma_j = d_j \, (1 - \mathrm{softmin}(d)_j)\\), where d are the
    distances to the class centers; `layers.RejectionScore` computes it.

    Paper: Miller, Sünderhauf, Milford, Dayoub, *Class Anchor Clustering: A Loss
    for Distance-based Open Set Recognition*, WACV 2021.

    Differences: none.

    Cost: O(N) per row for N classes, after the distances, which take O(N D) for
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
