# SPDX-License-Identifier: Apache-2.0
"""GEN, the generalized entropy (Liu et al., CVPR 2023)."""

from typing import Any

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.arguments import whole_number
from cac_tf.layers.rejection_score import share_of_others
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class GEN(Score):
    r"""Unknown score \\(\sum_j p_j^\gamma (1 - p_j)^\gamma\\).

    The sum is over the largest softmax probabilities. A small exponent makes
    small deviations from a confident prediction count.

    Paper: Liu, Lochman, Zach, *GEN: Pushing the Limits of Softmax-Based
    Out-of-Distribution Detection*, CVPR 2023, with its defaults, exponent 0.1
    and 100 classes.

    Differences: only in rounding. Here 1 - p is summed from the other
    probabilities, since the difference may round to 0.

    Cost: O(N) per row for N classes, plus selecting the largest M if there are
    more; nothing is kept.

    Args:
        exponent: the authors' gamma, in (0, 1). (No relation to CAC's gamma.)
        classes: how many of the largest probabilities count, the authors' M;
            all, if there are fewer.
        **kwargs: `name` of the score.

    Raises:
        ValueError: an argument out of range.

    Example:

    >>> import numpy as np
    >>> np.asarray(GEN()(np.float32([[2.0, 2.0], [0.0, 9.0]]))).round(4)
    array([1.7411, 0.8131], dtype=float32)
    """

    NAME, READS = "gen", ("logits",)
    IS_NON_NEGATIVE = True

    def __init__(
        self, exponent: float = 0.1, classes: int = 100, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not 0.0 < exponent < 1.0:
            raise ValueError(f"exponent must be in (0, 1); got {exponent!r}.")
        self.exponent = float(exponent)
        self.classes = whole_number("classes", classes)

    def call(self, logits: Tensor) -> Tensor:
        # 1 - p would round to 0 where the prediction is confident.
        others = ops.log(share_of_others(-logits))
        terms = ops.exp(
            self.exponent * (ops.log_softmax(logits, axis=-1) + others)
        )
        if logits.shape[-1] > self.classes:
            _, largest = ops.top_k(logits, self.classes)
            terms = ops.take_along_axis(terms, largest, axis=-1)
        return ops.sum(terms, axis=-1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "exponent": self.exponent,
            "classes": self.classes,
        }
