# SPDX-License-Identifier: Apache-2.0
"""How unusual an input is among known ones: p-values of split conformal
prediction (Vovk, Gammerman and Shafer, 2005, chapter 2).

The p-value of a score is (1 + the number of known calibration scores that are
at least as large) / (n + 1). If the input is exchangeable with the n
calibration examples, P(p-value <= a) <= a for every a. P-values against the
same calibration examples depend on each other, positively (Bates et al.,
"Testing for outliers with conformal p-values", 2023): the procedure of
Benjamini and Hochberg still holds its rate, and a test that multiplies them
does not.
"""

import typing

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.annotations import Tensor
from cac_tf.decision.accepted_share import AcceptedShare

# Arrays do without it.
ops = lazy.module("keras.ops")

# Calibration scores that are kept. Of a million, the ranks that are kept lie
# 1.4 % apart, and so much a p-value is too large at most.
TABLE_SIZE = 1000
# What scores differ by between runtimes, with a margin, as a share of their
# interquartile range.
_ROUNDING = 1e-4
_LOWEST = np.finfo("float32").min


class PValueTable(typing.NamedTuple):
    """Calibration scores by rank, as `p_values` needs them.

    A score is kept as a number that is a little larger, though not beyond the
    middle of the gap to the next one: the last bits of a score differ between
    runtimes. The p-value of an input in between is larger by this, if anything.
    """

    scores: np.ndarray  # (TABLE_SIZE,) float32, descending
    # (TABLE_SIZE + 1,) float32, ascending: the p-value of an input that so many
    # of these scores are not below.
    levels: np.ndarray

    def accepted_by(self, threshold: float) -> AcceptedShare | None:
        """How many of the calibration scores a threshold accepts.

        Where not all of them are kept, a little fewer.

        Args:
            threshold: a float32 number.

        Returns:
            None if there was no score.

        Example:

        >>> p_value_table([1.0, 3.0, 2.0]).accepted_by(2.5)
        AcceptedShare(accepted=2, examples=3)
        """
        count = round(1.0 / float(self.levels[0])) - 1
        if not count:
            return None
        # (A score may have been raised to the middle of a gap, where thresholds
        # lie.)
        above = np.nextafter(
            np.full(1, threshold, "float32"), np.inf, dtype="float32"
        )
        rejected = round(float(p_values(above, *self)[0]) * (count + 1)) - 1
        return AcceptedShare(count - rejected, count)


def p_value_table(known_scores: ArrayLike) -> PValueTable:
    """What `calibrate` keeps of the scores of known examples.

    Up to TABLE_SIZE scores are all kept. Of more, as many are, at ranks that
    are consecutive first, among the largest scores, and then grow by a factor:
    the p-value is never below that of all scores, so what it promises holds.

    Args:
        known_scores: (n,) finite unknown scores of known inputs that were not
            trained on. Without any, every p-value is 1.

    Returns:
        `PValueTable`.

    Example:

    >>> table = p_value_table([1.0, 3.0, 2.0])
    >>> table.scores[:3]
    array([3.0001, 2.0001, 1.0001], dtype=float32)
    >>> table.levels[:5]
    array([0.25, 0.5 , 0.75, 1.  , 1.  ], dtype=float32)
    """
    descending = np.sort(np.asarray(known_scores, "float32").ravel())[::-1]
    ranks = kept_ranks(len(descending))
    kept = descending[np.subtract(ranks, 1).astype(int)]
    scores = np.full(TABLE_SIZE, _LOWEST, "float32")
    scores[: len(ranks)] = _raised(kept, np.unique(descending))
    levels = np.ones(TABLE_SIZE + 1)
    levels[: len(ranks)] = np.divide(ranks, len(descending) + 1)
    return PValueTable(scores, levels.astype("float32"))


def kept_ranks(count: int) -> list[int]:
    """Ranks, from 1 on, of the scores that are kept of so many.

    So an input has one of the p-values rank / (count + 1), or 1.

    Example:

    >>> kept_ranks(3), kept_ranks(5_000)[-2:]
    ([1, 2, 3], [4972, 5000])
    """
    ranks: list[int] = []
    while len(ranks) < min(count, TABLE_SIZE):
        left, last = TABLE_SIZE - len(ranks), ranks[-1] if ranks else 0
        step = (count / max(last, 1)) ** (1 / left)
        ranks.append(max(last + 1, int(last * step)))
    return ranks


def p_values(unknown_score: Tensor, scores: Tensor, levels: Tensor) -> Tensor:
    """(B,) float32 in (0, 1]: the p-value of each input; small = unusual.

    A score that is NaN has the smallest one.

    Args:
        unknown_score: (B,) float32.
        scores, levels: of `p_value_table`, arrays or tensors.

    Example:

    >>> table = p_value_table([1.0, 3.0, 2.0])
    >>> p_values(np.float32([0.5, 2.0, 2.5, 9.0]), *table)
    array([1.  , 0.75, 0.5 , 0.25], dtype=float32)
    """
    if isinstance(unknown_score, np.ndarray):
        ascending = np.asarray(scores)[::-1]
        below = np.searchsorted(ascending, unknown_score)
        return np.asarray(levels)[len(ascending) - below]
    # Comparisons, which every runtime that graphs are exported to has.
    is_below = ops.cast(unknown_score[:, None] <= scores[None, :], "int32")
    return ops.take(levels, ops.sum(is_below, axis=-1), axis=0)


def discovery_level(found: ArrayLike, counts: ArrayLike, rate: float) -> float:
    """Of a batch, the largest p-value that is called unknown.

    The procedure of Benjamini and Hochberg (*Controlling the False Discovery
    Rate*, 1995): the largest p for which p is at most `rate` times the share of
    the batch with p-values up to p. Of what is called unknown, at most the
    share `rate` is known, on average over batches and calibrations: see above.

    Args:
        found: (k,) different p-values of the batch.
        counts: (k,) how many inputs have each.
        rate: wanted false-discovery rate, in (0, 1).

    Returns:
        A p-value of the batch; 0 if no input is called unknown.

    Raises:
        ValueError: a rate outside (0, 1).

    Example:

    >>> discovery_level([0.01, 0.02, 0.5, 0.9], [3, 1, 4, 2], rate=0.1)
    0.02
    """
    if not 0.0 < rate < 1.0:
        raise ValueError(
            f"false_discovery_rate must be in (0, 1); got {rate!r}."
        )
    order = np.argsort(found)
    levels = np.asarray(found, "float64")[order]
    up_to = np.cumsum(np.asarray(counts)[order])
    # P-values are float32, and may be rounded up.
    is_called = levels * up_to[-1:] <= rate * up_to * (1.0 + 1e-6)
    return float(levels[is_called].max(initial=0.0))


def _raised(scores, ascending):
    """Each score a little larger; below the next one that there is."""
    if not len(scores):
        return scores
    wide = np.float64(ascending)
    first, third = np.quantile(wide, (0.25, 0.75))
    most = _ROUNDING * (third - first or np.abs(wide).max())
    steps = np.minimum(np.diff(wide, append=np.inf) / 2, most)
    # (Of two adjacent float32 numbers, the middle may round to the larger.)
    below_next = np.nextafter(np.append(ascending[1:], np.inf), _LOWEST)
    raised = np.clip(np.float32(wide + steps), ascending, below_next)
    return np.float32(raised)[np.searchsorted(ascending, scores)]
