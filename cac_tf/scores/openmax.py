# SPDX-License-Identifier: Apache-2.0
"""OpenMax (Bendale and Boult, CVPR 2016)."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Tensor
from cac_tf.arguments import whole_number
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.layers.precision import full_precision
from cac_tf.scores.registry import register
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import rows_by_class

stats = lazy.module("scipy.stats")

# Of the distances in a tail, relative to their size: less is rounding.
_SMALLEST_SPREAD = 1e-6


@register
@keras.saving.register_keras_serializable(package="CacTf")
class OpenMax(Score):
    r"""Unknown score \\(p_0\\), the probability of "unknown" by OpenMax.

    \\(p_0\\) is that of \\(v_0 = \sum_j z_j w_j\\) in a softmax over it and all
    \\(v_j = z_j (1 - w_j)\\), with w_j the distance's place in the Weibull
    tail of class j times the weight of its rank.

    `fit` takes, for each class, the mean logits of its correctly classified
    training examples and fits a Weibull distribution to the largest `tail_size`
    distances from it. The `rank` largest logits of an input are then scaled
    down according to how far in the tail its distances from these classes lie.
    The amount removed becomes the logit of "unknown", and a softmax follows.
    Distances are Euclidean; the Weibull fit is SciPy's, with a fixed location,
    as in the authors' libMR. `fit` keeps the logits of all examples (not the
    features) until the means are known.

    A negative logit is scaled toward 0 like any other. It therefore rises, and
    what it gains is subtracted from "unknown", as in the authors' code.

    Paper: Bendale, Boult, *Towards Open Set Deep Networks*, CVPR 2016,
    algorithms 1 and 2.

    Differences: the authors' code also mixes Euclidean and cosine
    distances, and the paper also rejects an input whose largest probability is
    small.

    Cost: O(N^2) per row for N classes; N^2 + 3 N numbers are kept. `fit` keeps
    N numbers of each example.

    Args:
        tail_size: number of distances that each Weibull is fitted to.
        rank: how many of the largest logits are recalibrated (the paper's
            alpha), the i-th with weight 1 - i / rank. If it exceeds the number
            of classes, all logits are recalibrated. None: all, each with weight
            1.
        shift: how far the location of a Weibull lies below the smallest
            distance of its tail: 1 in libMR, 10,000 in the copy that the
            paper's authors used.
        form: "probability", or "log_sum_exp": then the unknown score is
            \\(-\log \sum_j e^{v_j}\\) of the recalibrated logits v of
            the known classes. With `rank=None` this is OpenMax as in Table 1
            of the CAC paper, which Neal et al. (ECCV 2018) had computed.
        **kwargs: `name` of the score.

    Raises:
        ValueError: an argument out of range; in `fit`, a class with fewer
            than three correctly classified examples.

    Example:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> logits = 10 * np.eye(3)[labels] + rng.standard_normal((300, 3))
    >>> score = OpenMax()
    >>> statistics = score.fit(labels, logits=logits)
    >>> inputs = np.float32([[10, 0, 0], [4, 4, 4]])
    >>> np.round(np.asarray(score(inputs, **statistics)), 2)
    array([0., 1.], dtype=float32)
    """

    NAME, IS_FITTED_TO_DATA = "openmax", True
    READS: tuple[str, ...] = ("logits",)
    NEEDS_A_LOGIT_OF_EACH_CLASS = True
    FEWEST_OF_A_CLASS = 3  # a Weibull distribution has three parameters
    # What `is_correct` asks of an example, for messages.
    _CORRECT = "correctly classified examples"

    def __init__(
        self,
        tail_size: int = 20,
        rank: int | None = 10,
        shift: float = 1.0,
        form: str = "probability",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tail_size = whole_number("tail_size", tail_size, least=3)
        self.rank = None if rank is None else whole_number("rank", rank)
        if not (np.isfinite(shift) and shift > 0):
            raise ValueError(f"shift must be finite and > 0; got {shift!r}.")
        if form not in ("probability", "log_sum_exp"):
            raise ValueError(
                f'form must be "probability" or "log_sum_exp"; got {form!r}.'
            )
        self.shift, self.form = float(shift), form

    @property
    def IS_NON_NEGATIVE(self) -> bool:  # type: ignore[override]
        """Whether scores are never below 0."""
        return self.form == "probability"

    def start(self, context: Context) -> Any:
        # By class, the parts that the batches gave.
        return [[] for _ in context.class_names]

    def is_correct(self, batch: KnownBatch) -> np.ndarray:
        """(n,) bool: which examples a fit uses."""
        return batch.is_correct

    def update(self, kept: Any, batch: KnownBatch) -> None:
        right = self.is_correct(batch)
        read = [batch[name][right] for name in self.READS]
        vectors = np.concatenate(read, axis=-1)
        for label, rows in rows_by_class(batch.labels[right]):
            kept[label].append(vectors[rows])

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        means, weibull = [], []
        for name, parts in zip(context.class_names, kept, strict=True):
            count = sum(map(len, parts))
            if count < self.FEWEST_OF_A_CLASS:
                raise ValueError(
                    f"OpenMax needs at least three {self._CORRECT} of each "
                    f"class; class {name!r} has {count}."
                )
            own = np.concatenate(parts, dtype="float64")
            means.append(own.mean(axis=0))
            (distances,) = self.distances(own, means[-1:], _euclidean).T
            tail = np.sort(distances)[-self.tail_size :]
            if not tail[-1] > tail[0] * (1 + _SMALLEST_SPREAD):
                raise ValueError(
                    f"OpenMax needs {self._CORRECT} that differ; the "
                    f"{len(tail)} examples of class {name!r} farthest from "
                    "the mean are all equally far from it."
                )
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
        return {"class_means": means, "weibull": weibull}

    def distances(
        self,
        vectors: Tensor,
        means: Tensor,
        euclidean: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Distances of vectors from the class means, for a subclass to change.

        Args:
            vectors: (B, D): all outputs in `READS`, side by side.
            means: (K, D).
            euclidean: function of two such arguments that gives their
                Euclidean distances, (B, K). In a fit it is one of float64
                arrays, otherwise one of tensors.

        Returns:
            (B, K), >= 0.
        """
        return euclidean(vectors, means)

    def call(self, *read: Tensor, **statistics: Tensor) -> Tensor:
        known, unknown = self._recalibrated(*read, **statistics)
        if self.form == "log_sum_exp":
            return -ops.logsumexp(known, axis=-1)
        # softmax over the known classes and "unknown".
        probabilities = ops.softmax(
            ops.concatenate([known, unknown], axis=-1), axis=-1
        )
        return probabilities[:, -1]

    def predicted_class(self, outputs: Outputs, **statistics: Tensor) -> Tensor:
        read = self.arguments_of(outputs)
        known, _ = self._recalibrated(*read, **statistics)
        return nearest_class(-known)

    def _recalibrated(self, *read, class_means, weibull):
        """Logits of the known classes, (B, N), and of "unknown", (B, 1)."""
        read = [full_precision(output) for output in read]
        distances = self.distances(
            ops.concatenate(read, axis=-1) if len(read) > 1 else read[0],
            class_means,
            dense_distances,
        )
        logits = read[0]
        shape, place, scale = ops.unstack(weibull, 3, axis=-1)
        beyond = ops.maximum((distances - place) / scale, -1.0)
        power = ops.exp(shape * _log1p(beyond))
        # Beyond all tails, the largest logit still tells the class.
        beyond_tail = ops.maximum(ops.exp(-power), 1e-30)
        tail_probability = 1.0 - beyond_tail
        if self.rank is None:
            unknown = ops.sum(logits * tail_probability, axis=-1, keepdims=True)
            return logits * beyond_tail, unknown
        # The number of classes with a larger logit; ties in class order.
        order = ops.argsort(ops.argsort(-logits, axis=-1), axis=-1)
        weight = 1.0 - ops.cast(order, "float32") / self.rank
        weight = ops.maximum(weight, 0.0) * tail_probability
        unknown = ops.sum(logits * weight, axis=-1, keepdims=True)
        return logits * (1.0 - weight), unknown

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "tail_size": self.tail_size,
            "rank": self.rank,
            "shift": self.shift,
            "form": self.form,
        }


def _euclidean(vectors, means):
    """(B, K) distances of NumPy arrays."""
    offsets = np.asarray(vectors)[:, None] - np.asarray(means)
    return np.linalg.norm(offsets, axis=-1)


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
