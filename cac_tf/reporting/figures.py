# SPDX-License-Identifier: Apache-2.0
"""Figures of an evaluation, as matplotlib figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cac_tf import atomic_files
from cac_tf import lazy
from cac_tf import metrics
from cac_tf.annotations import Path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

matplotlib_figure = lazy.module("matplotlib.figure", extra="report")
matplotlib_ticker = lazy.module("matplotlib.ticker", extra="report")

# Okabe and Ito's blue and vermilion, which color-blind readers tell apart.
KNOWN_COLOR = "#0072b2"
UNKNOWN_COLOR = "#d55e00"
# Of curves over each other: all but the yellow of Okabe and Ito's colors, and
# the kinds of line. As 7 and 4 have no common factor, 28 curves differ, and two
# of one color differ in the line. The blue, solid one is left to the last: it
# is the model's own.
_CURVE_COLORS = (
    *(UNKNOWN_COLOR, "#009e73", "#56b4e9", "#e69f00", "#cc79a7", "#555555"),
    KNOWN_COLOR,
)
_CURVE_LINES = ("--", "-.", ":", "-")
# Of the three classes of a logit space: color and shape say the same.
_CLASS_MARKS = ((KNOWN_COLOR, "o"), ("#e69f00", "s"), ("#009e73", "^"))
_MOST_POINTS = 2000
# Of other scores than the model's own, so many of the largest AUROC.
_MOST_CURVES = 5
# What a logarithmic axis shows smaller scores as.
_LOWEST_SCORE = 1e-8


def _text(name):
    """A class name that matplotlib takes as text: no formula, not hidden."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def new_figure(width=4.6, height=4.2):
    """A figure and its axes, whose lines differ in color and in kind."""
    figure = matplotlib_figure.Figure(
        figsize=(width, height), layout="constrained"
    )
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    curves = range(len(_CURVE_COLORS) * len(_CURVE_LINES))
    axes.set_prop_cycle(
        color=[_CURVE_COLORS[i % len(_CURVE_COLORS)] for i in curves],
        linestyle=[_CURVE_LINES[i % len(_CURVE_LINES)] for i in curves],
    )
    return figure, axes


def _legend(figure, handles=None):
    """What the lines mean, below the axes, where it covers none of them."""
    figure.legend(
        handles=handles or figure.axes[0].get_legend_handles_labels()[0],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize="small",
    )


def roc_figure(evaluation):
    """ROC curves of the best scores, with the point that the threshold chose.

    The model's own score is among them, whatever its AUROC.
    """
    is_known = evaluation.is_known
    figure, axes = new_figure()
    aurocs = {
        name: evaluation.metrics["scores"][name]["auroc"]
        for name in evaluation.other_scores
    }
    best = sorted(aurocs, key=aurocs.get, reverse=True)[:_MOST_CURVES]
    for name, auroc in aurocs.items():
        if name not in best:
            continue
        scores = evaluation.other_scores[name]
        axes.plot(
            *metrics.roc_curve(scores[is_known], scores[~is_known]),
            linewidth=0.9,
            label=f"{auroc:.3f} {name}",
        )
    own = f"AUROC {evaluation.metrics['auroc']:.3f}"
    if evaluation.other_scores:
        own = f"{evaluation.metrics['auroc']:.3f} {evaluation.metrics['score']}"
    axes.plot(
        *metrics.roc_curve(
            evaluation.unknown_score[is_known],
            evaluation.unknown_score[~is_known],
        ),
        color=KNOWN_COLOR,
        linestyle="-",
        linewidth=2.2 if evaluation.other_scores else 1.5,
        label=own,
    )
    _mark_threshold(axes, evaluation, evaluation.metrics["true_positive_rate"])
    _finish_roc(figure, axes)
    return figure


def _finish_roc(figure, axes):
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, linestyle="--")
    axes.set_xlabel("unknown accepted (false-positive rate)")
    axes.set_ylabel("known accepted (true-positive rate)")
    _legend(figure)


def roc_curves_figure(runs):
    """The ROC curve of each `ComparedRun`, by its own score."""
    figure, axes = new_figure()
    for run in runs:
        is_known = run.labels >= 0
        axes.plot(
            *metrics.roc_curve(
                run.unknown_score[is_known], run.unknown_score[~is_known]
            ),
            linewidth=1.2,
            label=f"{run.measures['auroc']:.3f} {_text(run.name)}",
        )
    _finish_roc(figure, axes)
    return figure


def trainings(history):
    """The epochs of each training of a run, by its name.

    The losses of different networks have no common scale: none of them belongs
    into one curve with another's.

    Example:

    >>> trainings([{"training": "classifier", "loss": 2.0},
    ...     {"training": "decoder", "loss": 300.0}])["decoder"]
    [{'training': 'decoder', 'loss': 300.0}]
    """
    found = {}
    for logs in history:
        found.setdefault(logs.get("training", ""), []).append(logs)
    return found


def learning_curves_figure(histories, name):
    """One number of each epoch of a training, of several runs.

    Args:
        histories: dict from the name of a run to a dict for each epoch.
        name: of the number.
    """
    figure, axes = new_figure()
    for run, history in histories.items():
        points = _points(history, name)
        axes.plot(*np.transpose(points), linewidth=1.2, label=_text(run))
    axes.set_xlabel("epoch")
    axes.set_ylabel(name.replace("val_", "validation "))
    _legend(figure)
    return figure


def _mark_threshold(axes, evaluation, height):
    if evaluation.metrics["threshold"] is not None:
        axes.plot(
            evaluation.metrics["false_positive_rate"],
            height,
            "o",
            color="black",
            fillstyle="none",
            label="at the model's threshold",
        )


def oscr_figure(evaluation):
    """OSCR curve, with the point that the threshold chose."""
    is_known = evaluation.is_known
    figure, axes = new_figure()
    axes.plot(
        *metrics.oscr_curve(
            evaluation.unknown_score[is_known],
            evaluation.is_correct[is_known],
            evaluation.unknown_score[~is_known],
        ),
        color=KNOWN_COLOR,
        linestyle="-",
        label=f"OSCR {evaluation.metrics['oscr']:.3f}",
    )
    if evaluation.is_accepted is not None:
        right = (evaluation.is_accepted & evaluation.is_correct)[
            is_known
        ].mean()
        _mark_threshold(axes, evaluation, right)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("unknown accepted (false-positive rate)")
    axes.set_ylabel("known accepted as their own class (CCR)")
    _legend(figure)
    return figure


def histogram_edges(values, count):
    """Edges of equal bins, (count + 1,) float64.

    In float32, there would be no room for them between values that hardly
    differ.
    """
    return np.histogram_bin_edges(np.asarray(values, "float64"), count)


def score_histogram(evaluation):
    """Histogram of the unknown scores of known and unknown inputs.

    Its horizontal axis ends where the scores do, as the page reads its scale
    off for the threshold that one can drag.
    """
    figure, axes = new_figure()
    # Gamma of inputs close to a center is tiny: a linear axis would put most
    # known inputs and the threshold into its first bin.
    is_logarithmic = evaluation.unknown_score.min() >= 0.0
    lowest = _LOWEST_SCORE if is_logarithmic else -np.inf
    scores = np.maximum(evaluation.unknown_score, lowest)
    if is_logarithmic:
        edges = np.geomspace(scores.min(), scores.max() * (1 + 1e-6), 41)
        axes.set_xscale("log")
    else:
        edges = histogram_edges(scores, 40)
    draw_shares(axes, scores, evaluation.is_known, edges)
    thresholds = _thresholds_on_axis(evaluation, lowest)
    axes.set_xlim(min([edges[0], *thresholds]), max([edges[-1], *thresholds]))
    if is_logarithmic:
        _label_some(axes.xaxis)
    label = "per-class threshold"
    if len(thresholds) == 1:
        label = f"threshold = {thresholds[0]:.3g}"
    for threshold in thresholds:
        axes.axvline(
            threshold,
            color="black",
            linestyle=":",
            linewidth=0.8 if len(thresholds) > 1 else None,
            label=label if threshold == thresholds[0] else None,
        )
    axes.set_xlabel("unknown score (larger = more unknown)")
    axes.set_ylabel("share of inputs")
    _legend(figure)
    return figure


def _label_some(axis):
    """Labels a logarithmic axis at 1, 2 and 5, or at powers of ten alone."""
    low, high = axis.get_view_interval()
    multiples = (1, 2, 5) if high < 100 * low else (1,)
    # More labels than these would touch.
    locator = matplotlib_ticker.LogLocator(subs=multiples, numticks=5)
    axis.set_major_locator(locator)
    axis.set_major_formatter(matplotlib_ticker.FormatStrFormatter("%g"))
    axis.set_minor_formatter(matplotlib_ticker.NullFormatter())


def draw_shares(axes, values, is_known, edges):
    """Histograms of known and of unknown inputs, as shares of each.

    Args:
        axes: of matplotlib.
        values: (n,) numbers.
        is_known: (n,) bool.
        edges: of the bins.
    """
    for is_member, color, name in (
        (is_known, KNOWN_COLOR, "known"),
        (~is_known, UNKNOWN_COLOR, "unknown"),
    ):
        if is_member.any():
            axes.hist(
                values[is_member],
                edges,
                weights=np.full(is_member.sum(), 1 / is_member.sum()),
                color=color,
                alpha=0.6,
                label=name,
            )


def write_png(path: Path, figure: Figure) -> None:
    """Writes a figure as a PNG file, as a whole or not at all."""
    with atomic_files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _thresholds_on_axis(evaluation, lowest):
    """The different thresholds, ascending; none where there is no threshold."""
    threshold = evaluation.metrics["threshold"]
    if threshold is None:
        return []
    return np.unique(np.maximum(threshold, lowest)).tolist()


def _points(history, name):
    """Pairs of an epoch and a value, of the epochs that have it.

    Not every epoch is evaluated on test data, nor every training on others.
    """
    return [
        (epoch, logs[name])
        for epoch, logs in enumerate(history, 1)
        if name in logs
    ]


def training_figure(history):
    """Loss and accuracy over the epochs, and AUROC where it was taken."""
    figure, axes = new_figure()
    right = axes.twinx()
    lines = []
    for name, style, side, label in (
        ("loss", "-", axes, "loss"),
        ("val_loss", "--", axes, "validation loss"),
        ("accuracy", "-", right, "accuracy"),
        ("val_accuracy", "--", right, "validation accuracy"),
        ("test_auroc", ":", right, "AUROC"),
    ):
        if points := _points(history, name):
            color = KNOWN_COLOR if side is axes else UNKNOWN_COLOR
            lines += side.plot(
                *np.transpose(points), style, color=color, label=label
            )
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss")
    axes.set_ylim(bottom=0)
    has_auroc = any("test_auroc" in logs for logs in history)
    right.set_ylabel("accuracy, AUROC" if has_auroc else "accuracy")
    right.set_ylim(0, 1.02)
    _legend(figure, lines)
    return figure


def draw_logit_space(axes, logits, labels, class_names, centers):
    """Draws logits, by class, and class centers.

    Args:
        axes: three-dimensional axes of matplotlib.
        logits: (n, 3).
        labels: (n,) class indices, -1 for unknown classes.
        class_names: three names.
        centers: (3, 3).
    """
    names = [_text(name) for name in class_names]
    for index, (color, marker) in enumerate(_CLASS_MARKS):
        own = logits[labels == index]
        _scatter(axes, own, names[index], color=color, marker=marker)
    unknown = logits[labels < 0]
    if len(unknown):
        _scatter(axes, unknown, "unknown", color="0.35", marker="x")
    axes.scatter(*centers.T, color="black", marker="*", s=90, label="centers")
    axes.set_xlabel(f"logit of {names[0]}")
    axes.set_ylabel(f"logit of {names[1]}")
    axes.set_zlabel(f"logit of {names[2]}")
    # Along the diagonal, where the three centers form a triangle.
    axes.view_init(elev=30, azim=45)
    # Else the title of the vertical axis is cut off.
    axes.set_box_aspect(None, zoom=0.9)


def _scatter(axes, points, name, **style):
    points = points[:: max(1, -(-len(points) // _MOST_POINTS))]
    axes.scatter(*points.T, s=12, alpha=0.7, label=name, **style)
