# SPDX-License-Identifier: Apache-2.0
"""Deep nearest neighbours (Sun et al., ICML 2022)."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.nearest_examples import NearestExamplesScore
from cac_tf.scores.nearest_examples import largest
from cac_tf.scores.nearest_examples import similarities_to
from cac_tf.scores.nearest_examples import unit
from cac_tf.scores.registry import register
from cac_tf.scores.score import keys_of

# Below every cosine.
_NONE = -2.0


@register
@keras.saving.register_keras_serializable(package="CacTf")
class KNN(NearestExamplesScore):
    r"""Unknown score \\(1 - s_k\\), in [0, 2].

    \\(s_k\\) is the cosine similarity between an input's features and those of
    the k-th most similar training example in the bank.

    Paper: Sun, Ming, Zhu, Li, *Out-of-Distribution Detection with Deep Nearest
    Neighbors*, ICML 2022.

    Differences: the authors use the Euclidean distance between unit
    vectors, which gives the same order, 50 neighbours on CIFAR10 and 1,000 on
    ImageNet, and all training examples as the bank.

    Cost: O(M D) per row for M examples of D features in the bank, whose M D
    numbers are kept.

    Args:
        neighbours: k.
        bank_size: see `NearestExamplesScore`, also for other arguments and
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
    ENROLLS = True

    def __init__(
        self, neighbours: int = 1, bank_size: int = 10_000, **kwargs: Any
    ) -> None:
        super().__init__(neighbours, bank_size, **kwargs)

    def from_similarities(self, nearest: Tensor) -> Tensor:
        # A similarity may round to more than 1.
        return ops.maximum(1.0 - nearest[:, -1], 0.0)

    def example_rows(
        self, *values: np.ndarray, **statistics: np.ndarray
    ) -> np.ndarray:
        if "labels" not in statistics:
            raise ValueError(
                f"The bank of the score {self.name!r} has no labels for its "
                "examples: fit the score to data, then enroll."
            )
        return unit(values[0])

    def class_rows(
        self, rows: np.ndarray, counts: np.ndarray, num_trained: int
    ) -> np.ndarray:
        """The examples, at most as many as of a class of the fit."""
        quota = self.bank_size // num_trained
        if len(rows) <= quota:
            return rows
        # By keys, so that classes that become one keep what both would have.
        return rows[np.sort(np.argsort(keys_of(rows))[:quota])]

    def compare(  # type: ignore[override]
        self,
        values: Sequence[Tensor],
        predicted: Tensor,
        classes: Sequence[Tensor],
        *,
        bank: Tensor,
        labels: Tensor,
    ) -> Tensor:
        similarities = similarities_to(values[0], bank)
        predicted = ops.cast(predicted, labels.dtype)
        is_own = labels[None, :] == predicted[:, None]
        of_class = [ops.where(is_own, similarities, _NONE)]
        of_class += [similarities_to(values[0], rows) for rows in classes]
        columns = []
        for one in of_class:
            nearest = largest(one, min(self.neighbours, one.shape[-1]))
            # Of a class with fewer than k examples, the farthest.
            nearest = ops.where(nearest > _NONE, nearest, nearest[:, :1])
            columns.append(1.0 - ops.min(nearest, axis=-1))
        return ops.maximum(ops.stack(columns, axis=-1), 0.0)
