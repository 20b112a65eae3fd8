# SPDX-License-Identifier: Apache-2.0
"""Keras metrics on distances, for use inside `fit` and `evaluate`.

Labels are class indices; -1 stands for an unknown input, which counts in
`OpenSetAUROC` only.
"""

import keras
import numpy as np
from keras import ops

from cac_tf.layers.open_set_decision import UNKNOWN
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.losses.cac import anchor_loss
from cac_tf.losses.cac import tuplet_loss
from cac_tf.losses.cross_entropy import cross_entropy


class _MeanOverKnown(keras.metrics.Mean):
    """Mean of a per-example value over the inputs of known classes.

    Subclasses name the value, a function of labels and distances.
    """

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.cast(ops.reshape(y_true, (-1,)), self.dtype)
        is_known = ops.not_equal(labels, UNKNOWN)
        weights = ops.cast(is_known, self.dtype)
        if sample_weight is not None:
            weights *= ops.cast(ops.reshape(sample_weight, (-1,)), self.dtype)
        values = self._values(ops.where(is_known, labels, 0), y_pred)
        return super().update_state(values, sample_weight=weights)


def _is_nearest(labels, distances):
    """1 where the nearest centre is that of the label, else 0."""
    nearest = nearest_class(ops.convert_to_tensor(distances))
    return ops.cast(
        ops.equal(ops.cast(nearest, labels.dtype), labels), labels.dtype
    )


@keras.saving.register_keras_serializable(package="CacTf")
class NearestCentreAccuracy(_MeanOverKnown):
    """Share of known inputs whose nearest centre is that of their class.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.NearestCentreAccuracy()
    >>> _ = metric.update_state([0, 1, -1], np.float32([[1, 2]] * 3))
    >>> float(metric.result())
    0.5
    """

    _values = staticmethod(_is_nearest)

    def __init__(self, name="accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "up"


@keras.saving.register_keras_serializable(package="CacTf")
class AnchorLoss(_MeanOverKnown):
    """Mean anchor loss, the distance to the own class's centre.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.AnchorLoss()
    >>> _ = metric.update_state([0, 1], np.float32([[1, 5], [5, 2]]))
    >>> float(metric.result())
    1.5
    """

    _values = staticmethod(anchor_loss)

    def __init__(self, name="anchor_loss", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "down"


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

    def __init__(self, name="tuplet_loss", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "down"


@keras.saving.register_keras_serializable(package="CacTf")
class CrossEntropy(_MeanOverKnown):
    """Mean softmax cross-entropy of the logits, from distances to anchors.

    Args:
        magnitude: length of the anchors.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.CrossEntropy()
    >>> d = cac_tf.layers.anchored_distances(np.float32([[2, 0]]), 10.0)
    >>> _ = metric.update_state([0], d)
    >>> round(float(metric.result()), 4)
    0.1269
    """

    def __init__(self, magnitude=10.0, name="cross_entropy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.magnitude = float(magnitude)
        self._direction = "down"

    def _values(self, labels, distances):
        return cross_entropy(labels, distances, self.magnitude)

    def get_config(self):
        return {**super().get_config(), "magnitude": self.magnitude}


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetAUROC(keras.metrics.AUC):
    """Streaming AUROC of known against unknown inputs (label -1).

    The unknown score is the smallest gamma of each row. Keras' AUC counts in
    buckets over [0, 1]; scores are put there on a logarithmic scale from
    1e-8 to 1e4, with `num_thresholds` = 2000 in steps of 1.4 %, so the value
    is close to the exact one of `metrics.auroc` (2e-3 and better), not equal.

    Without unknown (or without known) inputs the result is 0.

    Example:

    >>> import numpy as np, cac_tf
    >>> metric = cac_tf.metrics.OpenSetAUROC()
    >>> distances = np.float32([[0, 14], [14, 1], [7, 8]])
    >>> _ = metric.update_state([0, 1, -1], distances)
    >>> round(float(metric.result()), 3)
    1.0
    """

    _LOWEST, _HIGHEST = 1e-8, 1e4

    def __init__(self, num_thresholds=2000, name="auroc", dtype=None):
        super().__init__(num_thresholds=num_thresholds, name=name, dtype=dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        is_unknown = ops.equal(ops.reshape(y_true, (-1,)), UNKNOWN)
        score = ops.min(rejection_scores(y_pred), axis=-1)
        span = np.log(self._HIGHEST / self._LOWEST)
        score = ops.clip(score, self._LOWEST, self._HIGHEST)
        position = ops.log(score / self._LOWEST) / span
        return super().update_state(is_unknown, position, sample_weight)

    def get_config(self):
        return {
            "num_thresholds": self.num_thresholds,
            "name": self.name,
            "dtype": self.dtype,
        }
