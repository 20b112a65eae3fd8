# SPDX-License-Identifier: Apache-2.0
"""Training in stages that can be killed at any moment and resumed exactly."""

import dataclasses
import math
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from cac_tf.annotations import Path
from cac_tf.training.batches import Batches
from cac_tf.training.callback_states import CallbackStates
from cac_tf.training.checkpoint import Checkpoint
from cac_tf.training.stage import Stage


@dataclasses.dataclass
class TrainingRecord:
    """The history of a training, earlier sessions included."""

    # One dict of logs per epoch; "stage" counts from 1.
    history: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def finite_history(self) -> list[dict[str, Any]]:
        """`history` with None for NaN and infinity, which JSON cannot hold."""
        return [
            {
                name: value if math.isfinite(value) else None
                for name, value in logs.items()
            }
            for logs in self.history
        ]


def fit_resumable(
    model: keras.Model,
    train: Any,
    validation: Any = None,
    *,
    stages: Sequence[Stage],
    batch_size: int,
    seed: int,
    checkpoint: Path,
    monitor: str | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    after_epoch: Callable[..., Any] | None = None,
) -> TrainingRecord:
    """Trains a compiled model stage by stage, with a checkpoint each epoch.

    Called again with the same arguments after an interruption, it resumes
    after the last finished epoch and ends with the same weights. The order of
    the examples depends only on seed and epoch. The checkpoint holds the states
    of random generators, optimizer and callbacks, the best weights so far, and
    the history, from which stage and patience follow. Called again after the
    training is finished, it gives the model its final weights.

    A stage is one `model.fit`, so Keras callbacks keep their state over a whole
    stage, interruptions included. Epochs are numbered through all stages. A
    callback that sets `model.stop_training` ends the stage.

    Of callbacks, Keras' own EarlyStopping, ReduceLROnPlateau, ModelCheckpoint,
    SwapEMAWeights, TensorBoard and CSVLogger go on where they were. Another
    callback does if it has the methods `get_state()`, which returns numbers,
    texts, arrays, and lists, tuples and dicts of these, and `set_state(state)`.
    What it remembers otherwise is not kept.

    Args:
        model: compiled `keras.Model`, freshly made from the same seed.
        train: object with `images` and `labels` of n rows, (n, ...), and
            `size`, n: `cac_tf.data.Examples`. No copy of them is made.
        validation: the same, possibly empty; or None.
        stages: sequence of `Stage`.
        batch_size: of training and validation; an epoch's last batch may be
            smaller.
        seed: seed of the order of the examples.
        checkpoint: path of the checkpoint file (.npz), replaced each epoch.
        monitor: entry of the epoch's logs; the weights of the epoch where it
            was smallest are kept. None keeps those of the last epoch.
        callbacks: Keras callbacks.
        after_epoch: called with the model and the number of finished epochs
            after each; the dict of floats that it returns joins the logs. The
            training continues with the variables as they were before the call.

    Returns:
        `TrainingRecord`.

    Raises:
        ValueError: the checkpoint is damaged, or does not belong to this
            model and optimizer; the model is not compiled; there is nothing
            to monitor; there is no stage; there is more than one, or
            patience, without `monitor`; there are no examples, or the numbers
            of labels and images differ; an entry of the logs is no number.
        RuntimeError: Keras trained no epoch: `keras.config.max_epochs`.

    Example:

    >>> import os, tempfile
    >>> from cac_tf.data import Examples
    >>> keras.utils.set_random_seed(0)
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(3)])
    >>> model.compile("sgd", "mse")
    >>> points = np.eye(3, dtype="float32")
    >>> record = fit_resumable(
    ...     model,
    ...     Examples(points, labels=points),  # an auto-encoder
    ...     stages=[Stage(epochs=2)],
    ...     batch_size=2,
    ...     seed=0,
    ...     checkpoint=os.path.join(tempfile.mkdtemp(), "checkpoint.npz"),
    ... )
    >>> [sorted(logs) for logs in record.history]
    [['loss', 'stage'], ['loss', 'stage']]
    """
    if not model.compiled:
        raise ValueError("The model must be compiled before training.")
    if not stages:
        raise ValueError("Training needs at least one stage.")
    if monitor is None and (len(stages) > 1 or stages[0].patience):
        raise ValueError(
            "Several stages or patience can be used only with `monitor`."
        )
    if validation is not None and validation.size == 0:
        validation = None
    if validation is None and (monitor or "").startswith("val_"):
        raise ValueError(
            f"{monitor} cannot be monitored: there are no validation images."
        )
    _build(model, train.images)
    training = _Training(
        model, stages, monitor, list(callbacks), after_epoch, checkpoint
    )
    data = _Data(train, validation, batch_size, seed)
    try:
        training.run(data)
    finally:
        data.close()
    return training.record


def _build(model, images):
    """Makes all variables of model and optimizer."""
    if not model.built:
        # By a symbolic call: subclassed models have no `build` of their own.
        dtype = getattr(images, "dtype", np.dtype("uint8"))
        if dtype.kind == "f":
            dtype = keras.config.floatx()
        elif dtype.kind == "O":
            dtype = "string"
        model(keras.Input(tuple(images.shape[1:]), dtype=str(dtype)))
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


class _Data:
    """What `fit` reads."""

    def __init__(self, train, validation, batch_size, seed):
        self.train = Batches(train, batch_size, seed)
        self._opened = [self.train]
        self._arguments = {"x": self.train, "shuffle": False}
        if validation is None:
            return
        parts = (validation.images, validation.labels)
        if all(isinstance(part, np.ndarray) for part in parts):
            self._arguments["validation_batch_size"] = batch_size
        else:
            parts = Batches(validation, batch_size)
            self._opened.append(parts)
        self._arguments["validation_data"] = parts

    def fit_arguments(self, first_epoch):
        # Keras looks at the first batches before the first epoch begins.
        self.train.epoch = first_epoch
        return self._arguments

    def close(self):
        for batches in self._opened:
            batches.close()


class _Training:
    """A training and its progress."""

    def __init__(
        self, model, stages, monitor, callbacks, after_epoch, checkpoint
    ):
        self._model, self._stages, self._monitor = model, stages, monitor
        self._user_callbacks, self._after_epoch = callbacks, after_epoch
        self._states = CallbackStates(callbacks)
        self._checkpoint = Checkpoint(model, checkpoint)
        self.record = TrainingRecord()
        # Whether a callback has stopped the stage of the last epoch, and
        # whether `on_train_end` of that stage was called.
        self._was_stopped, self._has_ended = False, True
        self._restored_states = None
        restored = self._checkpoint.restore()
        if restored is not None:
            record, progress = restored
            self.record = TrainingRecord(**record)
            self._was_stopped = progress["was_stopped"]
            self._has_ended = progress["has_ended"]
            self._restored_states = progress["callbacks"]

    def run(self, data):
        """Trains all that is left, and restores the final weights."""
        history = self.record.history
        index = history[-1]["stage"] - 1 if history else 0
        while True:
            if not self._is_over(index):
                self._fit(index, data)
            elif not self._has_ended:
                self._end_again(index, data)
            else:
                later = [
                    i
                    for i in range(index + 1, len(self._stages))
                    if self._stages[i].epochs > 0
                ]
                if not later:
                    break
                index = later[0]
                self._was_stopped = False
        if self._monitor is not None:
            self._checkpoint.assign_best_weights()

    def _epochs_of(self, index):
        return [h for h in self.record.history if h["stage"] == index + 1]

    def _is_over(self, index):
        stage, own = self._stages[index], self._epochs_of(index)
        if len(own) >= stage.epochs or (own and self._was_stopped):
            return True
        if stage.patience is None or not own:
            return False
        since_best = len(own) - 1 - _best_epoch(own, self._monitor)
        return since_best >= stage.patience

    def _begin(self, stage):
        if self.record.history:
            self._checkpoint.assign_best_weights()
            self._checkpoint.reset_optimizer()
        if stage.learning_rate is not None:
            self._model.optimizer.learning_rate = stage.learning_rate

    def _fit(self, index, data):
        """Trains the rest of a stage."""
        self._started = time.monotonic()
        stage, done = self._stages[index], len(self.record.history)
        own = len(self._epochs_of(index))
        if not own:
            self._begin(stage)
        self._model.fit(
            **data.fit_arguments(done),
            initial_epoch=done,
            epochs=done - own + stage.epochs,
            verbose=0,
            callbacks=self._callbacks(index, data),
        )
        if len(self.record.history) == done:
            # Or it would be tried again for ever.
            raise RuntimeError(
                "Keras trained no epoch: keras.config.max_epochs() is "
                f"{keras.config.max_epochs()}, and epoch {done + 1} was next."
            )
        self._end()

    def _end_again(self, index, data):
        """Repeats the end of a stage's `fit`, which was killed there."""
        self._started = time.monotonic()
        model, done = self._model, len(self.record.history)
        callbacks = keras.callbacks.CallbackList(
            self._callbacks(index, data),
            model=model,
            verbose=0,
            epochs=done,
            steps=data.train.num_batches,
        )
        callbacks.on_train_begin()
        if isinstance(model.optimizer, keras.optimizers.Optimizer):
            model.optimizer.finalize_variable_values(model.trainable_weights)
        logs = dict(self.record.history[-1])
        del logs["stage"]
        callbacks.on_train_end(logs)
        self._end()

    def _callbacks(self, index, data):
        """The user's callbacks, and our own, which must be the last."""
        self._states.before_fit(
            self._restored_states,
            stage_continues=bool(self._epochs_of(index)),
        )
        self._restored_states = None
        return [*self._user_callbacks, _EachEpoch(self, index, data.train)]

    def train_has_begun(self):
        self._states.after_train_begin()

    def epoch_has_ended(self, index, epoch, logs):
        """Adds an epoch to the record and writes the checkpoint."""
        model, history = self._model, self.record.history
        entry = {}
        for name, value in (logs or {}).items():
            if np.size(value) != 1:
                raise ValueError(
                    f"The metric {name!r} returns {np.size(value)} values, "
                    "but the training history needs a single value per "
                    "epoch. (F1Score, for example, needs average='macro'.)"
                )
            entry[name] = float(value)
        if self._after_epoch is not None:
            arrays = self._checkpoint.model_arrays()
            entry.update(self._after_epoch(model, epoch + 1))
            self._checkpoint.put_back(arrays)
        if self._monitor is not None and self._monitor not in entry:
            raise ValueError(
                f"There is no {self._monitor!r} to monitor; available: "
                f"{', '.join(entry)}."
            )
        history.append({"stage": index + 1, **entry})
        if (
            self._monitor is not None
            and _best_epoch(history, self._monitor) == epoch
        ):
            self._checkpoint.keep_best_weights()
        self._was_stopped = bool(model.stop_training)
        self._has_ended = False
        model.stop_training = self._is_over(index)
        self._save()

    def _end(self):
        self._has_ended = True
        self._save()

    def _save(self):
        now = time.monotonic()
        self.record.seconds += now - self._started
        self._started = now
        self._checkpoint.save(
            dataclasses.asdict(self.record),
            {
                "was_stopped": self._was_stopped,
                "has_ended": self._has_ended,
                "callbacks": self._states.current(),
            },
        )


class _EachEpoch(keras.callbacks.Callback):
    """Tells the training, after all other callbacks, how far `fit` is."""

    def __init__(self, training, index, batches):
        super().__init__()
        self._training, self._index = training, index
        self._batches = batches

    def on_train_begin(self, logs=None):
        self._training.train_has_begun()

    def on_epoch_begin(self, epoch, logs=None):
        # Keras asks for the epoch's batches after this.
        self._batches.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        self._training.epoch_has_ended(self._index, epoch, logs)


def _best_epoch(history, monitor):
    """The first epoch with the smallest value; NaN never counts as such."""
    values = [
        math.inf if math.isnan(logs[monitor]) else logs[monitor]
        for logs in history
    ]
    return int(np.argmin(values))
