# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a model trains."""

import sys
import time
from collections.abc import Mapping
from typing import Any
from typing import TextIO

import keras
import tqdm


class TrainingProgress(keras.callbacks.Callback):
    """A line per finished epoch; on a terminal, a bar over all steps too.

    Args:
        epochs: number of epochs in all.
        steps_per_epoch: training steps of an epoch.
        stream: where to write, standard error by default.
    """

    def __init__(
        self, epochs: int, steps_per_epoch: int, stream: TextIO | None = None
    ) -> None:
        super().__init__()
        self._epochs = epochs
        self._steps = steps_per_epoch
        self._stream = stream or sys.stderr
        self._bar: Any = None
        self._seconds: list[float] = []

    def on_epoch_begin(
        self, epoch: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        self._started = time.monotonic()
        self._first_step = epoch * self._steps
        if self._bar is None:
            self._bar = tqdm.tqdm(
                total=self._epochs * self._steps,
                initial=self._first_step,
                unit="step",
                leave=False,
                file=self._stream,
                disable=not self._stream.isatty(),
            )

    def on_train_batch_end(
        self, batch: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        self._bar.update(self._first_step + batch + 1 - self._bar.n)

    def on_epoch_end(
        self, epoch: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        self._seconds.append(time.monotonic() - self._started)
        # The first epoch of a sitting also compiles.
        typical = sorted(self._seconds)[len(self._seconds) // 2]
        left = typical * (self._epochs - epoch - 1)
        seen = logs or {}
        numbers = "  ".join(
            f"{name} {float(seen[name]):.4f}"
            for name in ("loss", "accuracy", "val_loss", "val_accuracy")
            if name in seen
        )
        line = (
            f"epoch {epoch + 1}/{self._epochs}  {numbers}  "
            f"{self._seconds[-1]:.1f} s, {left:.0f} s left"
        )
        tqdm.tqdm.write(line, file=self._stream)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.close()
        # Another stage may follow.
        self._bar = None
