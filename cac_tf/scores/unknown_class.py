# SPDX-License-Identifier: Apache-2.0
"""P(unknown) - max P(known), of OSRCI (Neal et al., ECCV 2018, section 3.4)."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class UnknownClass(Score):
    r"""Unknown score \\(p_{N+1} - \max_{j \leq N} p_j\\).

    p is the softmax of the N logits and an additional last logit, 0, for the
    class "unknown". The score is meant for models trained with
    `losses.UnknownClassLoss`; for others the last logit has no meaning. In
    float32, all inputs whose largest logit is far above the others and above 17
    have the score -1.

    Paper: Neal et al., *Open Set Learning with Counterfactual Images*, ECCV
    2018, section 3.4.

    Differences: none.

    Cost: O(N) per row for N classes; nothing is kept.

    Example:

    >>> import numpy as np
    >>> logits = np.float32([[0, 0, 0], [9, 0, 0], [-9, -9, -9]])
    >>> np.asarray(UnknownClass()(logits)).round(3)
    array([ 0., -1.,  1.], dtype=float32)
    """

    NAME, READS = "unknown_class", ("logits",)

    def call(self, logits: Tensor) -> Tensor:
        with_unknown = ops.pad(logits, ((0, 0), (0, 1)))
        probabilities = ops.softmax(with_unknown, axis=-1)
        return probabilities[:, -1] - ops.max(probabilities[:, :-1], axis=-1)
