# SPDX-License-Identifier: Apache-2.0
"""Trainings that are killed at a certain epoch, and go on."""

import shutil

import keras
import numpy as np


class _CopyAt(keras.callbacks.Callback):
    """Copies a folder at the beginning of an epoch: what a kill leaves."""

    def __init__(self, epoch, folder, copy):
        super().__init__()
        self._epoch, self._paths = epoch, (folder, copy)

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self._epoch:
            shutil.copytree(*self._paths)


def check_resume(train, where, epoch, folder):
    """Compares a training with one that goes on from the middle of it.

    Args:
        train: function of a folder and of the callbacks of `TrainingRun`, None
            where it goes on, that returns the model and the run.
        where: name of the training that is killed.
        epoch: at whose beginning.
        folder: `pathlib.Path`.
    """
    paths = folder / "whole", folder / "copy"

    def callbacks(name, epochs, steps):
        return [_CopyAt(epoch, *paths)] if name == where else []

    whole, run = train(paths[0], callbacks)
    resumed, again = train(paths[1], None)
    assert again.history == run.history
    for one, other in zip(
        resumed.get_weights(), whole.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
