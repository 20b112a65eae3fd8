# SPDX-License-Identifier: Apache-2.0
"""Deep nearest neighbours (Sun et al., ICML 2022)."""

from typing import Any

import keras

from cac_tf.annotations import Tensor
from cac_tf.scores.nearest_examples import NearestExamplesScore
from cac_tf.scores.registry import register


@register
@keras.saving.register_keras_serializable(package="CacTf")
class KNN(NearestExamplesScore):
    r"""Unknown score \\(1 - s_k\\), in [0, 2].

    \\(s_k\\) is the cosine similarity of an input's features to those of the
    k-th most similar training example of the bank.

    Paper: Sun, Ming, Zhu, Li, *Out-of-Distribution Detection with Deep Nearest
    Neighbors*, ICML 2022.

    Differences: the authors use the Euclidean distance between unit
    vectors, which gives the same order, 50 neighbours on CIFAR10 and 1,000 on
    ImageNet, and all training examples as the bank.

    Cost: O(M D) a row for M examples of D features in the bank, whose M D
    numbers are kept.

    Args:
        neighbours: k.
        bank_size: see `NearestExamplesScore`, also for further arguments and
            errors.

    Example:

    >>> import numpy as np
    >>> score = KNN(neighbours=1)
    >>> statistics = score.fit([0, 1], features=np.float32([[1, 0], [0, 2]]))
    >>> np.asarray(score(np.float32([[5, 0], [-1, 0]]), **statistics))
    array([0., 1.], dtype=float32)
    """

    NAME, READS = "knn", ("features",)
    IS_NON_NEGATIVE = True

    def __init__(
        self, neighbours: int = 1, bank_size: int = 10_000, **kwargs: Any
    ) -> None:
        super().__init__(neighbours, bank_size, **kwargs)

    def from_similarities(self, nearest: Tensor) -> Tensor:
        # A similarity may round to more than 1.
        return keras.ops.maximum(1.0 - nearest[:, -1], 0.0)
