# SPDX-License-Identifier: Apache-2.0
"""One run of a method: its seed, its checkpoints, and its history."""

import contextlib
import dataclasses
import os
import typing

from cac_tf.training.loop import fit_resumable
from cac_tf.training.runtime import Runtime


@dataclasses.dataclass
class TrainingRun:
    """What a method is given besides data and recipe.

    A method calls `fit` once for each of its trainings, each under its own
    name. Each has a checkpoint, and a finished one is not run again.

    Args:
        runtime: `Runtime`: seed and determinism.
        checkpoints: folder of the checkpoints; it is made when needed, in a
            folder that exists.
        score: the wanted score, as in `OpenSetClassifier`; None: the
            method's own.
        tta: test-time augmentation, as in `OpenSetClassifier`.
        callbacks: a function that returns fresh Keras callbacks for a
            training, from its name, its number of epochs and its number of
            steps per epoch.
        after_epoch: called with the model and the number of finished epochs
            after each; the dict of floats that it returns joins the logs.

    Example:

    >>> import tempfile, keras, numpy as np
    >>> from cac_tf.data import Examples
    >>> from cac_tf.training import Stage
    >>> run = TrainingRun(Runtime(seed=0), tempfile.mkdtemp())
    >>> run.start()
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(3)])
    >>> model.compile("sgd", "mse")
    >>> x = np.eye(3, dtype="float32")
    >>> record = run.fit(
    ...     model, Examples(x, x), stages=[Stage(2)], batch_size=2, name="ae")
    >>> [logs["training"] for logs in run.history]
    ['ae', 'ae']
    """

    runtime: Runtime
    checkpoints: str
    score: typing.Any = None
    tta: str | None = None
    callbacks: typing.Callable | None = None
    after_epoch: typing.Callable | None = None
    # The records of the trainings that were run, by name.
    records: dict = dataclasses.field(default_factory=dict)

    @property
    def seed(self):
        """Seed of everything random, in 0...2^32 - 1."""
        return self.runtime.seed

    def start(self):
        """Seeds everything; call it before the first model is made."""
        self.runtime.start()

    def fit(
        self,
        model,
        train,
        validation=None,
        *,
        stages,
        batch_size,
        monitor=None,
        name="classifier",
    ):
        """Trains a compiled model, or resumes it; see `fit_resumable`.

        Args:
            model, train, validation, stages, batch_size, monitor: as of
                `fit_resumable`.
            name: name of the training, letters and digits.

        Returns:
            `TrainingRecord`.

        Raises:
            ValueError: as in `fit_resumable`; a name that was used before.
        """
        if name in self.records:
            raise ValueError(f"This run already has a training {name!r}.")
        with contextlib.suppress(FileExistsError):
            # Not its parents: a folder that was deleted stays deleted.
            os.mkdir(self.checkpoints)
        steps = -(-train.size // batch_size)
        epochs = sum(stage.epochs for stage in stages)
        callbacks = ()
        if self.callbacks is not None:
            callbacks = self.callbacks(name, epochs, steps)
        self.records[name] = fit_resumable(
            model,
            train,
            validation,
            stages=stages,
            batch_size=batch_size,
            seed=self.seed,
            checkpoint=os.path.join(self.checkpoints, f"{name}.npz"),
            monitor=monitor,
            callbacks=callbacks,
            after_epoch=self.after_epoch,
        )
        return self.records[name]

    @property
    def history(self):
        """One dict of logs per epoch, one training after another.

        NaN and infinity become None; "training" is the training's name.
        """
        return [
            {"training": name, **logs}
            for name, record in self.records.items()
            for logs in record.finite_history
        ]

    @property
    def seconds(self):
        """Time of all trainings, earlier sessions included."""
        return sum(record.seconds for record in self.records.values())
