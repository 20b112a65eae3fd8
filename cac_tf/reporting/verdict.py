# SPDX-License-Identifier: Apache-2.0
"""What an evaluation found, in sentences."""

from collections.abc import Mapping
from typing import Any

from cac_tf import lazy
from cac_tf.decision.accepted_share import AcceptedShare

stats = lazy.module("scipy.stats")

# A smaller difference of AUROC is no reason to choose another score: the next
# training moves it by as much.
_MATTERS = 0.005


def verdict(measures: Mapping[str, Any]) -> list[str]:
    """Summarizes the measured results in a few sentences.

    The brackets hold 95 % intervals, for shares by Wilson's formula and for
    differences of AUROC by DeLong's, wider the more scores are compared. They
    cover the random choice of test images, not retraining or other classes.

    Args:
        measures: the contents of `metrics.json`.

    Returns:
        List of one to four strings.

    Example:

    >>> measures = {
    ...     "accuracy": 0.9, "threshold": 1.5, "score": "gamma",
    ...     "true_positive_rate": 0.95, "false_positive_rate": 0.25,
    ...     "counts": {"known_test": 200, "unknown_test": 400},
    ...     "calibration": {
    ...         "asked": 0.95, "accepted": 145, "examples": 151},
    ...     "auroc": 0.91, "auroc_differences": {"knn": [0.012, 0.048]},
    ...     "scores": {"gamma": {"auroc": 0.91}, "knn": {"auroc": 0.94}}}
    >>> for sentence in verdict(measures):
    ...     print(sentence)
    Accepts 95 % [91-97] of 200 known test images and 25 % [21-29] of 400 \
unknown ones (gamma, threshold 1.5).
    The threshold was set for 95 % on 151 validation images and accepts 145 \
of them (96.0 %); expect it to accept 92-98 % of new known images (with 90 % \
probability).
    Its closed-set accuracy is 90 % [85-93].
    By AUROC on these test images, knn would have been better: 0.940 against \
0.910 for gamma, a difference of 0.030 [0.012 to 0.048].
    """
    counts = measures["counts"]
    known, unknown = counts["known_test"], counts["unknown_test"]
    inputs = measures.get("inputs", "images")
    sentences = []
    if measures["threshold"] is not None:
        accepted = share(measures["true_positive_rate"], known)
        sentence = f"Accepts {accepted} of {known} known test {inputs}"
        if measures["false_positive_rate"] is not None:
            accepted = share(measures["false_positive_rate"], unknown)
            sentence += f" and {accepted} of {unknown} unknown ones"
        rule = f"{measures['score']}, {_threshold(measures['threshold'])}"
        sentences.append(f"{sentence} ({rule}).")
    # Runs of earlier versions have none.
    if measures.get("calibration"):
        sentences.append(_calibration(measures, inputs))
    accuracy = share(measures["accuracy"], known)
    sentences.append(f"Its closed-set accuracy is {accuracy}.")
    if measures["auroc"] is None:
        sentences.append(
            "The test data contain no unknown classes: this is a closed-set "
            "evaluation, which says nothing about rejection."
        )
    elif len(measures["scores"]) > 1:
        sentences.append(_comparison(measures))
    return sentences


def _calibration(measures, inputs):
    found = measures["calibration"]
    share = AcceptedShare(found["accepted"], found["examples"])
    source = f"{share.examples} validation {inputs}"
    if measures["counts"].get("validation") == 0:
        source = (
            f"{share.examples} training {inputs}, each scored by a model "
            "trained without it,"
        )
    # Known only where the threshold was set by this evaluation's run.
    asked, goal = found.get("asked"), ""
    if asked is not None:
        goal = f" for {100 * asked:.4g} %"
    return (
        f"The threshold was set{goal} on {source} and accepts "
        f"{share.accepted} of them ({100 * share.rate:.1f} %); expect it to "
        f"accept {share.in_words()} of new known {inputs} (with 90 % "
        "probability)."
    )


def share(value, count):
    """A share of `count` with its interval, such as "95 % [91-97]"."""
    right = round(value * count)
    low, high = stats.binomtest(right, count).proportion_ci(method="wilson")
    digits = 1 if count >= 1000 else 0
    low, value, high = (f"{100 * x:.{digits}f}" for x in (low, value, high))
    return f"{value} % [{low}-{high}]"


def _threshold(threshold):
    if not isinstance(threshold, list):
        return f"threshold {threshold:.4g}"
    return (
        f"thresholds from {min(threshold):.4g} to {max(threshold):.4g} by class"
    )


def _comparison(measures):
    own, scores = measures["score"], measures["scores"]
    inputs = measures.get("inputs", "images")
    best = max(scores, key=lambda name: scores[name]["auroc"])
    better, auroc = scores[best]["auroc"], measures["auroc"]
    if better - auroc < _MATTERS:
        return (
            f"By AUROC on these test {inputs}, none of the {len(scores)} "
            f"scores compared beats {own} ({auroc:.3f}) by {_MATTERS} or more."
        )
    # Runs of earlier versions have none.
    interval = (measures.get("auroc_differences") or {}).get(best)
    said, difference = "would have been better", ""
    if interval is not None:
        low, high = interval
        if low <= 0.0:
            said = "is ahead, but possibly by chance"
        difference = (
            f", a difference of {better - auroc:.3f} [{low:.3f} to {high:.3f}]"
        )
    return (
        f"By AUROC on these test {inputs}, {best} {said}: {better:.3f} "
        f"against {auroc:.3f} for {own}{difference}."
    )
