# SPDX-License-Identifier: Apache-2.0
"""What trainings of a generator against a discriminator have in common."""

import keras
from keras import ops

from cac_tf.methods.generated_unknowns.gradients import all_gradients_first
from cac_tf.training.classifier_training import StopsAtNonFiniteLoss


class AdversarialTraining(StopsAtNonFiniteLoss):
    """Several networks that learn in one step, by the sum of their losses.

    A subclass names the `PARTS` of its loss, which appear in the logs, and
    calls `record` with their values in `compute_loss`.
    """

    PARTS: tuple[str, ...] = ()
    IF_NOT_FINITE = "Lower gan_learning_rate."

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._parts = [keras.metrics.Mean(name=name) for name in self.PARTS]

    def build(self, input_shape):
        """The networks are built when they are made."""
        self.built = True

    def compile(self, optimizer, **kwargs):
        """Like `keras.Model.compile`."""
        optimizer = all_gradients_first(keras.optimizers.get(optimizer))
        super().compile(optimizer, **kwargs)

    def record(self, *values):
        """Logs the values of `PARTS` in a step, scalars in that order."""
        for part, value in zip(self._parts, values, strict=True):
            part.update_state(value)


def unit_range(images):
    """Images of values 0...255 as float32 in [0, 1]."""
    return ops.cast(images, "float32") / 255.0
