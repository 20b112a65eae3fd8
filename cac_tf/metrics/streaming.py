# SPDX-License-Identifier: Apache-2.0
"""Keras metrics for use inside `fit` and `evaluate`.

They read logits, as losses do; one that reads other outputs names them in
`READS`. Labels are class indices; -1 stands for an unknown input, which only
`OpenSetAUROC` counts.
"""

from typing import Any
from typing import Self

import keras
from keras import ops

from cac_tf import keras_private
from cac_tf import scores
from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.labels import UNKNOWN
from cac_tf.layers.anchored_distance import checked_magnitude
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.losses.cac import OfDistances
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import is_known
from cac_tf.losses.loss import is_label
from cac_tf.losses.loss import known_labels
from cac_tf.scores.gamma import scores_of_anchors


class _MeanOverKnown(keras.metrics.Mean):
    """Mean of a per-example value over the inputs of known classes.

    Subclasses define the value, a function of labels and logits.
    """

    READS: tuple[str, ...] = ("logits",)
    _DIRECTION = "down"

    def __init__(self, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(name=name or self.NAME, dtype=dtype)
        keras_private.set_direction(self, self._DIRECTION)

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.reshape(y_true, (-1,))
        is_counted = is_known(labels)
        weights = ops.cast(is_counted, self.dtype)
        if sample_weight is not None:
            given = ops.cast(ops.reshape(sample_weight, (-1,)), self.dtype)
            weights = ops.where(is_counted, given, 0.0)
        values = self._values(known_labels(labels), y_pred)
        # A weight of 0 leaves a NaN as NaN.
        values = ops.where(is_counted, values, 0.0)
        return super().update_state(values, sample_weight=weights)


@keras.saving.register_keras_serializable(package="CacTf")
class KnownAccuracy(_MeanOverKnown):
    """Share of the known inputs whose largest logit is their class's.

    Keras' own "accuracy" counts rows labeled -1 as wrong.

    Args:
        from_distances: whether `y_pred` is the output of
            `layers.ClassDistances` instead of logits.
        **kwargs: `name`, `dtype`, as for every Keras metric.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.KnownAccuracy()
    >>> _ = metric.update_state([0, 1, -1], np.float32([[2, 1]] * 3))
    >>> float(metric.result())
    0.5
    """

    NAME, _DIRECTION = "accuracy", "up"

    def __init__(self, *, from_distances: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.from_distances = bool(from_distances)
        if self.from_distances:
            self.READS = ("class_distances",)

    def get_config(self) -> Config:
        return {**super().get_config(), "from_distances": self.from_distances}

    @staticmethod
    def _values(labels, logits):
        classes = nearest_class(-ops.convert_to_tensor(logits))
        labels = ops.cast(labels, classes.dtype)
        return ops.cast(ops.equal(classes, labels), "float32")


@keras.saving.register_keras_serializable(package="CacTf")
class AnchorLoss(OfDistances, _MeanOverKnown):
    """Mean anchor loss, the distance to the true class's anchor (equation 4).

    Args:
        magnitude, from_distances: as of `losses.CACLoss`.
        **kwargs: `name`, `dtype`, as for every Keras metric.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.AnchorLoss()
    >>> _ = metric.update_state([0, 1], np.float32([[9, 0], [0, 8]]))
    >>> float(metric.result())
    1.5
    """

    NAME = "anchor_loss"

    def _values(self, labels, values):
        return self.terms(labels, values)[0]


@keras.saving.register_keras_serializable(package="CacTf")
class TupletLoss(OfDistances, _MeanOverKnown):
    """Mean tuplet loss (equation 2).

    Args:
        magnitude, from_distances: as of `losses.CACLoss`.
        **kwargs: `name`, `dtype`, as for every Keras metric.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.TupletLoss(from_distances=True)
    >>> _ = metric.update_state([0], np.float32([[-3, -4]]))
    >>> round(float(metric.result()), 4)
    0.3133
    """

    NAME = "tuplet_loss"

    def _values(self, labels, values):
        return self.terms(labels, values)[1]


@keras.saving.register_keras_serializable(package="CacTf")
class CrossEntropy(_MeanOverKnown):
    """Mean softmax cross-entropy of the logits.

    Args:
        name, dtype: as for every Keras metric.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.CrossEntropy()
    >>> _ = metric.update_state([0], np.float32([[2, 0]]))
    >>> round(float(metric.result()), 4)
    0.1269
    """

    NAME = "cross_entropy"
    _values = staticmethod(cross_entropy)


def _steps(distance, smallest):
    """Logarithm of a distance of 0 and more, in units of the smallest."""
    return ops.log1p(distance / smallest)


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetAUROC(keras.metrics.AUC):
    """Streaming AUROC of known against unknown inputs (label -1).

    Keras' AUC counts in buckets over [0, 1]. Scores are mapped into this range
    on a scale that is logarithmic around 0, -1 and 1, where probabilities
    cluster: with 8000 thresholds, two scores are distinguished if their
    distances from the nearest of these differ by 3 %, from 1e-30 (around 1 and
    -1, 1e-8) to 1e4. The value is therefore close to the exact one of
    `metrics.auroc` (usually within 2e-3), but not equal. Do not use it for
    scores that all lie close to some other number, such as those of `Energy`
    with a high temperature.

    Without unknown (or without known) inputs the result is 0.

    Args:
        score: a score that needs no fitting: its name or a `scores.Score`.
        magnitude: length of the anchors, for a score that reads distances, such
            as "gamma".
        num_thresholds: number of buckets.
        name: name of the metric.
        dtype: type of the computation.

    Call arguments:
        y_true: (B,) class indices or -1.
        y_pred: (B, N) logits, or a dict of outputs by name if the score reads
            others.

    Raises:
        ValueError: a score that has to be fitted.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.OpenSetAUROC(score="min_distance")
    >>> logits = np.float32([[10, 0], [0, 9], [4, 5]])
    >>> _ = metric.update_state([0, 1, -1], logits)
    >>> round(float(metric.result()), 3)
    1.0
    """

    # (float32 has no finer steps around 1.)
    _LOWEST, _LOWEST_FROM_ONE, _HIGHEST = 1e-30, 1e-8, 1e4

    def __init__(
        self,
        score: str | scores.Score = "gamma",
        magnitude: float = MAGNITUDE,
        num_thresholds: int = 8000,
        name: str = "auroc",
        dtype: Any = None,
    ) -> None:
        super().__init__(num_thresholds=num_thresholds, name=name, dtype=dtype)
        self.score = scores.get(score)
        self.magnitude = checked_magnitude(magnitude)
        if self.score.IS_FITTED_TO_DATA:
            raise ValueError(
                f"The score {self.score.name!r} is fitted after training, so "
                "it cannot be monitored during training."
            )

    @property
    def READS(self) -> tuple[str, ...]:
        of_network = set(self.score.READS) - {"distances", "gamma"}
        return tuple(sorted(of_network)) or ("logits",)

    def update_state(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Any:
        is_unknown = is_label(ops.reshape(y_true, (-1,)), UNKNOWN)
        outputs = y_pred
        if not isinstance(outputs, dict):
            (name,) = self.READS
            outputs = {name: y_pred}
        if self.score.reads_distances:
            found = scores_of_anchors(outputs["logits"], self.magnitude)
            outputs = {
                **outputs,
                "distances": found.distances,
                "gamma": found.gamma,
            }
        score = self.score(*self.score.arguments_of(outputs))
        # Rejected by every threshold, as in a decision.
        score = ops.where(ops.isnan(score), self._HIGHEST, score)
        # In [0, 1], in the order of the scores.
        size = ops.minimum(ops.abs(score), self._HIGHEST)
        up_to_one = ops.minimum(size, 1.0)
        steps = (
            _steps(up_to_one, self._LOWEST)
            + _steps(1.0, self._LOWEST_FROM_ONE)
            - _steps(1.0 - up_to_one, self._LOWEST_FROM_ONE)
            + _steps(size - up_to_one, self._LOWEST_FROM_ONE)
        )
        most = (
            _steps(1.0, self._LOWEST)
            + _steps(1.0, self._LOWEST_FROM_ONE)
            + _steps(self._HIGHEST - 1.0, self._LOWEST_FROM_ONE)
        )
        position = 0.5 + 0.5 * ops.sign(score) * steps / most
        if sample_weight is not None:
            sample_weight = ops.reshape(sample_weight, (-1,))
        return super().update_state(is_unknown, position, sample_weight)

    def get_config(self) -> Config:
        return {
            "score": keras.saving.serialize_keras_object(self.score),
            "magnitude": self.magnitude,
            "num_thresholds": self.num_thresholds,
            "name": self.name,
            "dtype": self.dtype,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        score = keras.saving.deserialize_keras_object(config["score"])
        return cls(**{**config, "score": score})
