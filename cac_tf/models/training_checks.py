# SPDX-License-Identifier: Apache-2.0
"""Checks before and during the training of a classifier."""

import keras
import numpy as np

from cac_tf import keras_private
from cac_tf.labels import UNKNOWN
from cac_tf.labels import check_labels
from cac_tf.models import input_checks
from cac_tf.models.raw_inputs import RawInputs

_ADVICE = (
    "Labels and images were checked and are valid, so the training diverged: "
    "a lower learning rate is the usual remedy."
)
_ADVICE_WITHOUT_CHECK = (
    "This kind of data set could not be checked on the way in. Either a label "
    "is no whole number in 0...N-1 (its loss is then NaN), or an image holds "
    "NaN or infinity, or the training diverged (use a lower learning rate)."
)


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Ends training with an error when the loss is NaN or infinite.

    Args:
        advice: the likely cause and what to change, for the message of its
            FloatingPointError.
    """

    def __init__(self, advice):
        super().__init__()
        self._advice = advice
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is not None and not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss of {self.model.name} became {float(loss)} in epoch "
                f"{self._epoch + 1}, batch {batch}. {self._advice} The weights "
                "are no longer usable."
            )


class StartOfTraining(keras.callbacks.Callback):
    """Calls a function as the training begins, after Keras' own checks.

    Args:
        function: takes no argument.
    """

    def __init__(self, function):
        super().__init__()
        self._function = function

    def on_train_begin(self, logs=None):
        self._function()


def with_own_callbacks(callbacks, begin, inputs_are_checked, metrics):
    """The callbacks between two: of the beginning, and of a loss not finite.

    Where a callback finds out by itself whether its metric should rise or fall,
    its attribute `mode` is set: Keras looks for that only among metrics that
    Keras compiled.

    Args:
        callbacks: as `fit` takes them.
        begin: function that is called as the training begins.
        inputs_are_checked: whether labels and images were checked.
        metrics: those of the model.
    """
    stop = StopOnNonFiniteLoss(
        _ADVICE if inputs_are_checked else _ADVICE_WITHOUT_CHECK
    )
    if isinstance(callbacks, keras.callbacks.CallbackList):
        # Keras makes a new one: whether callbacks may run in other threads is
        # found out as it is made.
        callbacks = callbacks.callbacks
    if callbacks is None:
        callbacks = []
    elif not isinstance(callbacks, (list, tuple)):
        callbacks = [callbacks]
    modes = {one.name: keras_private.mode_of(one) for one in metrics}
    for callback in callbacks:
        if getattr(callback, "mode", None) == "auto":
            name = str(getattr(callback, "monitor", ""))
            callback.mode = modes.get(name.removeprefix("val_")) or "auto"
    return [StartOfTraining(begin), *callbacks, stop]


def checked_training_data(model, x, y):
    """The data to train on, and label counts.

    Args:
        model: `OpenSetClassifier`.
        x: array of inputs, or a data set of batches.
        y: labels for an array.

    Returns:
        The inputs, or a data set that checks its batches as it is read; an
        (N,) array that counts labels (None: such data cannot be checked); and
        the `RawInputs`, to be finished after a data set was read.

    Raises:
        ValueError: invalid labels, an input that is not finite, a shape other
            than the model's, or a class without an example.
    """
    x, counts, inputs = _checked(
        model, x, y, allow_unknown=model.takes_negatives
    )
    if input_checks.is_array(x):
        absent = input_checks.absent_classes(counts, model.class_names)
        if absent:
            raise ValueError(
                f"These classes have no training example: {absent}. "
                "Every known class needs at least one."
            )
    return x, counts, inputs


def checked_validation_data(model, data):
    """The same for the validation data of `fit`, which may be None."""
    if data is None:
        return None
    if isinstance(data, (tuple, list)):
        x, y, *weights = (*data, None) if len(data) == 1 else data
        x = _checked(model, x, y, allow_unknown=True)[0]
        # Keras takes no list of labels. (A data set has its own.)
        return (x, None if y is None else np.asarray(y), *weights)
    return _checked(model, data, None, allow_unknown=True)[0]


def _checked(model, x, y, allow_unknown):
    num_classes = len(model.class_names)
    inputs = RawInputs(model.network)
    x = input_checks.as_data(x)
    if not input_checks.is_array(x):
        data, counts = input_checks.checked_batches(
            x, num_classes, allow_unknown, inputs.check
        )
        return data, counts, inputs
    labels = check_batch(model, x, y, allow_unknown, inputs)
    inputs.finish()
    known = labels[labels != UNKNOWN]
    return x, np.bincount(known, minlength=num_classes), inputs


def check_batch(model, x, y, allow_unknown, inputs):
    """Checks arrays of inputs and labels.

    Args:
        model: `OpenSetClassifier`.
        x: array of inputs.
        y: labels.
        allow_unknown: whether the label -1 is allowed.
        inputs: `RawInputs`.

    Returns:
        The labels, whole numbers.

    Raises:
        ValueError: as `checked_training_data`; numbers of labels and inputs
            that differ.
    """
    if y is None:
        raise ValueError("Training on arrays needs labels: pass y.")
    labels = check_labels(y, len(model.class_names), allow_unknown)
    if len(labels) != len(x):
        raise ValueError(f"There are {len(labels)} labels for {len(x)} inputs.")
    inputs.check(x, what="Images")
    return labels
