# SPDX-License-Identifier: Apache-2.0
r"""An answer's rank among the earlier ones, with ties at random.

With k earlier ones below it and e equal ones among n, and V uniform in (0, 1),
u = (k + V (e + 1)) / (n + 1). If all are exchangeable, the u are independent
and uniform (Vovk, Gammerman and Shafer, *Algorithmic Learning in a Random
World*, 2005, theorem 8.2).
"""

import numpy as np


def ranks_of_hits(
    hits: np.ndarray, before: np.ndarray, earlier: int, ties: np.ndarray
) -> np.ndarray:
    """Ranks of what an answer is or is not; what it is comes first.

    Args:
        hits: (B, T) bool: for each answer, which of T things it is.
        before: (T,) how many of the earlier answers were.
        earlier: how many there were.
        ties: (B,) uniform numbers.

    Returns:
        (B, T) ranks in [0, 1].

    Example:

    >>> hits = np.array([[True], [False]])
    >>> ranks_of_hits(hits, np.array([1]), 3, np.array([0.5, 0.5]))
    array([[0.25],
           [0.7 ]])
    """
    hits_before = before + hits.cumsum(axis=0) - hits
    numbers = earlier + np.arange(len(hits))[:, None]
    ties = ties[:, None]
    below = np.where(hits, 0, hits_before)
    equal = np.where(hits, hits_before, numbers - hits_before)
    return (below + ties * (equal + 1)) / (numbers + 1)


def ranks_of_levels(
    levels: np.ndarray, weights: np.ndarray, ties: np.ndarray, own: int = 1
) -> np.ndarray:
    """Ranks of answers on a scale of L levels.

    Args:
        levels: (B,) which level each answer has.
        weights: (L,) how many of the earlier answers have each.
        ties: (B,) uniform numbers.
        own: what an answer adds to its own level before it is ranked. 0 where
            a level's weight has that already, as that of a gap between
            calibration scores, which is 1 before any answer.

    Returns:
        (B,) ranks in [0, 1].

    Example:

    >>> ranks_of_levels(np.array([2, 1]), np.array([3, 0, 1]), np.full(2, 0.5))
    array([0.8       , 0.58333333])
    """
    others, own_level = levels[None, :], levels[:, None]
    is_earlier = np.tri(len(levels), k=-1, dtype=bool)
    below = np.cumsum(weights)[levels] - weights[levels]
    below = below + ((others < own_level) & is_earlier).sum(axis=1)
    equal = weights[levels] + ((others == own_level) & is_earlier).sum(axis=1)
    total = weights.sum() + np.arange(len(levels))
    return (below + ties * (equal + own)) / (total + own)
