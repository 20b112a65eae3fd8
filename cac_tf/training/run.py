# SPDX-License-Identifier: Apache-2.0
"""One run of a method: its seed, its checkpoints, and its history."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import typing
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from cac_tf.training import pictures
from cac_tf.training.loop import fit_resumable
from cac_tf.training.runtime import Runtime

if TYPE_CHECKING:
    import keras

    from cac_tf.training.loop import TrainingRecord
    from cac_tf.training.stage import Stage


# So often, samples of a training are kept.
_SAMPLED = 4


def _is_sampled(epoch, epochs):
    return epoch == epochs or epoch % -(-epochs // _SAMPLED) == 0


@dataclasses.dataclass
class TrainingRun:
    """What a method is given besides data and recipe.

    A method calls `fit` once for each of its trainings, each under its own
    name. Each has a checkpoint, and a finished one is not run again.

    Args:
        runtime: `Runtime`: seed and determinism.
        checkpoints: folder of the checkpoints; it is made when needed, in a
            folder that exists.
        callbacks: a function that returns fresh Keras callbacks for a
            training, from its name, its number of epochs and its number of
            steps per epoch.
        after_epoch: called with the model and the number of finished epochs
            after each; the dict of floats that it returns joins the logs.
        pictures: folder of the pictures that trainings leave, made when
            needed; None: none are kept.

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
    callbacks: typing.Callable | None = None
    after_epoch: typing.Callable | None = None
    pictures: str | None = None
    # Before the names of its checkpoints.
    prefix: str = ""
    # The records of the trainings that were run, by name.
    records: dict = dataclasses.field(default_factory=dict)

    @property
    def seed(self) -> int:
        """Seed of everything random, in 0...2^32 - 1."""
        return self.runtime.seed

    def start(self) -> None:
        """Seeds everything; call it before the first model is made."""
        self.runtime.start()

    def fit(
        self,
        model: keras.Model,
        train: Any,
        validation: Any = None,
        *,
        stages: Sequence[Stage],
        batch_size: int,
        monitor: str | None = None,
        name: str = "classifier",
        samples: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> TrainingRecord:
        """Trains a compiled model, or resumes it; see `fit_resumable`.

        Args:
            model, train, validation, stages, batch_size, monitor: as of
                `fit_resumable`.
            name: name of the training, which is that of its checkpoint.
            samples: function of a few training images, (n, H, W, C), that
                gives rows of images, as of `keep_pictures`, which show how far
                the training is. They are kept after each quarter of it, and at
                its end, below these training images.

        Returns:
            `TrainingRecord`.

        Raises:
            ValueError: as in `fit_resumable`; a name that was used before.
        """
        if name in self.records:
            raise ValueError(f"This run already has a training named {name!r}.")
        with contextlib.suppress(FileExistsError):
            # Not its parents: a folder that was deleted stays deleted.
            os.mkdir(self.checkpoints)
        steps = -(-train.size // batch_size)
        epochs = sum(stage.epochs for stage in stages)
        sampled = None
        if samples and self.pictures is not None:
            shown = train.evenly_spaced(pictures.PICTURES_IN_A_ROW).images
            self.keep_pictures(name, {"training images": shown})
            sampled = functools.partial(samples, shown)
        callbacks = ()
        if self.callbacks is not None:
            callbacks = self.callbacks(self.prefix + name, epochs, steps)
        self.records[name] = fit_resumable(
            model,
            train,
            validation,
            stages=stages,
            batch_size=batch_size,
            seed=self.seed,
            checkpoint=os.path.join(
                self.checkpoints, f"{self.prefix}{name}.npz"
            ),
            monitor=monitor,
            callbacks=callbacks,
            after_epoch=self._after_epoch(name, epochs, sampled),
        )
        last = len(self.records[name].history)
        if sampled and not _is_sampled(last, epochs):
            # It ended early, so this was not known in the last epoch.
            self._keep_samples(name, "at the end", sampled)
        return self.records[name]

    def beside(self, name: str) -> TrainingRun:
        """A run for other trainings of the same kind, in the same folder.

        Args:
            name: of this run; what its checkpoints are called by.

        Returns:
            `TrainingRun` without pictures and `after_epoch`; its history and
            seconds are its own.
        """
        return dataclasses.replace(
            self,
            after_epoch=None,
            pictures=None,
            prefix=f"{self.prefix}{name}_",
            records={},
        )

    def _keep_samples(self, name, when, samples):
        rows = samples().items()
        self.keep_pictures(name, {f"{when}: {row}": x for row, x in rows})

    def _after_epoch(self, name, epochs, samples):
        if samples is None:
            return self.after_epoch

        def after_epoch(model, epoch):
            if _is_sampled(epoch, epochs):
                self._keep_samples(name, f"epoch {epoch}", samples)
            return self.after_epoch(model, epoch) if self.after_epoch else {}

        return after_epoch

    def keep_pictures(self, name: str, rows: Mapping[str, Any]) -> None:
        """Keeps images for the report.

        Args:
            name: what they show, letters, digits and "_".
            rows: (n, H, W, C) images in 0...255, by the row's name. They join
                those that were kept under the same name before.
        """
        if self.pictures is None:
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.pictures)
        pictures.add_rows(os.path.join(self.pictures, f"{name}.npz"), rows)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dict of logs per epoch, one training after another.

        NaN and infinity become None; "training" is the training's name.
        """
        return [
            {"training": name, **logs}
            for name, record in self.records.items()
            for logs in record.finite_history
        ]

    @property
    def seconds(self) -> float:
        """Time of all trainings, earlier sessions included."""
        return sum(record.seconds for record in self.records.values())
