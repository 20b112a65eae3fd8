# SPDX-License-Identifier: Apache-2.0
"""What the figures of a page show, in words, for who cannot see them."""

import numpy as np

from cac_tf.counted import counted
from cac_tf.reporting.measures import significant


def of_histogram(evaluation):
    """Where the scores of known and unknown inputs lie, and the threshold."""
    parts = [
        f"the median of {name} test inputs is "
        f"{significant(np.median(evaluation.unknown_score[is_member]))}"
        for name, is_member in (
            ("known", evaluation.is_known),
            ("unknown", ~evaluation.is_known),
        )
        if is_member.any()
    ]
    threshold = evaluation.metrics["threshold"]
    if threshold is not None:
        thresholds = np.unique(threshold)
        parts.append(
            f"the threshold is {significant(thresholds[0])}"
            if len(thresholds) == 1
            else f"the threshold is {significant(thresholds[0])} to "
            f"{significant(thresholds[-1])}, by class"
        )
    return f"Histogram of unknown scores: {', '.join(parts)}."


def of_roc(evaluation):
    """The area under the curve, and the point of the threshold."""
    measures = evaluation.metrics
    text = f"ROC curve of {measures['score']}, AUROC {measures['auroc']:.3f}"
    if measures["threshold"] is not None:
        text += (
            "; the model's threshold accepts "
            f"{measures['true_positive_rate']:.0%} of known and "
            f"{measures['false_positive_rate']:.0%} of unknown inputs"
        )
    return f"{text}."


def of_oscr(evaluation):
    """The area under the curve."""
    measures = evaluation.metrics
    return f"OSCR curve of {measures['score']}, area {measures['oscr']:.3f}."


def of_training(history):
    """The first and the last loss, and the last accuracy."""
    text = f"Training over {counted(len(history), 'epoch')}"
    losses = [logs["loss"] for logs in history if "loss" in logs]
    if losses:
        text += f": loss from {losses[0]:.3g} to {losses[-1]:.3g}"
    if "accuracy" in history[-1]:
        text += f", accuracy {history[-1]['accuracy']:.3f} at the end"
    return f"{text}."


def of_logit_space(evaluation):
    """What is drawn, of which classes."""
    names = ", ".join(evaluation.metrics["class_names"])
    return (
        "Logits of the test inputs in three dimensions, by class "
        f"({names} and unknown), with the class centers."
    )


def of_runs(caption, values):
    """A number of each run, by its name.

    Example:

    >>> of_runs("ROC curves, AUROC", {"one": 0.9, "two": 0.8512})
    'ROC curves, AUROC: one 0.900, two 0.851.'
    """
    each = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    return f"{caption}: {each}."
