# SPDX-License-Identifier: Apache-2.0
"""The largest logit (Hendrycks et al., ICML 2022)."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class MaxLogit(Score):
    r"""Unknown score \\(-\max_j z_j\\).

    Paper: Hendrycks et al., *Scaling Out-of-Distribution Detection for
    Real-World Settings*, ICML 2022.

    Differences: none.

    Cost: O(N) per row for N classes; nothing is kept.

    Example:

    >>> import numpy as np
    >>> np.asarray(MaxLogit()(np.float32([[2.0, 7.0]])))
    array([-7.], dtype=float32)
    """

    NAME, READS = "max_logit", ("logits",)

    def call(self, logits: Tensor) -> Tensor:
        return -ops.max(logits, axis=-1)
