# SPDX-License-Identifier: Apache-2.0
"""Training in stages that can be killed at any moment and goes on exactly."""

import dataclasses
import json
import math
import os
import time

import numpy as np
from keras import ops

from cac_tf import atomic_files


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of the training with a learning rate of its own.

    Each stage starts with fresh optimizer state; all but the first start
    from the best weights so far.
    """

    epochs: int  # at most
    # None: the optimizer's own (a schedule, say) is left alone.
    learning_rate: float | None = None
    # The stage ends when the monitored value has not improved for so many
    # epochs. None: it ends after `epochs`.
    patience: int | None = None


@dataclasses.dataclass
class TrainingRecord:
    """What a training has gone through, earlier sittings included."""

    # One dict of logs per epoch; "stage" counts from 1.
    history: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def finite_history(self):
        """`history` with None for NaN and infinity, which JSON has not."""
        return [
            {
                name: value if math.isfinite(value) else None
                for name, value in logs.items()
            }
            for logs in self.history
        ]


def fit_resumable(
    model,
    train,
    validation,
    *,
    stages,
    batch_size,
    seed,
    checkpoint,
    monitor=None,
    callbacks=(),
    after_epoch=None,
):
    """Trains a compiled model epoch by epoch, with a checkpoint after each.

    Called again with the same arguments after an interruption, it goes on
    from the last finished epoch and ends with the same weights: the order of
    the examples depends on seed and epoch alone, and the checkpoint holds
    the states of random generators and optimizer, the best weights so far,
    and the history, from which stage and patience follow.

    Args:
        model: compiled `OpenSetClassifier`, freshly made from the same seed.
        train: `Examples`.
        validation: `Examples`, possibly empty.
        stages: sequence of `Stage`.
        batch_size: of training and validation.
        seed: of the order of the examples.
        checkpoint: path of the checkpoint file (.npz), replaced each epoch.
        monitor: entry of the epoch's logs; the weights of the epoch where it
            was smallest are kept. None keeps those of the last epoch.
        callbacks: Keras callbacks.
        after_epoch: called with the model and the number of finished epochs
            after each; the dict of floats that it returns joins the logs.

    Returns:
        `TrainingRecord`.

    Raises:
        ValueError: the checkpoint is not one of this model and optimizer;
            there is nothing to monitor; more than one stage, or patience,
            without `monitor`.
    """
    if monitor is None and (len(stages) > 1 or stages[0].patience):
        raise ValueError("Several stages, or patience, need `monitor`.")
    if monitor is not None and validation.size == 0:
        raise ValueError(
            f"{monitor} cannot be watched: there are no validation images."
        )
    model.build((None, *train.images.shape[1:]))
    model.optimizer.build(model.trainable_variables)
    state = _State(model, checkpoint)
    record = state.restore()
    history = record.history
    while (index := _stage_of_next_epoch(history, stages, monitor)) is not None:
        started = time.monotonic()
        stage, epoch = stages[index], len(history)
        if epoch and history[-1]["stage"] != index + 1:
            state.assign_best_weights()
            state.reset_optimizer()
        if stage.learning_rate is not None:
            model.optimizer.learning_rate = stage.learning_rate
        order = np.random.default_rng([seed, epoch]).permutation(train.size)
        logs = model.fit(
            **_fit_arguments(train.take(order), validation, batch_size),
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            verbose=0,
            callbacks=list(callbacks),
        ).history
        entry = {name: float(values[0]) for name, values in logs.items()}
        if after_epoch is not None:
            entry.update(after_epoch(model, epoch + 1))
        history.append({"stage": index + 1, **entry})
        if monitor is not None and _best_epoch(history, monitor) == epoch:
            state.keep_best_weights()
        record.seconds += time.monotonic() - started
        state.save(record)
    if monitor is not None:
        state.assign_best_weights()
    return record


def _fit_arguments(train, validation, batch_size):
    """Arguments of `fit`: arrays, or data sets of images that are streamed."""
    arguments = {"validation_data": None}
    if hasattr(train.images, "dataset"):
        arguments["x"] = train.images.dataset(train.labels, batch_size)
    else:
        arguments.update(x=train.images, y=train.labels, batch_size=batch_size)
    if validation.size and hasattr(validation.images, "dataset"):
        arguments["validation_data"] = validation.images.dataset(
            validation.labels, batch_size
        )
    elif validation.size:
        arguments["validation_data"] = tuple(validation)
        arguments["validation_batch_size"] = batch_size
    return arguments


def _best_epoch(history, monitor):
    """The first epoch with the smallest value; one that is NaN never is."""
    values = [
        math.inf if math.isnan(logs[monitor]) else logs[monitor]
        for logs in history
    ]
    return int(np.argmin(values))


def _stage_of_next_epoch(history, stages, monitor):
    """Index of the stage that goes on or begins; None when all are over."""
    index = history[-1]["stage"] - 1 if history else 0
    own = [logs for logs in history if logs["stage"] == index + 1]
    stage = stages[index]
    is_over = len(own) >= stage.epochs
    if stage.patience is not None and own:
        since_best = len(own) - 1 - _best_epoch(own, monitor)
        is_over = is_over or since_best >= stage.patience
    if not is_over:
        return index
    later = [i for i in range(index + 1, len(stages)) if stages[i].epochs > 0]
    return later[0] if later else None


class _State:
    """Everything that decides how a training goes on, and its file."""

    def __init__(self, model, checkpoint):
        self._model, self._path = model, checkpoint
        # `variables` has the random generators' states too, unlike `weights`.
        self._variables = [*model.variables, *model.optimizer.variables]
        self._fresh_optimizer = _arrays(model.optimizer.variables)
        self._best = None

    def keep_best_weights(self):
        self._best = _arrays(self._model.weights)

    def assign_best_weights(self):
        if self._best is not None:
            _assign(self._model.weights, self._best)

    def reset_optimizer(self):
        _assign(self._model.optimizer.variables, self._fresh_optimizer)

    def save(self, record):
        arrays = {
            f"{kind}_{i}": array
            for kind, values in (
                ("variable", _arrays(self._variables)),
                ("best", self._best or []),
            )
            for i, array in enumerate(values)
        }
        text = json.dumps(dataclasses.asdict(record))
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        with atomic_files.replacing(self._path) as temporary:
            np.savez(temporary, record=text, **arrays)

    def restore(self):
        """Takes everything from the file, if there is one."""
        if not os.path.exists(self._path):
            return TrainingRecord()
        try:
            with np.load(self._path, allow_pickle=False) as file:
                entries = {name: file[name] for name in file.files}
            record = TrainingRecord(**json.loads(str(entries["record"])))
        except Exception as error:  # A zip file's errors are of many kinds.
            raise ValueError(
                f"{self._path} is no checkpoint of this version of cac_tf "
                f"({type(error).__name__}: {error}). Start afresh with "
                "--overwrite, or in another folder."
            ) from error
        values = _numbered(entries, "variable")
        best = _numbered(entries, "best")
        expected = [tuple(v.shape) for v in self._variables]
        expected_best = [tuple(v.shape) for v in self._model.weights]
        if [a.shape for a in values] != expected or (
            best and [a.shape for a in best] != expected_best
        ):
            raise ValueError(
                f"{self._path} holds the state of another model or optimizer "
                f"({len(values)} arrays for {len(expected)} variables, or "
                "other shapes)."
            )
        _assign(self._variables, values)
        self._best = best or None
        return record


def _arrays(variables):
    # A copy: on a CPU the array may be a view of the variable's own memory.
    return [np.array(ops.convert_to_numpy(value)) for value in variables]


def _assign(variables, arrays):
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _numbered(entries, kind):
    count = sum(name.startswith(f"{kind}_") for name in entries)
    return [entries[f"{kind}_{i}"] for i in range(count)]
