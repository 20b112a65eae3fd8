# SPDX-License-Identifier: Apache-2.0
"""A part of a training; methods say which parts theirs has."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of the training with its own learning rate.

    Each stage starts with fresh optimizer state; all but the first start
    from the best weights so far.
    """

    epochs: int  # at most
    # None: the optimizer's own (a schedule, say) is left alone.
    learning_rate: float | None = None
    # The stage ends when the monitored value has not improved for this many
    # epochs. None: it ends after `epochs`.
    patience: int | None = None
