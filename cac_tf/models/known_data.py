# SPDX-License-Identifier: Apache-2.0
"""What is learnt from known data: class means, and the statistics of scores.

One pass over a classifier's outputs, without gradients.
"""

import typing
import warnings
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from cac_tf.labels import check_labels
from cac_tf.scores.fitting import Fitting
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import ClassMoments

# So many names are in a warning.
_MOST_NAMED = 10


class ClassMeans:
    """Class means of the logits of correctly classified examples.

    Paper, section 3.1.2. Correct is what the classifier says, see
    `KnownBatch.is_correct`.

    Args:
        class_names: N names, for the warning.
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self._class_names = class_names
        self._moments = ClassMoments(len(class_names))

    def add(self, batch: KnownBatch) -> None:
        """Adds a `KnownBatch`."""
        right = batch.is_correct
        self._moments.add(batch["logits"][right], batch.labels[right])

    @property
    def counts(self) -> np.ndarray:
        """(N,) int64, the number of examples in each mean."""
        return self._moments.counts

    def centers(self, otherwise: np.ndarray) -> np.ndarray:
        """(N, D) class means; rows of `otherwise` where there are none.

        One warning names all such classes.
        """
        absent = np.flatnonzero(self.counts == 0)
        if len(absent):
            names = [repr(self._class_names[i]) for i in absent[:_MOST_NAMED]]
            more = len(absent) - len(names)
            warnings.warn(
                "These classes keep their anchors as centers, because none "
                "of their examples is classified correctly: "
                f"{', '.join(names)}{f' and {more} more' if more else ''}.",
                stacklevel=4,
            )
        is_there = self.counts[:, None] > 0
        return np.where(is_there, self._moments.means, otherwise)


class Learnt(typing.NamedTuple):
    """What a pass gives."""

    means: ClassMeans
    statistics: dict[str, dict[str, np.ndarray]]  # by the names of the scores
    problems: dict[str, ValueError]  # of scores that cannot be fitted


def learn(
    batches: Iterable[Any], context: Context, scores: Sequence[Score]
) -> Learnt:
    """Makes one pass over known data, for class means and scores.

    Args:
        batches: iterable of (outputs, labels, inputs, place), as
            `Predictor.batches` yields them, with what the scores read.
        context: `Context`.
        scores: those that learn from data are fitted; the statistics of the
            others are {}.

    Raises:
        ValueError: no example, no labels or invalid ones, or logits that are
            probabilities or their logarithms.
    """
    means = ClassMeans(context.class_names)
    fitting = Fitting(scores, context)
    for batch in _known_batches(batches, context.num_classes):
        fitting.add(batch)
        means.add(batch)
    statistics: dict[str, dict[str, np.ndarray]] = {
        score.name: {} for score in scores if not score.IS_FITTED_TO_DATA
    }
    statistics.update(fitting.finish())
    return Learnt(means, statistics, fitting.problems)


def _known_batches(
    batches: Iterable[Any], num_classes: int
) -> Iterator[KnownBatch]:
    # What the rows of all batches may be.
    kinds = None
    for outputs, labels, inputs, place in batches:
        if labels is None:
            raise ValueError("The known data need labels: pass y.")
        yield KnownBatch(
            check_labels(labels, num_classes, where=place),
            inputs,
            outputs,
            num_classes,
        )
        own = _kinds_of_probabilities(outputs["logits"])
        kinds = own if kinds is None else kinds & own
    if kinds is None:
        raise ValueError("The known data must contain at least one example.")
    if kinds:
        raise ValueError(
            f"The classifier returns {kinds.pop()}, not logits: remove the "
            "softmax at its end."
        )


def _kinds_of_probabilities(logits):
    """What every row is, other than logits, as a set of texts."""
    found = set()
    if (logits >= 0).all() and _is_close_to_1(logits.sum(axis=-1)):
        found.add("probabilities (they are not negative and sum to 1)")
    if (logits <= 0).all() and _is_close_to_1(np.exp(logits).sum(axis=-1)):
        found.add("log-probabilities (exponentiated, they sum to 1)")
    return found


def _is_close_to_1(sums):
    return np.allclose(sums, 1.0, atol=1e-3)
