# SPDX-License-Identifier: Apache-2.0
"""SHE, the simplified Hopfield energy (Zhang et al., ICLR 2023)."""

from typing import Any

import keras
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Tensor
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.scores.registry import register
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import ClassMoments


@register
@keras.saving.register_keras_serializable(package="CacTf")
class SHE(Score):
    r"""Unknown score \\(-x \cdot s_k\\) for the predicted class k.

    s_k, the stored pattern, is the mean of the features x of the correctly
    classified training examples of class k.

    Paper: Zhang et al., *Out-of-Distribution Detection Based on In-Distribution
    Data Patterns Memorization with Modern Hopfield Energy*, ICLR 2023.

    Differences: none from the paper's simplified form, which uses an inner
    product instead of the full energy.

    Cost: O(N + D) per row for N classes and D features; N D numbers are kept.

    Raises:
        ValueError: in `fit`, a class without a correctly classified example.

    Example:

    >>> import numpy as np
    >>> values = np.float32([[4, 0], [0, 2]])
    >>> score = SHE()
    >>> statistics = score.fit([0, 1], logits=values, features=values)
    >>> features = np.float32([[1, 1], [1, 1]])
    >>> np.asarray(score(values, features, **statistics))
    array([-4., -2.], dtype=float32)
    """

    NAME, READS, IS_FITTED_TO_DATA = "she", ("logits", "features"), True
    NEEDS_A_LOGIT_OF_EACH_CLASS = True

    def start(self, context: Context) -> Any:
        return ClassMoments(context.num_classes)

    def update(self, kept: Any, batch: KnownBatch) -> None:
        right = batch.is_correct
        kept.add(batch["features"][right], batch.labels[right])

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        empty = [
            name
            for name, count in zip(
                context.class_names, kept.counts, strict=True
            )
            if not count
        ]
        if empty:
            raise ValueError(
                "SHE needs a correctly classified example of each class; "
                f"these classes have none: {', '.join(empty)}."
            )
        return {"patterns": kept.means}

    def call(
        self, logits: Tensor, features: Tensor, *, patterns: Tensor
    ) -> Tensor:
        winner = nearest_class(-logits)
        pattern = ops.take(patterns, winner, axis=0)
        return -ops.sum(features * pattern, axis=-1)
