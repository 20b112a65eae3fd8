# SPDX-License-Identifier: Apache-2.0
"""Open-set measures as exact functions on arrays (paper, section 4).

"Score" always means the unknown score: larger = more unknown. An input is
accepted (taken to be known) at a threshold t if its score is <= t.
"""

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy

sklearn_metrics = lazy.module("sklearn.metrics")


def finite_scores(values: ArrayLike, name: str) -> np.ndarray:
    """Scores as a float64 vector; raises ValueError if it cannot be used."""
    values = np.asarray(values, dtype="float64").ravel()
    if values.size == 0:
        raise ValueError(f"{name} is empty; at least one score is needed.")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} contains NaN or infinity.")
    return values


def openness(num_known: int, num_unknown: int) -> float:
    r"""\\(1 - \sqrt{2 N_{train} / (N_{test} + N_{target})}\\), equation 10.

    N_train = N_target is the number of known classes, N_test of all classes.

    Args:
        num_known: classes seen in training, >= 1.
        num_unknown: additional classes in the test, >= 0.

    Returns:
        A float in [0, 1); 0 means closed-set.

    Example:

    >>> round(openness(6, 4), 4)
    0.134
    """
    if num_known < 1 or num_unknown < 0:
        raise ValueError(
            "openness needs at least one known class and non-negative "
            f"counts; got {num_known} known and {num_unknown} unknown."
        )
    return 1.0 - float(np.sqrt(2 * num_known / (2 * num_known + num_unknown)))


def accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Share of known inputs whose predicted class is correct.

    Args:
        labels: (n,) class indices.
        predicted: (n,) class indices, before any rejection.

    Returns:
        A float in [0, 1].

    Example:

    >>> accuracy([0, 1, 1, 1], [0, 1, 1, 0])
    0.75
    """
    return float(sklearn_metrics.accuracy_score(labels, predicted))


def auroc(known_scores: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Area under the ROC curve: known against unknown inputs.

    The probability that an unknown input scores higher than a known one, with
    ties counted as half.

    Args:
        known_scores: (n,) scores of known inputs.
        unknown_scores: (m,) scores of unknown inputs.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: an empty array, or a score that is not finite.

    Example:

    >>> auroc([0.1, 0.2], [0.2, 0.3])
    0.875
    """
    known = finite_scores(known_scores, "known_scores")
    unknown = finite_scores(unknown_scores, "unknown_scores")
    is_unknown = np.repeat([0, 1], [known.size, unknown.size])
    return float(
        sklearn_metrics.roc_auc_score(is_unknown, np.r_[known, unknown])
    )


def roc_curve(
    known_scores: ArrayLike, unknown_scores: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Accepted shares of unknown and known inputs over all thresholds.

    Args:
        known_scores: (n,) scores of known inputs.
        unknown_scores: (m,) scores of unknown inputs.

    Returns:
        (k,) false-positive rates, rising from 0 to 1, and the (k,)
        true-positive rates there.

    Example:

    >>> roc_curve([0.0], [1.0])
    (array([0., 0., 1.]), array([0., 1., 1.]))
    """
    known = finite_scores(known_scores, "known_scores")
    unknown = finite_scores(unknown_scores, "unknown_scores")
    is_known = np.repeat([1, 0], [known.size, unknown.size])
    fpr, tpr, _ = sklearn_metrics.roc_curve(
        is_known, -np.r_[known, unknown], drop_intermediate=False
    )
    return fpr, tpr


def fpr_at_tpr(
    known_scores: ArrayLike,
    unknown_scores: ArrayLike,
    true_positive_rate: float = 0.95,
) -> float:
    """False-positive rate at a true-positive rate, FPR@95 by default.

    The share of unknown inputs accepted at the smallest threshold that accepts
    at least that share of the known ones; without interpolation.

    Args:
        known_scores: (n,) scores of known inputs.
        unknown_scores: (m,) scores of unknown inputs.
        true_positive_rate: in (0, 1].

    Returns:
        A float in [0, 1]; smaller is better.

    Example:

    >>> fpr_at_tpr([0.0, 1.0, 2.0, 3.0], [0.5, 1.5, 2.5, 3.5], 0.75)
    0.5
    """
    if not 0.0 < true_positive_rate <= 1.0:
        raise ValueError(
            f"true_positive_rate must be in (0, 1]; got {true_positive_rate!r}."
        )
    fpr, tpr = roc_curve(known_scores, unknown_scores)
    return float(fpr[np.argmax(tpr >= true_positive_rate - 1e-12)])


def aupr(
    known_scores: ArrayLike,
    unknown_scores: ArrayLike,
    positive: str = "unknown",
) -> float:
    """Area under the precision-recall curve, as average precision.

    Unlike AUROC it depends on the ratio of known to unknown inputs.

    Args:
        known_scores: (n,) scores of known inputs.
        unknown_scores: (m,) scores of unknown inputs.
        positive: which inputs are the positives, "unknown" or "known".

    Returns:
        A float in [0, 1]; larger is better. A random score has the share of the
        positives.

    Example:

    >>> aupr([0.1, 0.2], [0.3]), aupr([0.1, 0.4], [0.3], positive="known")
    (1.0, 0.8333333333333333)
    """
    known = finite_scores(known_scores, "known_scores")
    unknown = finite_scores(unknown_scores, "unknown_scores")
    if positive not in ("unknown", "known"):
        raise ValueError(
            f'positive must be "unknown" or "known"; got {positive!r}.'
        )
    is_unknown = np.repeat([False, True], [known.size, unknown.size])
    scores = np.r_[known, unknown]
    if positive == "known":
        return float(
            sklearn_metrics.average_precision_score(~is_unknown, -scores)
        )
    return float(sklearn_metrics.average_precision_score(is_unknown, scores))


def oscr_curve(
    known_scores: ArrayLike, is_correct: ArrayLike, unknown_scores: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Correct classification rate over the false-positive rate.

    Args:
        known_scores: (n,) scores of known inputs.
        is_correct: (n,) bool, whether the predicted class is correct.
        unknown_scores: (m,) scores of unknown inputs.

    Returns:
        (k,) false-positive rates, rising from 0 to 1, and (k,) correct
        classification rates: known inputs that are accepted and correctly
        classified, as a share of all known inputs.

    Example:

    >>> oscr_curve([0.0, 0.5], [True, False], [1.0])
    (array([0., 0., 1.]), array([0. , 0.5, 0.5]))
    """
    known = finite_scores(known_scores, "known_scores")
    is_correct = np.asarray(is_correct, dtype=bool).ravel()
    if is_correct.shape != known.shape:
        raise ValueError(
            f"is_correct has {is_correct.size} entries for {known.size} scores."
        )
    if not is_correct.any():
        fpr, _ = roc_curve(known, unknown_scores)
        return fpr, np.zeros_like(fpr)
    fpr, tpr = roc_curve(known[is_correct], unknown_scores)
    return fpr, tpr * is_correct.mean()


def oscr(
    known_scores: ArrayLike, is_correct: ArrayLike, unknown_scores: ArrayLike
) -> float:
    """Open-set classification rate: the area under `oscr_curve`.

    Example:

    >>> oscr([0.0, 0.5], [True, False], [1.0])
    0.5
    """
    fpr, ccr = oscr_curve(known_scores, is_correct, unknown_scores)
    return float(sklearn_metrics.auc(fpr, ccr))


def ccr_at_fpr(
    known_scores: ArrayLike,
    is_correct: ArrayLike,
    unknown_scores: ArrayLike,
    false_positive_rate: float,
) -> float:
    """Correct classification rate at a false-positive rate.

    The share of known inputs accepted with the right class, at the largest
    threshold that accepts at most that share of the unknown inputs; without
    interpolation.

    Args:
        known_scores: (n,) scores of known inputs.
        is_correct: (n,) bool, whether the predicted class is correct.
        unknown_scores: (m,) scores of unknown inputs.
        false_positive_rate: in [0, 1].

    Returns:
        A float in [0, 1].

    Example:

    >>> ccr_at_fpr([0.0, 3.0], [True, True], [1.0, 2.0], 0.1)
    0.5
    """
    if not 0.0 <= false_positive_rate <= 1.0:
        raise ValueError(
            f"false_positive_rate must be in [0, 1]; got "
            f"{false_positive_rate!r}."
        )
    fpr, ccr = oscr_curve(known_scores, is_correct, unknown_scores)
    return float(ccr[fpr <= false_positive_rate + 1e-12].max())


def bhattacharyya(
    known_values: ArrayLike, unknown_values: ArrayLike, bins: int = 20
) -> float:
    r"""Bhattacharyya coefficient of two histograms, \\(\sum\sqrt{p_i q_i}\\).

    The paper (Table 2) compares the distances of known and unknown inputs to
    the closest center. The bins here have equal width over the range of both.
    The paper does not state its number of bins; 20 reproduce its numbers on the
    authors' released weights.

    Args:
        known_values: (n,) values, e.g. distances to the closest center.
        unknown_values: (m,) values.
        bins: number of bins.

    Returns:
        A float in [0, 1]; 0 for disjoint histograms, 1 for equal ones.

    Example:

    >>> bhattacharyya([0.0, 1.0], [0.0, 1.0])
    1.0
    >>> bhattacharyya([0.0, 0.1], [0.9, 1.0])
    0.0
    """
    known = finite_scores(known_values, "known_values")
    unknown = finite_scores(unknown_values, "unknown_values")
    edges = np.histogram_bin_edges(np.r_[known, unknown], bins)
    p = np.histogram(known, edges)[0] / known.size
    q = np.histogram(unknown, edges)[0] / unknown.size
    return float(np.minimum(np.sqrt(p * q).sum(), 1.0))
