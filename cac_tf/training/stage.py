# SPDX-License-Identifier: Apache-2.0
"""A part of a training; methods say which parts theirs has."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Stage:
    """A phase of training with its own learning rate.

    Each stage starts with a fresh optimizer state, and each but the first from
    the best weights so far.

    Raises:
        ValueError: epochs below 0, or patience below 1.

    Example:

    >>> Stage(epochs=3, patience=0)
    Traceback (most recent call last):
    ValueError: patience must be at least 1, or None; got 0.
    """

    epochs: int  # at most
    # None: the optimizer's own (a schedule, say) is left alone.
    learning_rate: float | None = None
    # The stage ends when the monitored value has not improved for this many
    # epochs. None: it ends after `epochs`.
    patience: int | None = None

    def __post_init__(self):
        if self.epochs < 0:
            raise ValueError(f"epochs must be at least 0; got {self.epochs}.")
        if self.patience is not None and self.patience < 1:
            raise ValueError(
                f"patience must be at least 1, or None; got {self.patience}."
            )
