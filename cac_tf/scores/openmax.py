# SPDX-License-Identifier: Apache-2.0
"""OpenMax (Bendale and Boult, CVPR 2016)."""

import keras
import numpy as np
from keras import ops

from cac_tf import lazy
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.layers.precision import full_precision
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score

stats = lazy.module("scipy.stats")


@register
@keras.saving.register_keras_serializable(package="CacTf")
class OpenMax(Score):
    r"""Unknown score: the probability that OpenMax gives to "unknown".

    `fit` takes, for each class, the mean logits of its correctly classified
    training examples and fits a Weibull distribution to the largest
    `tail_size` distances from it. The `rank` largest logits of an input are
    then scaled down by how far in the tail its distances from these classes
    lie. The amount taken away becomes the logit of "unknown", and a softmax
    follows. Distances are Euclidean; the Weibull fit is SciPy's, with a fixed
    location, as in the authors' libMR. `fit` keeps the logits of all examples
    (not the features) until the means are known.

    A negative logit is scaled towards 0 like any other. So it rises, and takes
    what it gains from "unknown", as in the authors' code.

    Args:
        tail_size: number of distances that each Weibull is fitted to.
        rank: how many of the largest logits are recalibrated (the paper's
            alpha), the i-th with the weight 1 - i / rank. If it exceeds the
            number of classes, all logits are recalibrated. None: all, each
            with the weight 1.
        shift: how far the location of a Weibull lies below the smallest
            distance of its tail: 1 in libMR, 10,000 in the copy that the
            paper's authors used.
        form: "probability", or "log_sum_exp": then the unknown score is
            \\(-\log \sum_j e^{v_j}\\) of the recalibrated logits v of
            the known classes. With `rank=None` this is OpenMax as in Table 1
            of the CAC paper, which Neal et al. (ECCV 2018) had computed.
        **kwargs: passed to `keras.layers.Layer`.

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

    NAME, READS, IS_FITTED_TO_DATA = "openmax", ("logits",), True

    def __init__(
        self, tail_size=20, rank=10, shift=1.0, form="probability", **kwargs
    ):
        super().__init__(**kwargs)
        if tail_size < 3:
            raise ValueError(f"tail_size must be at least 3; got {tail_size}.")
        if rank is not None and rank < 1:
            raise ValueError(f"rank must be at least 1, or None; got {rank}.")
        if not (np.isfinite(shift) and shift > 0):
            raise ValueError(f"shift must be finite and > 0; got {shift!r}.")
        if form not in ("probability", "log_sum_exp"):
            raise ValueError(
                f'form must be "probability" or "log_sum_exp"; got {form!r}.'
            )
        self.tail_size, self.shift = int(tail_size), float(shift)
        self.rank = None if rank is None else int(rank)
        self.form = form

    @property
    def IS_NON_NEGATIVE(self):
        """Whether scores are never below 0."""
        return self.form == "probability"

    def start_fit(self, num_classes):
        return [], []

    def add_batch(self, kept, batch):
        right = batch.is_correct
        logits, labels = kept
        logits.append(batch["logits"][right])
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
            location = tail[0] - self.shift
            try:
                shape, _, scale = stats.weibull_min.fit(tail, floc=location)
            except RuntimeError as error:
                raise ValueError(
                    "No Weibull distribution fits the distances of class "
                    f"{name!r} from its mean: {error}"
                ) from error
            weibull.append((shape, location + scale, scale))
        # Weibull parameters, one row per class: shape, location + scale, scale.
        # (In float32 the location alone would be too coarse where the shift is
        # large: the distances differ from it by far more than from each other.)
        self.set_statistics(class_means=means, weibull=weibull)

    def call(self, logits):
        known, unknown = self._recalibrated(logits)
        if self.form == "log_sum_exp":
            return -ops.logsumexp(known, axis=-1)
        # softmax over the known classes and "unknown".
        probabilities = ops.softmax(
            ops.concatenate([known, unknown], axis=-1), axis=-1
        )
        return probabilities[:, -1]

    def predicted_class(self, outputs):
        known, _ = self._recalibrated(outputs["logits"])
        return nearest_class(-known)

    def _recalibrated(self, logits):
        """Logits of the known classes, (B, N), and of "unknown", (B, 1)."""
        logits = full_precision(logits)
        distances = dense_distances(logits, self.statistic("class_means"))
        shape, place, scale = ops.unstack(self.statistic("weibull"), 3, axis=-1)
        beyond = ops.maximum((distances - place) / scale, -1.0)
        power = ops.exp(shape * _log1p(beyond))
        tail_probability = 1.0 - ops.exp(-power)
        if self.rank is None:
            unknown = ops.sum(logits * tail_probability, axis=-1, keepdims=True)
            return logits * (1.0 - tail_probability), unknown
        # The number of classes with a larger logit; ties in class order.
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
            "shift": self.shift,
            "form": self.form,
        }


def _log1p(x):
    r"""log(1 + x) as precise as `ops.log1p`, which ONNX does not have.

    For small x, where 1 + x rounds, \\(2 \operatorname{artanh}(s)\\) with
    s = x / (2 + x), as a series.
    """
    s = x / (2.0 + x)
    squared, series = s * s, 0.0
    for degree in (11, 9, 7, 5, 3, 1):
        series = series * squared + 1.0 / degree
    is_small = ops.abs(x) < 0.4
    return ops.where(is_small, 2.0 * s * series, ops.log(1.0 + x))
