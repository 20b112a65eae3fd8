# SPDX-License-Identifier: Apache-2.0
"""Keras metrics for use inside `fit` and `evaluate`.

Each names the outputs that it reads in `READS`, as losses do. Labels are
class indices; -1 stands for an unknown input, which only `OpenSetAUROC`
counts.
"""

from typing import Any
from typing import Self

import keras
from keras import ops

from cac_tf import keras_private
from cac_tf import scores
from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.labels import UNKNOWN
from cac_tf.layers.open_set_decision import class_of_logits
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.losses.cac import anchor_loss
from cac_tf.losses.cac import tuplet_loss
from cac_tf.losses.cross_entropy import cross_entropy
from cac_tf.losses.loss import is_known
from cac_tf.losses.loss import is_label
from cac_tf.losses.loss import known_labels


class _MeanOverKnown(keras.metrics.Mean):
    """Mean of a per-example value over the inputs of known classes.

    Subclasses define the value, a function of the labels and what is read: the
    output in `READS`, or a dict of it and those in `MAY_READ` that there are.
    """

    READS: tuple[str, ...] = ("distances",)

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.reshape(y_true, (-1,))
        is_counted = is_known(labels)
        weights = ops.cast(is_counted, self.dtype)
        if sample_weight is not None:
            weights *= ops.cast(ops.reshape(sample_weight, (-1,)), self.dtype)
        values = self._values(known_labels(labels), y_pred)
        # A weight of 0 leaves a NaN as NaN.
        values = ops.where(is_counted, values, 0.0)
        return super().update_state(values, sample_weight=weights)


def _is_nearest(labels, distances):
    """1 where the nearest center is that of the label, else 0."""
    return _is_own(labels, nearest_class(ops.convert_to_tensor(distances)))


def _is_own(labels, classes):
    """1 where the class is that of the label, else 0."""
    labels = ops.cast(labels, classes.dtype)
    return ops.cast(ops.equal(classes, labels), "float32")


@keras.saving.register_keras_serializable(package="CacTf")
class NearestCenterAccuracy(_MeanOverKnown):
    """Share of known inputs whose nearest center is that of their class.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.NearestCenterAccuracy()
    >>> _ = metric.update_state([0, 1, -1], np.float32([[1, 2]] * 3))
    >>> float(metric.result())
    0.5
    """

    _values = staticmethod(_is_nearest)

    def __init__(self, name: str = "accuracy", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        keras_private.set_direction(self, "up")


@keras.saving.register_keras_serializable(package="CacTf")
class AnchorLoss(_MeanOverKnown):
    """Mean anchor loss, the distance to the own class's center.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.AnchorLoss()
    >>> _ = metric.update_state([0, 1], np.float32([[1, 5], [5, 2]]))
    >>> float(metric.result())
    1.5
    """

    _values = staticmethod(anchor_loss)

    def __init__(self, name: str = "anchor_loss", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        keras_private.set_direction(self, "down")


@keras.saving.register_keras_serializable(package="CacTf")
class TupletLoss(_MeanOverKnown):
    """Mean tuplet loss.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.TupletLoss()
    >>> _ = metric.update_state([0], np.float32([[3, 4]]))
    >>> round(float(metric.result()), 4)
    0.3133
    """

    _values = staticmethod(tuplet_loss)

    def __init__(self, name: str = "tuplet_loss", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        keras_private.set_direction(self, "down")


@keras.saving.register_keras_serializable(package="CacTf")
class LargestLogitAccuracy(_MeanOverKnown):
    """Share of known inputs whose largest logit is that of their class.

    In a classifier, logits beyond those of the classes do not count; where
    there are fewer, the closest center does.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.LargestLogitAccuracy()
    >>> _ = metric.update_state([0, 1, -1], np.float32([[2, 1]] * 3))
    >>> float(metric.result())
    0.5
    """

    READS = ("logits",)
    MAY_READ = ("distances",)

    def __init__(self, name: str = "accuracy", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        keras_private.set_direction(self, "up")

    @staticmethod
    def _values(labels, outputs):
        if isinstance(outputs, dict):
            return _is_own(labels, class_of_logits(**outputs))
        return _is_nearest(labels, -ops.convert_to_tensor(outputs))


@keras.saving.register_keras_serializable(package="CacTf")
class CrossEntropy(_MeanOverKnown):
    """Mean softmax cross-entropy of the logits.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.CrossEntropy()
    >>> _ = metric.update_state([0], np.float32([[2, 0]]))
    >>> round(float(metric.result()), 4)
    0.1269
    """

    READS = ("logits",)
    _values = staticmethod(cross_entropy)

    def __init__(self, name: str = "cross_entropy", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        keras_private.set_direction(self, "down")


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetAUROC(keras.metrics.AUC):
    """Streaming AUROC of known against unknown inputs (label -1).

    Keras' AUC counts in buckets over [0, 1]. Scores are mapped into this range
    on a scale that is logarithmic around 0 and around -1 and 1, where
    probabilities crowd: two scores differ if their distances from the nearest
    of these differ by 1.6 %, from 1e-8 to 1e4, with 8000 thresholds. So the
    value is close to the exact one of `metrics.auroc` (mostly to 2e-3), but not
    equal to it. It is not for scores that all lie close to another number, such
    as those of `Energy` with a high temperature.

    Without unknown (or without known) inputs the result is 0.

    Args:
        score: a score that needs no fitting: its name or a `scores.Score`.
        num_thresholds: number of buckets.
        name: name of the metric.
        dtype: type of the computation.

    Call arguments:
        y_true: (B,) class indices or -1.
        y_pred: what the score reads: one output, or a dict by name.

    Raises:
        ValueError: a score that has to be fitted.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.OpenSetAUROC(score="min_distance")
    >>> distances = np.float32([[0, 14], [14, 1], [7, 8]])
    >>> _ = metric.update_state([0, 1, -1], distances)
    >>> round(float(metric.result()), 3)
    1.0
    """

    _LOWEST, _HIGHEST = 1e-8, 1e4

    def __init__(
        self,
        score: str | scores.Score = "gamma",
        num_thresholds: int = 8000,
        name: str = "auroc",
        dtype: Any = None,
    ) -> None:
        super().__init__(num_thresholds=num_thresholds, name=name, dtype=dtype)
        self.score = scores.get(score)
        if self.score.IS_FITTED_TO_DATA:
            raise ValueError(
                f"The score {self.score.name!r} is fitted after training, "
                "so it cannot be monitored during training."
            )

    @property
    def READS(self) -> tuple[str, ...]:
        return self.score.READS

    def update_state(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Any:
        is_unknown = is_label(ops.reshape(y_true, (-1,)), UNKNOWN)
        values = [y_pred]
        if isinstance(y_pred, dict):
            values = self.score.arguments_of(y_pred)
        score = self.score(*values)
        # Rejected by every theta, as in a decision.
        score = ops.where(ops.isnan(score), self._HIGHEST, score)
        # In [0, 1], in the order of the scores.
        size = ops.minimum(ops.abs(score), self._HIGHEST)
        up_to_one = ops.minimum(size, 1.0)
        steps = (
            self._steps(up_to_one)
            + self._steps(1.0)
            - self._steps(1.0 - up_to_one)
            + self._steps(size - up_to_one)
        )
        most = 2 * self._steps(1.0) + self._steps(self._HIGHEST - 1.0)
        position = 0.5 + 0.5 * ops.sign(score) * steps / most
        return super().update_state(is_unknown, position, sample_weight)

    def _steps(self, distance):
        """Logarithm of a distance of 0 and more, in units of the smallest."""
        return ops.log1p(distance / self._LOWEST)

    def get_config(self) -> Config:
        return {
            "score": keras.saving.serialize_keras_object(self.score),
            "num_thresholds": self.num_thresholds,
            "name": self.name,
            "dtype": self.dtype,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        score = keras.saving.deserialize_keras_object(config["score"])
        return cls(**{**config, "score": score})
