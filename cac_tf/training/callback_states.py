# SPDX-License-Identifier: Apache-2.0
"""The states of Keras callbacks, as data that a checkpoint can hold."""

import json
import os
import zlib

import keras
import numpy as np

# Plain data, but not state: MonitorCallback changes the sign of `min_delta`
# when it first sees which direction is better, and does so in each process;
# `params` are the arguments of the current `fit`.
_NOT_STATE = {"min_delta", "params"}
# A log file that is appended to: its length is part of the state.
_FILE_SIZE = "size of the file"


class CallbackStates:
    """The states of callbacks, to be saved and restored.

    A callback is identified by its class and its position among those of its
    class. One that did not exist when the checkpoint was written starts afresh.
    Its state is made of the attributes that are plain data (None, numbers,
    strings, arrays, and lists, tuples and dicts of these) and that have changed
    since its first `on_train_begin`. Arguments that never changed are not part
    of it: they may be different when the training is resumed.

    Args:
        callbacks: sequence of Keras callbacks.

    Example:

    >>> stopping = keras.callbacks.EarlyStopping(patience=3)
    >>> states = CallbackStates([stopping])
    >>> stopping.on_train_begin()
    >>> states.after_train_begin()
    >>> stopping.wait, stopping.best = 2, 0.25
    >>> saved = states.current()
    >>> saved
    {'EarlyStopping': {'best': 0.25, 'wait': 2}}

    In another process:

    >>> stopping = keras.callbacks.EarlyStopping(patience=5)
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
        self._at_first = None  # fingerprints of the attributes
        self._state_names = {name: set() for name in self._callbacks}
        self._to_put_back = {}

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
            self._state_names[name] |= {
                each for each in saved.get(name, {}) if each != _FILE_SIZE
            }
            if isinstance(callback, keras.callbacks.CSVLogger):
                size = saved.get(name, {}).get(_FILE_SIZE)
                if size is not None or self._at_first is not None:
                    _go_on_writing(callback, size)
        self._to_put_back = saved
        if not stage_continues:
            self._put_back()

    def after_train_begin(self):
        """Call this after `on_train_begin` of all callbacks."""
        if self._at_first is None:
            self._at_first = {
                name: {
                    attribute: _fingerprint(value)
                    for attribute, value in _plain_attributes(callback)
                }
                for name, callback in self._callbacks.items()
            }
        self._put_back()

    def current(self):
        """The states, a dict of dicts of plain data."""
        states = {}
        for name, callback in self._callbacks.items():
            at_first, names = self._at_first[name], self._state_names[name]
            state = {}
            for attribute, value in _plain_attributes(callback):
                if attribute in names or (
                    _fingerprint(value) != at_first.get(attribute)
                ):
                    names.add(attribute)
                    state[attribute] = value
            if isinstance(callback, keras.callbacks.CSVLogger):
                state[_FILE_SIZE] = os.path.getsize(callback.filename)
            states[name] = state
        return states

    def _put_back(self):
        for name, state in self._to_put_back.items():
            if name in self._callbacks:
                vars(self._callbacks[name]).update(
                    {k: v for k, v in state.items() if k != _FILE_SIZE}
                )
        self._to_put_back = {}


def _go_on_writing(csv_logger, size):
    """Appends to the file, after cutting off lines of later epochs."""
    csv_logger.append = True
    if (
        size is not None
        and os.path.exists(csv_logger.filename)
        and os.path.getsize(csv_logger.filename) > size
    ):
        os.truncate(csv_logger.filename, size)


def _plain_attributes(callback):
    for attribute, value in vars(callback).items():
        if attribute not in _NOT_STATE and is_plain(value):
            yield attribute, value


def is_plain(value):
    """Whether `to_json` can write a value.

    Example:

    >>> is_plain({"best": [np.zeros(3), None]}), is_plain([print])
    (True, False)
    """
    kind = type(value)
    if kind in (list, tuple):
        return all(map(is_plain, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(
            map(is_plain, value.values())
        )
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "biufcSU"
    return value is None or kind in (bool, int, float, str)


def to_json(value, arrays):
    """Plain data as text, with its arrays kept separately.

    Args:
        value: plain data, as in `is_plain`.
        arrays: list to which the arrays and NumPy's numbers are appended.

    Returns:
        JSON.

    Example:

    >>> arrays = []
    >>> text = to_json({"best": (np.arange(3), 0.5)}, arrays)
    >>> text
    '{"dict": {"best": {"tuple": [{"array": 0}, 0.5]}}}'
    >>> from_json(text, arrays)
    {'best': (array([0, 1, 2]), 0.5)}
    """

    def encoded(value):
        if isinstance(value, (np.ndarray, np.generic)):
            arrays.append(np.asarray(value))
            return {"array": len(arrays) - 1}
        if isinstance(value, dict):
            return {"dict": {key: encoded(each) for key, each in value.items()}}
        if isinstance(value, tuple):
            return {"tuple": [encoded(each) for each in value]}
        if isinstance(value, list):
            return [encoded(each) for each in value]
        return value

    return json.dumps(encoded(value))


def from_json(text, arrays):
    """The value that `to_json` wrote."""

    def decoded(value):
        if isinstance(value, list):
            return [decoded(each) for each in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "array":
            return arrays[content][()]  # A number, if it has no dimensions.
        if kind == "tuple":
            return tuple(decoded(each) for each in content)
        return {key: decoded(each) for key, each in content.items()}

    return decoded(json.loads(text))


def _fingerprint(value):
    """A value that is equal for equal plain data, without copies of arrays."""
    arrays = []
    text = to_json(value, arrays)
    return text, [
        (a.dtype.str, a.shape, zlib.crc32(np.ascontiguousarray(a)))
        for a in arrays
    ]
