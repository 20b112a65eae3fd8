# SPDX-License-Identifier: Apache-2.0
"""NNGuide: energy guided by nearest neighbours (Park et al., ICCV 2023)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf import lazy
from cac_tf.annotations import Tensor
from cac_tf.scores.nearest_examples import NearestExamplesScore
from cac_tf.scores.registry import register
from cac_tf.scores.score import KnownBatch

special = lazy.module("scipy.special")


@register
@keras.saving.register_keras_serializable(package="CacTf")
class NNGuide(NearestExamplesScore):
    r"""Unknown score \\(-E(z) \cdot \frac{1}{k} \sum_i s_i E(z_i)\\).

    E is the log-sum-exp of the logits. The mean is over the k training examples
    i of the bank with the largest \\(s_i E(z_i)\\), where s is the cosine
    similarity of the features. If the log-sum-exp of the logits is below 0, the
    guidance works in the wrong direction.

    Paper: Park, Jung, Teoh, *Nearest Neighbor Guidance for
    Out-of-Distribution Detection*, ICCV 2023.

    Differences: the authors' bank is a random subset of the training data; here
    it has the same number of examples of each class, and does not depend on the
    order of the data.

    Cost: O(M D + N) per row for N classes and M examples of D features in the
    bank, whose M D numbers are kept.

    Args:
        neighbours: k.
        bank_size: see `NearestExamplesScore`, also for other arguments and
            errors.

    Example:

    >>> import numpy as np
    >>> score = NNGuide(neighbours=1)
    >>> logits = np.float32([[9, 0], [0, 9]])
    >>> statistics = score.fit([0, 1], logits=logits, features=logits)
    >>> features = np.float32([[1, 0], [1, 1]])
    >>> np.asarray(score(logits, features, **statistics)).round(2)
    array([-81.  , -57.28], dtype=float32)
    """

    NAME, READS = "nnguide", ("logits", "features")

    def __init__(
        self, neighbours: int = 10, bank_size: int = 10_000, **kwargs: Any
    ) -> None:
        super().__init__(neighbours, bank_size, **kwargs)

    def bank_weights(self, batch: KnownBatch) -> np.ndarray | None:
        return special.logsumexp(batch["logits"], axis=-1)

    def from_similarities(self, nearest: Tensor, logits: Tensor) -> Tensor:
        energy = ops.logsumexp(logits, axis=-1)
        return -energy * ops.mean(nearest, axis=-1)
