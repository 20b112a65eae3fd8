# SPDX-License-Identifier: Apache-2.0
"""Trainings that are killed at a certain epoch, and go on."""

import keras
import numpy as np
import pytest


class Killed(Exception):
    """What ends a training here."""


class _KillAt(keras.callbacks.Callback):
    def __init__(self, epoch):
        super().__init__()
        self._epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self._epoch:
            raise Killed


def check_resume(train, where, epoch, folder):
    """Compares a training that was killed with one that was not.

    Args:
        train: function of a folder and of the callbacks of `TrainingRun` that
            returns the model and the run.
        where: name of the training that is killed.
        epoch: at whose beginning.
        folder: `pathlib.Path`.
    """

    def callbacks(name, epochs, steps):
        return [_KillAt(epoch)] if name == where else []

    whole, run = train(folder / "whole", None)
    with pytest.raises(Killed):
        train(folder / "killed", callbacks)
    resumed, again = train(folder / "killed", None)
    assert again.history == run.history
    for one, other in zip(
        resumed.get_weights(), whole.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
