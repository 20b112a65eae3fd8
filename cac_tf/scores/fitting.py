# SPDX-License-Identifier: Apache-2.0
"""Fits several scores in a single pass over the examples."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score


def require_different_names(scores: Iterable[Score]) -> None:
    """Raises ValueError if two of the scores have the same name."""
    names = [score.name for score in scores]
    if len(set(names)) < len(names):
        raise ValueError(
            "Scores (pass name= to them) must have different names; got "
            f"{', '.join(names)}."
        )


class Fitting:
    """Scores that are fitted to the same examples.

    A score that cannot be fitted does not stop the others from being fitted.

    Args:
        scores: list of `Score`, with different names; those that learn from
            data are fitted.
        context: `Context`.

    Raises:
        ValueError: two of one name.
    """

    def __init__(self, scores: Iterable[Score], context: Context) -> None:
        scores = list(scores)
        require_different_names(scores)
        self.problems: dict[str, ValueError] = {}
        self._context = context
        self._kept: dict[Score, Any] = {
            score: None for score in scores if score.IS_FITTED_TO_DATA
        }
        self._step(lambda score, _: score.start(context))

    def __bool__(self):
        return bool(self._kept)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the outputs that the remaining scores read."""
        return tuple(
            dict.fromkeys(name for score in self._kept for name in score.READS)
        )

    def add(self, batch: KnownBatch) -> None:
        """Adds a `KnownBatch`."""

        def update(score, kept):
            score.update(kept, batch)
            return kept

        self._step(update)

    def finish(self) -> dict[str, dict[str, np.ndarray]]:
        """The statistics by the names of the scores; errors: `problems`."""
        self._step(lambda score, kept: score.finished(kept, self._context))
        return {score.name: found for score, found in self._kept.items()}

    def _step(self, step):
        for score, kept in list(self._kept.items()):
            try:
                self._kept[score] = step(score, kept)
            except ValueError as error:
                self.problems[score.name] = error
                del self._kept[score]
