# SPDX-License-Identifier: Apache-2.0
"""OpenMax (Bendale and Boult, CVPR 2016)."""

import keras
import numpy as np
from keras import ops
from scipy import stats

from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.precision import full_precision
from cac_tf.scores.score import Score


@keras.saving.register_keras_serializable(package="CacTf")
class OpenMax(Score):
    """Unknown score: the probability that OpenMax gives to "unknown".

    `fit` takes, for each class, the mean logits of its correctly classified
    training examples and fits a Weibull distribution to the largest
    `tail_size` distances from it. An input's `rank` largest logits are then
    scaled down by how far in the tail its distance from that class lies, what
    is taken away becomes the logit of "unknown", and a softmax follows.
    Distances are Euclidean; the Weibull fit is SciPy's, with the location
    fixed at one below the smallest distance of the tail, as in the authors'
    libMR. `fit` keeps the logits of all examples (not the features) until it
    has the means.

    Args:
        tail_size: distances that each Weibull distribution is fitted to.
        rank: how many of the largest logits are recalibrated (the paper's
            alpha), the i-th with the weight 1 - i / rank. With more than
            there are classes, all are.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: an argument out of range; in `fit`, a class with fewer
            than three correctly classified examples.

    Example:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> logits = 10 * np.eye(3)[labels] + rng.standard_normal((300, 3))
    >>> score = OpenMax()
    >>> score.fit(labels, logits=logits)
    >>> np.round(np.asarray(score(np.float32([[10, 0, 0], [4, 4, 4]]))), 2)
    array([0., 1.], dtype=float32)
    """

    NAME, NEEDS, IS_FITTED_TO_DATA = "openmax", ("logits",), True
    IS_NON_NEGATIVE = True

    def __init__(self, tail_size=20, rank=10, **kwargs):
        super().__init__(**kwargs)
        if tail_size < 3:
            raise ValueError(f"tail_size must be at least 3; got {tail_size}.")
        if rank < 1:
            raise ValueError(f"rank must be at least 1; got {rank}.")
        self.tail_size, self.rank = int(tail_size), int(rank)

    def start_fit(self, num_classes):
        return [], []

    def add_batch(self, kept, batch):
        right = batch.is_correct
        logits, labels = kept
        logits.append(batch.logits[right])
        labels.append(batch.labels[right])

    def finish_fit(self, kept, known):
        logits, labels = map(np.concatenate, kept)
        means, weibull = [], []
        for index, name in enumerate(known.class_names):
            own = np.float64(logits[labels == index])
            if len(own) < 3:
                raise ValueError(
                    "OpenMax needs at least three correctly classified "
                    f"examples of each class; class {name!r} has {len(own)}."
                )
            means.append(own.mean(axis=0))
            distances = np.linalg.norm(own - means[-1], axis=-1)
            tail = np.sort(distances)[-self.tail_size :]
            location = tail[0] - 1.0
            try:
                weibull.append(stats.weibull_min.fit(tail, floc=location))
            except RuntimeError as error:
                raise ValueError(
                    "No Weibull distribution fits the distances of class "
                    f"{name!r} from its mean: {error}"
                ) from error
        # Of Weibull's, one row a class: shape, location, scale.
        self.set_statistics(class_means=means, weibull=weibull)

    def call(self, logits):
        known, unknown = self._recalibrated(logits)
        # softmax over the known classes and "unknown".
        probabilities = ops.softmax(
            ops.concatenate([known, unknown], axis=-1), axis=-1
        )
        return probabilities[:, -1]

    def nearest_class(self, outputs):
        known, _ = self._recalibrated(outputs["logits"])
        return nearest_class(-known)

    def _recalibrated(self, logits):
        """Logits of the known classes, (B, N), and of "unknown", (B, 1)."""
        logits = full_precision(logits)
        distances = dense_distances(logits, self.statistic("class_means"))
        shape, location, scale = ops.unstack(
            self.statistic("weibull"), 3, axis=-1
        )
        beyond = ops.maximum(distances - location, 0.0) / scale
        tail_probability = 1.0 - ops.exp(-ops.power(beyond, shape))
        # How many classes have a larger logit; equal ones in their order.
        order = ops.argsort(ops.argsort(-logits, axis=-1), axis=-1)
        weight = 1.0 - ops.cast(order, "float32") / self.rank
        weight = ops.maximum(weight, 0.0) * tail_probability
        unknown = ops.sum(logits * weight, axis=-1, keepdims=True)
        return logits * (1.0 - weight), unknown

    def get_config(self):
        return {
            **super().get_config(),
            "tail_size": self.tail_size,
            "rank": self.rank,
        }
