# SPDX-License-Identifier: Apache-2.0
"""Softmax cross-entropy of a classifier that gives distances to anchors."""

import keras
from keras import ops

from cac_tf.losses.cac import tuplet_loss
from cac_tf.precision import full_precision


def cross_entropy(labels, distances, magnitude=10.0):
    r"""Softmax cross-entropy of the logits, from distances to anchors.

    From \\(d_j^2 = \|z\|^2 - 2 \alpha z_j + \alpha^2\\) follows
    \\(z_j = -d_j^2 / 2 \alpha\\) up to a number that all classes share and
    that the softmax takes out again. So a baseline trains the same
    `OpenSetClassifier` as the method it is compared with.

    Args:
        labels: (B,) or (B, 1) class indices.
        distances: (B, N) distances to the anchors, >= 0.
        magnitude: length of the anchors.

    Returns:
        (B,) losses, at least float32; NaN where the label is invalid.

    Example:

    >>> import numpy as np, cac_tf
    >>> d = cac_tf.layers.anchored_distances(np.float32([[2, 0]]), 10.0)
    >>> np.round(np.asarray(cross_entropy([0], d)), 4)  # log(1 + e^-2)
    array([0.1269], dtype=float32)
    """
    distances = full_precision(distances)
    # The tuplet loss of d is the cross-entropy over softmin(d).
    return tuplet_loss(labels, ops.square(distances) / (2.0 * magnitude))


@keras.saving.register_keras_serializable(package="CacTf")
class CrossEntropyLoss(keras.losses.Loss):
    """Softmax cross-entropy as a Keras loss on distances to anchors.

    Args:
        magnitude: length of the anchors, that of the classifier.
        reduction: as in every Keras loss.
        name: as in every Keras loss.

    Example:

    >>> import numpy as np, cac_tf
    >>> loss = cac_tf.losses.CrossEntropyLoss(magnitude=10.0)
    >>> d = cac_tf.layers.anchored_distances(np.float32([[2, 0]]), 10.0)
    >>> round(float(loss([0], d)), 4)
    0.1269
    """

    def __init__(
        self,
        magnitude=10.0,
        reduction="sum_over_batch_size",
        name="cross_entropy",
        **kwargs,
    ):
        super().__init__(reduction=reduction, name=name, **kwargs)
        if not magnitude > 0:
            raise ValueError(f"magnitude must be > 0; got {magnitude!r}.")
        self.magnitude = float(magnitude)

    def call(self, y_true, y_pred):
        return cross_entropy(y_true, y_pred, self.magnitude)

    def get_config(self):
        return {**super().get_config(), "magnitude": self.magnitude}
