# SPDX-License-Identifier: Apache-2.0
"""Fits several scores in a single pass over the examples."""

from collections.abc import Iterable

from cac_tf.scores.score import Known
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score


class Fitting:
    """Scores that are fitted to the same examples.

    A score that cannot be fitted does not stop the others from being fitted.

    Args:
        scores: list of `Score`; those that learn from data are fitted.
        num_classes: N.
    """

    def __init__(self, scores: Iterable[Score], num_classes: int) -> None:
        self.problems: dict[str, ValueError] = {}
        self._kept = {s: None for s in scores if s.IS_FITTED_TO_DATA}
        self._step(lambda score, _: score.start_fit(num_classes))

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

        def add_batch(score, kept):
            score.add_batch(kept, batch)
            return kept

        self._step(add_batch)

    def finish(self, known: Known) -> None:
        """Fits the scores with a `Known`; errors are kept in `problems`."""
        self._step(lambda score, kept: score.finish_fit(kept, known))

    def _step(self, step):
        for score, kept in list(self._kept.items()):
            try:
                self._kept[score] = step(score, kept)
            except ValueError as error:
                self.problems[score.name] = error
                del self._kept[score]
