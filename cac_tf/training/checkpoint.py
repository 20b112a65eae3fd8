# SPDX-License-Identifier: Apache-2.0
"""The file from which an interrupted training is resumed."""

import json
import os
import re

import numpy as np
from keras import ops

from cac_tf import atomic_files
from cac_tf.training.plain_data import from_json
from cac_tf.training.plain_data import to_json

# Keras numbers default names, over the whole process.
_COUNTER = re.compile(r"_\d+(?=[_/]|$)")
_MOST_NAMED = 3


def variables_by_path(variables):
    """Variables under keys that are the same each time the model is made.

    A key is the variable's path without the numbers that Keras adds within
    a process (`dense_7/kernel`). If several are then equal, the second is
    `dense/kernel:2`, and so on, in the order of `variables`.

    Args:
        variables: sequence of `keras.Variable`; a duplicate is taken once.

    Returns:
        Dict of the variables.

    Example:

    >>> import keras
    >>> layers = [keras.layers.Dense(2) for _ in range(2)]
    >>> for layer in layers:
    ...     layer.build((None, 3))
    >>> list(variables_by_path([v for layer in layers for v in layer.weights]))
    ['dense/kernel', 'dense/bias', 'dense/kernel:2', 'dense/bias:2']
    """
    by_path = {}
    for variable in {id(v): v for v in variables}.values():
        key = path = _COUNTER.sub("", variable.path)
        number = 1
        while key in by_path:
            number += 1
            key = f"{path}:{number}"
        by_path[key] = variable
    return by_path


class Checkpoint:
    """Everything that decides how a training continues, and its file.

    Holds the model's variables with the states of random generators, those of
    the optimizer, and the best weights so far. The states of metrics, which are
    reset in each epoch, are not included.

    Args:
        model: compiled and built `keras.Model` with a built optimizer, freshly
            made: `reset_optimizer` restores its optimizer's state.
        path: path of the .npz file.

    Example:

    >>> import keras, os, tempfile
    >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> model.optimizer.build(model.trainable_variables)
    >>> path = os.path.join(tempfile.mkdtemp(), "checkpoint.npz")
    >>> Checkpoint(model, path).save([0.5, 0.25], {"epochs": 2})
    >>> Checkpoint(model, path).restore()
    ([0.5, 0.25], {'epochs': 2})
    """

    def __init__(self, model, path):
        self._path = os.fspath(path)
        metrics = {id(v) for v in getattr(model, "metrics_variables", [])}
        # `variables` has the random generators' states too, unlike `weights`.
        own = [v for v in model.variables if id(v) not in metrics]
        weights = {id(v) for v in model.weights}
        self._model = variables_by_path(own)
        self._weights = {
            key: v for key, v in self._model.items() if id(v) in weights
        }
        self._optimizer = variables_by_path(model.optimizer.variables)
        self._fresh_optimizer = _arrays(self._optimizer)
        self._best = {}

    def keep_best_weights(self):
        """Remembers the weights as the best so far."""
        self._best = _arrays(self._weights)

    def assign_best_weights(self):
        """Gives the model the best weights so far, if there are any."""
        _assign(self._weights, self._best)

    def reset_optimizer(self):
        """Restores the optimizer's initial state."""
        _assign(self._optimizer, self._fresh_optimizer)

    def model_arrays(self):
        """Copies of the model's variables, for `put_back`."""
        return _arrays(self._model)

    def put_back(self, arrays):
        """Restores those of the model's variables that have changed."""
        for key, array in _arrays(self._model).items():
            if not np.array_equal(array, arrays[key], equal_nan=True):
                self._model[key].assign(arrays[key])

    def save(self, record, progress):
        """Replaces the file, in one step.

        Args:
            record: JSON-able data. It is a separate entry of the file, for
                other programs.
            progress: dict of plain data (`plain_data.to_json`).
        """
        inside = []
        text = to_json(progress, inside)
        arrays = {
            **_under("model", _arrays(self._model)),
            **_under("optimizer", _arrays(self._optimizer)),
            **_under("best", self._best),
            **_under("progress", {str(i): a for i, a in enumerate(inside)}),
        }
        with (
            atomic_files.replacing(self._path) as temporary,
            # NumPy appends .npz to other names.
            open(temporary, "wb") as file,
        ):
            np.savez(file, record=json.dumps(record), progress=text, **arrays)

    def restore(self):
        """Restores everything from the file, if there is one.

        Returns:
            (record, progress) as they were saved; None where there is no file.

        Raises:
            ValueError: the file is damaged, was written by another version,
                or belongs to another model or optimizer.
        """
        if not os.path.exists(self._path):
            return None
        try:
            with np.load(self._path, allow_pickle=False) as file:
                entries = {name: file[name] for name in file.files}
            record = json.loads(str(entries["record"]))
            inside = _of_kind(entries, "progress")
            progress = from_json(
                str(entries["progress"]),
                [inside[str(i)] for i in range(len(inside))],
            )
        except Exception as error:  # A zip file's errors are of many kinds.
            raise ValueError(
                f"{self._path} is not a checkpoint of this version of cac_tf "
                f"({type(error).__name__}: {error}). Start over in another "
                "folder, or overwrite this run (overwrite=True)."
            ) from error
        best = _of_kind(entries, "best")
        wanted = [
            (self._model, _of_kind(entries, "model")),
            (self._optimizer, _of_kind(entries, "optimizer")),
            (self._weights if best else {}, best),
        ]
        problems = _differences(wanted)
        if problems:
            raise ValueError(
                f"{self._path} contains the state of another model or "
                f"optimizer: {problems}. Start over in another folder, or "
                "overwrite this run (overwrite=True)."
            )
        _assign(*wanted[0])
        _assign(*wanted[1])
        self._best = best
        return record, progress


def _arrays(variables):
    # A copy: on a CPU the array may be a view of the variable's own memory.
    return {
        key: np.array(ops.convert_to_numpy(variable))
        for key, variable in variables.items()
    }


def _assign(variables, arrays):
    for key, array in arrays.items():
        variable = variables[key]
        if array.dtype.kind == "V":
            # NumPy's files have no bfloat16.
            array = array.view(ops.convert_to_numpy(variable).dtype)
        variable.assign(array)


def _under(kind, arrays):
    return {f"{kind}/{key}": array for key, array in arrays.items()}


def _of_kind(entries, kind):
    prefix = f"{kind}/"
    return {
        name[len(prefix) :]: array
        for name, array in entries.items()
        if name.startswith(prefix)
    }


def _differences(pairs):
    """What arrays lack, have too much, or have in another shape, in words."""
    found = {"it lacks": [], "it also has": [], "other shapes": []}
    for variables, arrays in pairs:
        shapes = {key: tuple(v.shape) for key, v in variables.items()}
        for key in {**shapes, **arrays}:
            if key not in arrays:
                found["it lacks"].append(f"{key} {shapes[key]}")
            elif key not in shapes:
                found["it also has"].append(f"{key} {arrays[key].shape}")
            elif shapes[key] != arrays[key].shape:
                found["other shapes"].append(
                    f"{key} {arrays[key].shape} instead of {shapes[key]}"
                )
    return "; ".join(
        f"{what}: {', '.join(names[:_MOST_NAMED])}"
        + (f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED))
        for what, names in found.items()
        if names
    )
