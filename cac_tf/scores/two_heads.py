# SPDX-License-Identifier: Apache-2.0
"""The largest logits of two heads, added in units of their deviations."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import ClassMoments


@register
@keras.saving.register_keras_serializable(package="CacTf")
class TwoHeads(Score):
    r"""Unknown score \\(\sum_h (\mu_h - \max_j z_{hj}) / \sigma_h\\).

    \\(z_1\\) are the logits, \\(z_2\\) those of a second head on the same
    features, and \\(\mu_h\\) and \\(\sigma_h\\) the mean and standard deviation
    of the largest logit of head h over examples of known classes. They should
    come from data that was not used for training.

    It reads the output `second_logits`, of the method `two_heads` or of any
    backbone that returns an output of this name.

    Paper: none. It was suggested by the average of the standardized largest
    logits of the authors' two released networks, one for each loss.

    Differences: none, as there is no paper.

    Cost: O(N) per row for N classes; 4 numbers are kept.

    Example:

    >>> first = np.float32([[8, 0], [0, 12]])
    >>> score = TwoHeads()
    >>> statistics = score.fit([0, 1], logits=first, second_logits=first / 2)
    >>> logits, second = np.float32([[8, 0]]), np.float32([[0, 4]])
    >>> np.asarray(score(logits, second, **statistics))
    array([2.], dtype=float32)
    """

    NAME, READS = "two_heads", ("logits", "second_logits")
    IS_FITTED_TO_DATA = True
    WANTS_HELD_OUT_DATA = True

    def start(self, context: Context) -> Any:
        return ClassMoments(1, with_variances=True)

    def update(self, kept: Any, batch: KnownBatch) -> None:
        largest = [batch[name].max(axis=-1) for name in self.READS]
        kept.add(np.stack(largest, axis=-1), np.zeros_like(batch.labels))

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        deviation = np.sqrt(kept.variances[0])
        if not kept.has_spread.all():
            raise ValueError(
                "The score of two heads needs at least two examples whose "
                "largest logits differ."
            )
        return {"mean": kept.means[0], "deviation": deviation}

    def call(
        self,
        logits: Tensor,
        second_logits: Tensor,
        *,
        mean: Tensor,
        deviation: Tensor,
    ) -> Tensor:
        largest = ops.stack(
            [ops.max(one, axis=-1) for one in (logits, second_logits)],
            axis=-1,
        )
        apart = mean - largest
        return ops.sum(apart / deviation, axis=-1)
