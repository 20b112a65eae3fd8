# SPDX-License-Identifier: Apache-2.0
"""What decisions become other ones when a model takes the place of another."""

import collections
import typing
from collections.abc import Iterable
from typing import Any

from cac_tf.models import OpenSetClassifier
from cac_tf.models import input_checks
from cac_tf.models.computed_outputs import ComputedOutputs


class ChangedDecisions(typing.NamedTuple):
    """The inputs on which two models decide differently.

    Example:

    >>> moves = {("cat", "lynx"): 5, ("cat", "unknown"): 1}
    >>> found = ChangedDecisions(200, moves)
    >>> found.share
    0.03
    >>> found.in_words()
    '6 of 200 decisions change (3.0 %): 5 cat -> lynx, 1 cat -> unknown'
    """

    inputs: int
    # By the answers of the one and the other model, the most frequent first.
    moves: dict[tuple[str, str], int]

    @property
    def share(self) -> float:
        """Of the inputs, in [0, 1]."""
        return sum(self.moves.values()) / self.inputs

    def in_words(self, most: int = 10) -> str:
        """One line, with the most frequent moves."""
        count = sum(self.moves.values())
        line = (
            f"{count} of {self.inputs} decisions change ({self.share:.1%})"
        ).replace("%", " %")
        shown = [
            f"{number} {one} -> {other}"
            for (one, other), number in list(self.moves.items())[:most]
        ]
        more = len(self.moves) - len(shown)
        if more:
            shown.append(f"{more} more moves")
        return f"{line}: {', '.join(shown)}" if shown else line


def changed_decisions(
    before: OpenSetClassifier,
    after: OpenSetClassifier,
    x: Any,
    batch_size: int | None = None,
) -> ChangedDecisions:
    """Which decisions change between two models, and how many.

    Args:
        before, after: models with thresholds, which take the same inputs.
        x, batch_size: inputs, as of `OpenSetClassifier.predict_open_set`.

    Returns:
        `ChangedDecisions`, by class name.

    Raises:
        ValueError: see `predict_open_set`.

    Example:

    >>> larger = model.enroll({"lynx": photos})  # doctest: +SKIP
    >>> changed_decisions(model, larger, x_val).share  # doctest: +SKIP
    0.012
    """
    parts: Iterable[Any] = [x]
    if not (hasattr(x, "__getitem__") or isinstance(x, ComputedOutputs)):
        # A data set may shuffle, or be read only once.
        parts = (inputs for inputs, *_ in input_checks.iterate_batches(x))
    moves: collections.Counter[tuple[str, str]] = collections.Counter()
    for part in parts:
        labels = [
            one.predict_open_set(part, batch_size).label.tolist()
            for one in (before, after)
        ]
        moves.update(zip(*labels, strict=True))
    if not moves:
        raise ValueError("There are no inputs to score.")
    changes = {
        (one, other): number
        for (one, other), number in moves.most_common()
        if one != other
    }
    return ChangedDecisions(moves.total(), changes)


__all__ = ["ChangedDecisions", "changed_decisions"]
