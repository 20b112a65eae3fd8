# SPDX-License-Identifier: Apache-2.0
"""CAC losses that better_training.py tries: a temperature, mixed images."""

import math

import keras
from keras import ops

from cac_tf.hyperparameters import ANCHOR_WEIGHT
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.losses.cac import anchor_loss
from cac_tf.losses.cac import tuplet_loss


class TriedCAC(keras.losses.Loss):
    """The CAC loss with what the tries change.

    Args:
        temperatures: of the tuplet loss, whose distances are divided by it, at
            the first and at the last step; it rises by half a cosine, as the
            softmax temperature of NegCosSch.
        steps: number of all steps.
        mixed_weight: weight of rows whose label is the number of classes: mixed
            images, which are pulled to the mean of the anchors. A row counts as
            one of the batch.
        magnitude: as of `CACLoss`.
    """

    def __init__(self, temperatures, steps, mixed_weight, magnitude):
        super().__init__(name="tried_cac")
        self._temperatures, self._steps = temperatures, steps
        self._mixed_weight, self._magnitude = mixed_weight, magnitude
        self._temperature = keras.Variable(temperatures[0], trainable=False)

    def at_step(self, step):
        """Sets the temperature of a step."""
        low, high = self._temperatures
        risen = (1 - math.cos(math.pi * step / self._steps)) / 2
        self._temperature.assign(low + (high - low) * risen)

    def call(self, y_true, y_pred):
        logits = ops.cast(y_pred, "float32")
        labels = ops.reshape(ops.cast(y_true, "int32"), (-1,))
        is_mixed = labels == logits.shape[-1]
        labels = ops.where(is_mixed, 0, labels)
        distances = anchored_distances(logits, self._magnitude)
        own = tuplet_loss(labels, distances / self._temperature)
        own = own + ANCHOR_WEIGHT * anchor_loss(labels, distances)
        # (The root's slope at 0 is infinite.)
        center = self._magnitude / logits.shape[-1]
        away = ops.sqrt(ops.sum(ops.square(logits - center), axis=-1) + 1e-6)
        return ops.where(is_mixed, self._mixed_weight * away, own)


class Steps(keras.callbacks.Callback):
    """Tells a `TriedCAC` the step."""

    def __init__(self, loss):
        super().__init__()
        self._loss = loss

    def on_train_batch_begin(self, batch, logs=None):
        self._loss.at_step(int(self.model.optimizer.iterations))
