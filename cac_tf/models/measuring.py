# SPDX-License-Identifier: Apache-2.0
"""What known and unknown data say of a model: thresholds and measures."""

import numpy as np

from cac_tf import metrics
from cac_tf.decision import calibration
from cac_tf.decision import rule
from cac_tf.decision.accepted_share import AcceptedShare
from cac_tf.labels import UNKNOWN
from cac_tf.labels import check_labels

_OF_SCORE = ("unknown_score", "predicted_class_id")


def threshold_from(
    model,
    known,
    y,
    unknown,
    *,
    true_positive_rate,
    false_positive_rate,
    maximize,
    unknown_share,
    by_class,
    batch_size,
):
    """The threshold that `OpenSetClassifier.calibrate` sets; see there.

    Returns:
        The threshold; the unknown scores of known inputs, or None where there
        are none; and the `AcceptedShare` of unknown inputs, or None likewise.
    """
    wanted = (true_positive_rate, false_positive_rate, maximize)
    if sum(one is not None for one in wanted) != 1:
        raise ValueError(
            "Set exactly one of true_positive_rate (accepted known inputs), "
            "false_positive_rate (accepted unknown inputs) and maximize: "
            "model.calibrate(x, y, true_positive_rate=0.95)."
        )
    if maximize is None and unknown_share is not None:
        raise ValueError("unknown_share can be used only with maximize.")
    if maximize is not None and by_class:
        raise ValueError(
            "maximize sets a single threshold: leave by_class out."
        )
    names, resolution = model.class_names, model.score.RESOLUTION
    needed_by = None if maximize is None else "maximize"
    parts = [
        _examples(model, known, y, batch_size, needed_by),
        _examples(model, unknown, None, batch_size, are_unknown=True),
    ]
    labels, scores, class_ids = map(np.concatenate, zip(*parts, strict=True))
    is_known = labels != UNKNOWN
    if maximize is not None:
        threshold = calibration.threshold_maximizing(
            maximize,
            scores,
            labels,
            class_ids,
            len(names),
            unknown_share=unknown_share,
            resolution=resolution,
        )
    else:
        if true_positive_rate is not None:
            rows, rate = is_known, true_positive_rate
            rule_for = calibration.threshold_for_true_positive_rate
        else:
            rows, rate = ~is_known, false_positive_rate
            rule_for = calibration.threshold_for_false_positive_rate
        if by_class:
            threshold = calibration.thresholds_by_class(
                rule_for, scores[rows], class_ids[rows], names, rate, resolution
            )
        else:
            threshold = rule_for(scores[rows], rate, resolution)
    of_rows = rule.threshold_of_rows(np.float32(threshold), class_ids)
    accepted = rule.accepts(scores, of_rows)[~is_known]
    of_unknown = AcceptedShare(int(accepted.sum()), len(accepted))
    return (
        threshold,
        scores[is_known] if is_known.any() else None,
        of_unknown if len(accepted) else None,
    )


def _examples(model, x, y, batch_size, needed_by=None, are_unknown=False):
    """Labels, unknown scores and predicted classes; without x, none.

    Args:
        needed_by: what needs labels, for the message; None: without labels,
            each is 0.
        are_unknown: whether each label is -1, whatever it says.
    """
    parts = [
        (np.empty(0, "int64"), np.empty(0, "float32"), np.empty(0, "int32"))
    ]
    batches = ()
    if x is not None:
        batches = model.iterate_outputs(x, y, batch_size, names=_OF_SCORE)
    for outputs, labels, _, place in batches:
        scores, class_ids = (outputs[name] for name in _OF_SCORE)
        if labels is None and needed_by is not None:
            raise ValueError(f"{needed_by} needs labels: pass y.")
        if labels is None or are_unknown:
            labels = np.full(len(scores), UNKNOWN if are_unknown else 0)
        labels = check_labels(
            labels, len(model.class_names), allow_unknown=True, where=place
        )
        parts.append((labels, scores, class_ids))
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def measures_of(model, x, y, batch_size):
    """What `OpenSetClassifier.evaluate` returns; see there."""
    num_classes = len(model.class_names)
    labels, scores, class_ids = _examples(model, x, y, batch_size, "evaluate")
    if not len(labels):
        raise ValueError("There are no inputs to evaluate.")
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
        found["macro_f1"] = metrics.macro_f1(
            labels, np.where(accepted, class_ids, UNKNOWN), num_classes
        )
    return found
