# SPDX-License-Identifier: Apache-2.0
"""How far the open-set measures would vary with other test data."""

import numpy as np
from numpy.typing import ArrayLike

from cac_tf.metrics.open_set import finite_scores


def bootstrap_intervals(
    known_scores: ArrayLike,
    unknown_scores: ArrayLike,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Percentile intervals of AUROC, FPR@95 and AUPR by the bootstrap.

    Known and unknown test inputs are resampled separately (stratified), with
    replacement. The intervals cover the random choice of test images, not
    retraining or other classes.

    Args:
        known_scores: (n,) scores of known inputs.
        unknown_scores: (m,) scores of unknown inputs.
        confidence: share of the resamples inside an interval, in (0, 1).
        resamples: number of resamples, >= 1.
        seed: seed of the resamples.

    Returns:
        Dict from "auroc", "fpr_at_95_tpr", "aupr_known" and "aupr_unknown" to
        the lower and upper limit, a pair of floats.

    Raises:
        ValueError: an empty array, a score that is not finite, or a confidence
            or number of resamples out of range.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> known, unknown = rng.normal(0, 1, 500), rng.normal(2, 1, 500)
    >>> low, high = bootstrap_intervals(known, unknown)["auroc"]
    >>> from cac_tf.metrics import auroc
    >>> low < auroc(known, unknown) < high, round(high - low, 2)
    (True, 0.03)
    """
    known = finite_scores(known_scores, "known_scores")
    unknown = finite_scores(unknown_scores, "unknown_scores")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1); got {confidence!r}.")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1; got {resamples!r}.")
    # Sorted once: a resample is a count for each distinct score.
    distinct, place = np.unique(np.r_[known, unknown], return_inverse=True)
    places = place[: known.size], place[known.size :]
    rng = np.random.default_rng(seed)
    values = [
        _measures(*(_resampled(rng, own, distinct.size) for own in places))
        for _ in range(resamples)
    ]
    tail = 50.0 * (1.0 - confidence)
    return {
        name: tuple(
            np.percentile([v[name] for v in values], [tail, 100.0 - tail])
            .round(6)
            .tolist()
        )
        for name in values[0]
    }


def _resampled(rng, places, size):
    drawn = places[rng.integers(0, places.size, places.size)]
    return np.bincount(drawn, minlength=size)


def _measures(known, unknown):
    """Measures from the counts of known and unknown inputs at each score."""
    accepted_known, accepted_unknown = np.cumsum(known), np.cumsum(unknown)
    num_known, num_unknown = accepted_known[-1], accepted_unknown[-1]
    # Pairs in which the unknown input has the larger score; ties are half.
    pairs = np.dot(unknown, 2 * accepted_known - known) / 2
    enough = np.searchsorted(accepted_known, 0.95 * num_known - 1e-9)
    return {
        "auroc": pairs / (num_known * num_unknown),
        "fpr_at_95_tpr": accepted_unknown[enough] / num_unknown,
        "aupr_known": _average_precision(
            known, accepted_known, accepted_unknown
        ),
        "aupr_unknown": _average_precision(
            unknown,
            num_unknown - accepted_unknown + unknown,
            num_known - accepted_known + known,
        ),
    }


def _average_precision(positives, true, false):
    """Mean precision over the positives.

    Args:
        positives: positives at each score.
        true, false: positives and negatives found at that threshold.
    """
    found = np.maximum(true + false, 1)
    return np.dot(positives, true / found) / positives.sum()
