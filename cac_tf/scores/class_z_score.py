# SPDX-License-Identifier: Apache-2.0
"""The largest logit, standardized by the statistics of its class."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Tensor
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.scores.registry import register
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import ClassMoments
from cac_tf.scores.statistics import moderated_variances


@register
@keras.saving.register_keras_serializable(package="CacTf")
class ClassZScore(Score):
    r"""Unknown score \\((\mu_k - z_k) / \sigma_k\\) for the predicted class k.

    \\(\mu_k\\) and \\(\sigma_k\\) are the mean and standard deviation of logit
    k over the correctly classified examples of class k. Classes differ in how
    large and how spread out their logits are, and they differ more on data that
    was not used for training, so the statistics should come from such data.
    With few examples of a class, \\(\sigma_k\\) is shrunk toward that of the
    others: see `statistics.moderated_variances`.

    Paper: none; it comes from a comparison of candidates on the authors'
    released weights (see docs/scores.md).

    Differences: none, as there is no paper.

    Cost: O(N) per row for N classes; 2 N numbers are kept.

    Example:

    >>> logits = np.float32([[8, 0], [9, 0], [10, 0], [0, 4], [0, 6]])
    >>> score = ClassZScore()
    >>> statistics = score.fit([0, 0, 0, 1, 1], logits=logits)
    >>> inputs = np.float32([[8, 0], [0, 8]])
    >>> np.asarray(score(inputs, **statistics)).round(3)
    array([ 0.53, -1.59], dtype=float32)
    """

    NAME, READS = "class_z_score", ("logits",)
    IS_FITTED_TO_DATA = True
    WANTS_HELD_OUT_DATA = True
    NEEDS_A_LOGIT_OF_EACH_CLASS = True
    FEWEST_OF_A_CLASS = 2

    def start(self, context: Context) -> Any:
        return ClassMoments(context.num_classes, with_variances=True)

    def update(self, kept: Any, batch: KnownBatch) -> None:
        right = batch.is_correct
        labels = batch.labels[right]
        own = batch["logits"][right, labels]
        kept.add(own[:, None], labels)

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        for name, count, has_spread in zip(
            context.class_names, kept.counts, kept.has_spread[:, 0], strict=True
        ):
            if count < self.FEWEST_OF_A_CLASS or not has_spread:
                raise ValueError(
                    "The class z-score needs at least two correctly "
                    "classified examples of each class, with different "
                    f"logits; class {name!r} has {count}."
                )
        variances = moderated_variances(kept.variances[:, 0], kept.counts)
        return {"mean": kept.means[:, 0], "deviation": np.sqrt(variances)}

    def call(
        self, logits: Tensor, *, mean: Tensor, deviation: Tensor
    ) -> Tensor:
        winner = nearest_class(-logits)
        apart = ops.take(mean, winner) - ops.max(logits, axis=-1)
        return apart / ops.take(deviation, winner)
