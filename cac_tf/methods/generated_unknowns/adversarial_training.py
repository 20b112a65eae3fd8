# SPDX-License-Identifier: Apache-2.0
"""What trainings of a generator against a discriminator have in common."""

import keras
import numpy as np
from keras import ops

# The spread of the generator's images, as a share of that of real images,
# below which nobody could tell them apart.
_SMALLEST_SPREAD = 0.02


class AdversarialTraining(keras.Model):
    """Several networks that learn in one step, by the sum of their losses.

    A subclass names the `PARTS` of its loss, which appear in the logs, and
    calls `record` with their values in `compute_loss`. `IF_NOT_FINITE` says
    what to change if the loss is not finite.
    """

    PARTS: tuple[str, ...] = ()
    IF_NOT_FINITE = "Lower gan_learning_rate."

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._parts = [keras.metrics.Mean(name=name) for name in self.PARTS]

    def build(self, input_shape):
        """The networks are built when they are made."""
        self.built = True

    @property
    def metrics(self):
        return [*super().metrics, *self._parts]

    def record(self, *values):
        """Logs the values of `PARTS` in a step, scalars in that order."""
        for part, value in zip(self._parts, values, strict=True):
            part.update_state(value)

    def fit(self, *args, callbacks=(), **kwargs):
        """Like `keras.Model.fit`.

        Raises:
            FloatingPointError: the loss became NaN or infinite.
        """
        callbacks = [_StopOnNonFiniteLoss(self.IF_NOT_FINITE), *callbacks]
        return super().fit(*args, callbacks=callbacks, **kwargs)


class _StopOnNonFiniteLoss(keras.callbacks.Callback):
    def __init__(self, advice):
        super().__init__()
        self._advice = advice

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is not None and not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss of the generator's training became {float(loss)} "
                f"in batch {batch}. {self._advice}"
            )


def check_not_collapsed(made, images, what, advice):
    """Raises ValueError if generated images hardly differ from each other.

    Args:
        made: (n, H, W, C) generated images in [0, 1].
        images: (m, H, W, C) real images, 0...255.
        what: what they are, for the message.
        advice: what to change, for the message.

    Example:

    >>> images = np.arange(8).reshape(2, 2, 2, 1)
    >>> check_not_collapsed(images / 255, images, "", "")
    >>> check_not_collapsed(  # doctest: +ELLIPSIS
    ...     0 * images, images, "two images", "Raise gan_epochs.")
    Traceback (most recent call last):
    ...
    ValueError: The generator has collapsed: over two images a pixel ...
    """
    spread = np.float64(made).std(axis=0).mean()
    wanted = (np.float64(images) / 255.0).std(axis=0).mean()
    if not spread >= _SMALLEST_SPREAD * wanted:
        raise ValueError(
            f"The generator has collapsed: over {what} a pixel varies by "
            f"{spread:.2g}, over the images by {wanted:.2g}. {advice}"
        )


def unit_range(images):
    """Images of values 0...255 as float32 in [0, 1]."""
    return ops.cast(images, "float32") / 255.0
