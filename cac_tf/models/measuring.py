# SPDX-License-Identifier: Apache-2.0
"""What known and unknown data say of a model: thresholds and measures."""

import numpy as np

from cac_tf import metrics
from cac_tf.decision import calibration
from cac_tf.decision import rule
from cac_tf.labels import UNKNOWN
from cac_tf.labels import check_labels

_OF_SCORE = ("unknown_score", "predicted_class_id")


def threshold_from(
    model, data, true_positive_rate, false_positive_rate, by_class, batch_size
):
    """The threshold that `OpenSetClassifier.calibrate` sets; see there.

    Args:
        data: pair of inputs, or None, and labels, or None.
        (The others are those of the method.)

    Returns:
        The threshold, and the unknown scores that it comes from.
    """
    if (true_positive_rate is None) == (false_positive_rate is None):
        raise ValueError(
            "Give exactly one of true_positive_rate (accepted known "
            "inputs) and false_positive_rate (accepted unknown inputs): "
            "model.calibrate(x, y, true_positive_rate=0.95)."
        )
    of_known = true_positive_rate is not None
    if of_known:
        rule_for = calibration.threshold_for_true_positive_rate
    else:
        rule_for = calibration.threshold_for_false_positive_rate
    rate = true_positive_rate if of_known else false_positive_rate
    inputs, y = data
    batches = (
        ()
        if inputs is None
        else model.iterate_outputs(inputs, y, batch_size, names=_OF_SCORE)
    )
    num_classes = len(model.class_names)
    parts = [(np.empty(0, "float32"), np.empty(0, "int32"))]
    for outputs, labels, _, place in batches:
        rows = slice(None)
        # (Labels of unknown inputs do not matter.)
        if of_known and labels is not None:
            labels = check_labels(
                labels, num_classes, allow_unknown=True, where=place
            )
            rows = labels != UNKNOWN
        parts.append(tuple(outputs[name][rows] for name in _OF_SCORE))
    scores, class_ids = map(np.concatenate, zip(*parts, strict=True))
    resolution = model.score.RESOLUTION
    if by_class:
        threshold = calibration.thresholds_by_class(
            rule_for, scores, class_ids, model.class_names, rate, resolution
        )
    else:
        threshold = rule_for(scores, rate, resolution)
    return threshold, scores


def measures_of(model, x, y, batch_size):
    """What `OpenSetClassifier.evaluate` returns; see there."""
    num_classes, parts = len(model.class_names), []
    for outputs, labels, _, place in model.iterate_outputs(
        x, y, batch_size, names=_OF_SCORE
    ):
        if labels is None:
            raise ValueError("evaluate needs labels: pass y.")
        labels = check_labels(
            labels, num_classes, allow_unknown=True, where=place
        )
        parts.append((labels, *(outputs[name] for name in _OF_SCORE)))
    if not parts:
        raise ValueError("There are no inputs to evaluate.")
    labels, scores, class_ids = map(np.concatenate, zip(*parts, strict=True))
    is_known = labels != UNKNOWN
    found = {}
    if is_known.any():
        found["accuracy"] = metrics.accuracy(
            labels[is_known], class_ids[is_known]
        )
    if is_known.any() and not is_known.all():
        found["auroc"] = metrics.auroc(scores[is_known], scores[~is_known])
    if model.threshold is not None:
        of_rows = rule.threshold_of_rows(np.float32(model.threshold), class_ids)
        accepted = rule.accepts(scores, np.asarray(of_rows))
        for name, rows in (("true", is_known), ("false", ~is_known)):
            if rows.any():
                found[f"{name}_positive_rate"] = float(accepted[rows].mean())
    return found
