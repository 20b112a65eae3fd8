# SPDX-License-Identifier: Apache-2.0
"""Two scores on the same inputs: how far their AUROCs differ by chance."""

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.metrics.open_set import finite_scores

stats = lazy.module("scipy.stats")


def auroc_difference_interval(
    known: ArrayLike,
    unknown: ArrayLike,
    other_known: ArrayLike,
    other_unknown: ArrayLike,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Interval of the AUROC of one score less that of another one.

    Both scores judged the same test inputs, so most of the chance in the choice
    of these inputs cancels: two AUROCs whose own intervals overlap may still
    differ. The interval is DeLong's (DeLong, DeLong and Clarke-Pearson,
    *Comparing the areas under two or more correlated receiver operating
    characteristic curves*, Biometrics 1988). It takes three sorts. Of a single
    known or unknown input, nothing is known about the variance: then it is -1
    to 1.

    Args:
        known: (n,) scores of known inputs.
        unknown: (m,) scores of unknown inputs.
        other_known: (n,) the other scores of the same known inputs.
        other_unknown: (m,) the other scores of the same unknown inputs.
        confidence: of the interval, in (0, 1).

    Returns:
        Lower and upper limit, a pair of floats. If 0 lies between them, the
        scores differ by no more than chance.

    Raises:
        ValueError: an empty array, a score that is not finite, different
            numbers of inputs, a confidence out of range.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> known, unknown = rng.normal(0, 1, 300), rng.normal(1, 1, 300)
    >>> noise = rng.normal(0, 1, 300)
    >>> low, high = auroc_difference_interval(
    ...     known, unknown, known + noise, unknown + noise)
    >>> 0 < low < high
    True
    >>> auroc_difference_interval(known, unknown, 2 * known, 2 * unknown)
    (0.0, 0.0)
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1); got {confidence!r}.")
    own = _placements(known, unknown)
    other = _placements(other_known, other_unknown)
    differences = []
    for one, another in zip(own, other, strict=True):
        if one.size != another.size:
            raise ValueError(
                "Both scores must be computed on the same inputs; got "
                f"{one.size} and {another.size} of them."
            )
        differences.append(one - another)
    if min(d.size for d in differences) == 1:
        return -1.0, 1.0
    center = differences[0].mean()
    variance = sum(d.var(ddof=1) / d.size for d in differences)
    half = stats.norm.ppf(0.5 + confidence / 2) * np.sqrt(variance)
    return float(center - half), float(center + half)


def _placements(known, unknown):
    """For each known input, the share of unknown ones with larger scores.

    And for each unknown input, the share of known ones with smaller scores.
    Ties count half. The mean of either is the AUROC.
    """
    known = finite_scores(known, "known scores")
    unknown = finite_scores(unknown, "unknown scores")
    ranks = stats.rankdata(np.r_[known, unknown])
    # A rank among all, less that among its own kind, counts the other kind.
    of_known = ranks[: known.size] - stats.rankdata(known)
    of_unknown = ranks[known.size :] - stats.rankdata(unknown)
    return 1.0 - of_known / unknown.size, of_unknown / known.size
