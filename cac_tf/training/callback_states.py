# SPDX-License-Identifier: Apache-2.0
"""What callbacks remember, as data that a checkpoint can hold."""

import os

import keras

from cac_tf import keras_private


class CallbackStates:
    """The states of callbacks, to be saved and restored.

    Those of Keras' own callbacks are the attributes that
    `keras_private.remembered_by` names, and the length of a CSVLogger's file.
    Another callback has one if it has the methods `get_state()`, which returns
    plain data (see `plain_data.to_json`), and `set_state(state)`. What other
    callbacks remember is not kept.

    A callback is identified by its class and its position among those of its
    class. One that did not exist when the checkpoint was written starts afresh.
    Arguments are not part of a state: they may be different when the training
    is resumed.

    Args:
        callbacks: sequence of Keras callbacks.

    Example:

    >>> stopping = keras.callbacks.ReduceLROnPlateau(patience=3)
    >>> states = CallbackStates([stopping])
    >>> states.before_fit(None, stage_continues=False)
    >>> stopping.on_train_begin()
    >>> states.after_train_begin()
    >>> stopping.wait, stopping.best = 2, 0.25
    >>> saved = states.current()
    >>> saved
    {'ReduceLROnPlateau': {'wait': 2, 'best': 0.25, 'cooldown_counter': 0}}

    In another process:

    >>> stopping = keras.callbacks.ReduceLROnPlateau(patience=5)
    >>> states = CallbackStates([stopping])
    >>> states.before_fit(saved, stage_continues=True)
    >>> stopping.on_train_begin()
    >>> states.after_train_begin()
    >>> stopping.wait, stopping.best, stopping.patience
    (2, 0.25, 5)
    """

    def __init__(self, callbacks):
        self._callbacks = {}
        for callback in callbacks:
            name = kind = type(callback).__name__
            number = 1
            while name in self._callbacks:
                number += 1
                name = f"{kind}:{number}"
            self._callbacks[name] = callback
        self._to_put_back = {}
        self._has_begun = False

    def before_fit(self, saved, stage_continues):
        """Call this before a stage's first `on_train_begin`.

        Args:
            saved: what `current` returned when the checkpoint was written;
                None if these callbacks have been in use all the time.
            stage_continues: whether an epoch of the stage is finished. If so,
                states are restored after `on_train_begin`, which resets most
                callbacks; otherwise before it.
        """
        saved = saved or {}
        for name, callback in self._callbacks.items():
            if isinstance(callback, keras.callbacks.CSVLogger) and (
                self._has_begun or name in saved
            ):
                _go_on_writing(callback, saved.get(name))
        self._has_begun = True
        self._to_put_back = saved
        if not stage_continues:
            self.after_train_begin()

    def after_train_begin(self):
        """Call this after `on_train_begin` of all callbacks."""
        for name, state in self._to_put_back.items():
            if name in self._callbacks:
                _restore(self._callbacks[name], state)
        self._to_put_back = {}

    def current(self):
        """The states, a dict of plain data."""
        return {
            name: _state_of(callback)
            for name, callback in self._callbacks.items()
        }


def _state_of(callback):
    if isinstance(callback, keras.callbacks.CSVLogger):
        return os.path.getsize(callback.filename)
    if hasattr(callback, "get_state"):
        return callback.get_state()
    names = keras_private.remembered_by(callback)
    return {name: getattr(callback, name) for name in names}


def _restore(callback, state):
    if hasattr(callback, "set_state"):
        callback.set_state(state)
    elif not isinstance(callback, keras.callbacks.CSVLogger):
        for name, value in state.items():
            setattr(callback, name, value)


def _go_on_writing(csv_logger, size):
    """Appends to the file, after cutting off lines of later epochs."""
    csv_logger.append = True
    if (
        size is not None
        and os.path.exists(csv_logger.filename)
        and os.path.getsize(csv_logger.filename) > size
    ):
        os.truncate(csv_logger.filename, size)
