# SPDX-License-Identifier: Apache-2.0
"""SHE, the simplified Hopfield energy (Zhang et al., ICLR 2023)."""

import keras
from keras import ops

from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.layers.precision import full_precision
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import ClassMoments


@register
@keras.saving.register_keras_serializable(package="CacTf")
class SHE(Score):
    r"""Unknown score \\(-x \cdot s_k\\) for the predicted class k.

    s_k, the stored pattern, is the mean of the features x of the correctly
    classified training examples of class k.

    Raises:
        ValueError: in `fit`, a class without a correctly classified example.

    Example:

    >>> import numpy as np
    >>> values = np.float32([[4, 0], [0, 2]])
    >>> score = SHE()
    >>> score.fit([0, 1], logits=values, features=values)
    >>> np.asarray(score(values, np.float32([[1, 1], [1, 1]])))
    array([-4., -2.], dtype=float32)
    """

    NAME, READS, IS_FITTED_TO_DATA = "she", ("logits", "features"), True

    def start_fit(self, num_classes):
        return ClassMoments(num_classes)

    def add_batch(self, kept, batch):
        right = batch.is_correct
        kept.add(batch["features"][right], batch.labels[right])

    def finish_fit(self, kept, known):
        empty = [
            name
            for name, count in zip(known.class_names, kept.counts, strict=True)
            if not count
        ]
        if empty:
            raise ValueError(
                "SHE needs a correctly classified example of each class; "
                f"these classes have none: {', '.join(empty)}."
            )
        self.set_statistics(patterns=kept.means)

    def call(self, logits, features):
        patterns = self.statistic("patterns")
        winner = nearest_class(-full_precision(logits)[:, : patterns.shape[0]])
        pattern = ops.take(patterns, winner, axis=0)
        return -ops.sum(full_precision(features) * pattern, axis=-1)
