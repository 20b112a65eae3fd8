# SPDX-License-Identifier: Apache-2.0
"""Figures of the paper, from results of one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import lazy
from cac_tf import metrics
from cac_tf.annotations import Rows
from cac_tf.reporting.figures import draw_logit_space
from cac_tf.reporting.figures import draw_shares
from cac_tf.reporting.figures import histogram_edges

if TYPE_CHECKING:
    from matplotlib.figure import Figure

matplotlib_figure = lazy.module("matplotlib.figure", extra="report")
mplot3d = lazy.module("mpl_toolkits.mplot3d")

_BINS = 60
_WIDTH, _HEIGHT = 3.2, 2.4  # of one histogram, in inches


def distances_figure(
    evaluations: Mapping[tuple[str, str], Mapping[str, np.ndarray]],
) -> Figure:
    """Histograms of the distance to the closest class mean (Figure 2).

    Args:
        evaluations: dict from a pair of data set and method to the arrays of
            `scores.npz` of one run.

    Returns:
        `matplotlib.figure.Figure` with a row for each data set and a column
        for each method. A title holds the Bhattacharyya coefficient.

    Example:

    >>> arrays = {"labels": np.array([0, 1, -1, -1]),
    ...     "min_distance": np.array([1.0, 2.0, 7.0, 8.0])}
    >>> figure = distances_figure({("digits", "cac"): arrays})
    >>> figure.axes[0].get_title()
    'digits, cac: 0.000'
    """
    datasets = list(dict.fromkeys(dataset for dataset, _ in evaluations))
    methods = list(dict.fromkeys(method for _, method in evaluations))
    figure = matplotlib_figure.Figure(
        figsize=(_WIDTH * len(methods), _HEIGHT * len(datasets)),
        layout="constrained",
    )
    grid = figure.subplots(len(datasets), len(methods), squeeze=False)
    for axes, (dataset, method) in (
        (grid[i][j], (dataset, method))
        for i, dataset in enumerate(datasets)
        for j, method in enumerate(methods)
    ):
        if (dataset, method) not in evaluations:
            axes.set_axis_off()
            continue
        arrays = evaluations[dataset, method]
        distances, is_known = arrays["min_distance"], arrays["labels"] >= 0
        edges = histogram_edges(distances, _BINS)
        draw_shares(axes, distances, is_known, edges)
        overlap = metrics.bhattacharyya(
            distances[is_known], distances[~is_known]
        )
        axes.set_title(f"{dataset}, {method}: {overlap:.3f}", fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("distance to the closest class mean")
    for row in grid:
        row[0].set_ylabel("share of images")
    grid[0][-1].legend(frameon=False, fontsize="small")
    return figure


def logit_spaces_figure(evaluations: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Three-dimensional logit spaces (Figure 1).

    Args:
        evaluations: dict from a method to the arrays of `scores.npz` of one
            run, with `class_names` and `centers` of its model besides. There
            are three classes.

    Returns:
        `matplotlib.figure.Figure` with a part for each method.

    Raises:
        ValueError: logits of another width.
    """
    figure = matplotlib_figure.Figure(
        figsize=(5.0 * len(evaluations), 4.6), layout="constrained"
    )
    parts = figure.subplots(
        1,
        len(evaluations),
        squeeze=False,
        subplot_kw={"projection": mplot3d.Axes3D.name},
    )
    for axes, (method, arrays) in zip(
        parts[0], evaluations.items(), strict=True
    ):
        width = arrays["logits"].shape[1]
        if width != 3:
            raise ValueError(
                f"Only three classes have a logit space that can be drawn; "
                f"{method} has {width}."
            )
        draw_logit_space(
            axes,
            arrays["logits"],
            arrays["labels"],
            arrays["class_names"],
            arrays["centers"],
        )
        axes.set_title(method)
    parts[0][0].legend(loc="upper left", fontsize="small")
    return figure


def class_count_figure(rows: Rows) -> Figure:
    """AUROC over the number of known classes, as many as unknown ones.

    Args:
        rows: dicts of `results.csv`; those of split families `random<n>`
            count, of several scores of a run the first one.

    Returns:
        `matplotlib.figure.Figure`: a line for each data set and method, means
        over the trials with their standard deviation.

    Raises:
        ValueError: no row has such a split family.
    """
    lines: dict[str, dict] = {}
    for row in rows:
        size = re.fullmatch(r"random(\d+)", row["split_family"])
        if size and row["auroc"] is not None and not row["variant"]:
            line = lines.setdefault(f"{row['dataset']}, {row['method']}", {})
            by_trial = line.setdefault(float(size[1]), {})
            by_trial.setdefault(row["trial"], row["auroc"])
    if not lines:
        raise ValueError("There are no results of split families random<n>.")
    return lines_figure(lines, "known classes; as many are unknown")


def bars_figure(rows: Rows, measure: str) -> Figure:
    """A measure of each method on each data set: Figure 3 by the accuracy.

    Args:
        rows: dicts of `results.csv`, of one split family; of several scores of
            a run the first counts.
        measure: "accuracy", or "epochs" until training had converged.

    Returns:
        `matplotlib.figure.Figure`: bars for the means over the trials, and
        their standard deviation.

    Raises:
        ValueError: there are no such numbers.
    """
    values: dict[tuple, dict] = {}
    for row in rows:
        if row[measure] is not None and not row["variant"]:
            by_trial = values.setdefault((row["dataset"], row["method"]), {})
            by_trial.setdefault(row["trial"], row[measure])
    if not values:
        raise ValueError(f"There are no results with {measure}.")
    datasets = list(dict.fromkeys(dataset for dataset, _ in values))
    methods = list(dict.fromkeys(method for _, method in values))
    figure = matplotlib_figure.Figure(
        figsize=(2.4 + 1.3 * len(datasets), 3.4), layout="constrained"
    )
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    width = 0.8 / len(methods)
    for k, method in enumerate(methods):
        there = [d for d in datasets if (d, method) in values]
        found = [list(values[d, method].values()) for d in there]
        axes.bar(
            [datasets.index(d) + (k + 0.5) * width - 0.4 for d in there],
            [np.mean(v) for v in found],
            width,
            yerr=[_spread(v) for v in found],
            capsize=2,
            label=method,
        )
    axes.set_xticks(range(len(datasets)), datasets)
    axes.set_ylabel(_MEASURES[measure])
    if measure == "accuracy":
        # The differences are small; the axis says where it begins.
        lowest = min(min(v.values()) for v in values.values())
        axes.set_ylim(max(0.0, np.floor(20 * lowest - 1) / 20), 1.0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


_MEASURES = {
    "accuracy": "accuracy on known classes",
    "epochs": "epochs of training",
}


def _spread(values):
    return np.std(values, ddof=1) if len(values) > 1 else 0.0


def sweep_figure(rows: Rows, field: str) -> Figure:
    """AUROC by each run's first score, over the values of a field.

    Args:
        rows: dicts of `results.csv`, of one sweep; those whose variant lacks
            the field are left out.
        field: name of a field of the recipe, whose values are numbers.

    Returns:
        `matplotlib.figure.Figure`: a line for each data set, method and
        further field; means over the trials with their standard deviation.

    Raises:
        ValueError: no row has a value of the field, or one that is no number.
    """
    lines: dict[str, dict] = {}
    for row in rows:
        parts = row["variant"].split(",") if row["variant"] else []
        values = dict(part.split("=", 1) for part in parts)
        if field not in values or row["auroc"] is None:
            continue
        place = values.pop(field)
        others = [f"{name}={value}" for name, value in values.items()]
        line = ", ".join([row["dataset"], row["method"], *others])
        points = lines.setdefault(line, {})
        try:
            by_trial = points.setdefault(float(place), {})
        except ValueError:
            raise ValueError(
                f"A sweep over {field} has no axis of numbers."
            ) from None
        by_trial.setdefault(row["trial"], row["auroc"])
    if not lines:
        raise ValueError(f"There are no results of a sweep over {field}.")
    return lines_figure(lines, field)


def lines_figure(
    lines: Mapping[str, Mapping[float, Mapping[int, float]]], title: str
) -> Figure:
    """Lines of mean AUROCs with their spread.

    Args:
        lines: dict from a name to a dict from a place to AUROCs by trial.
        title: of the horizontal axis.

    Returns:
        `matplotlib.figure.Figure`.

    Example:

    >>> figure = lines_figure({"cac": {5.0: {0: 0.7, 1: 0.9}}}, "epochs")
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('epochs', 'AUROC')
    """
    figure = matplotlib_figure.Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    for name, points in lines.items():
        places = sorted(points)
        found = [list(points[place].values()) for place in places]
        axes.errorbar(
            places,
            [np.mean(v) for v in found],
            [_spread(v) for v in found],
            marker="o",
            markersize=3,
            capsize=2,
            label=name,
        )
    axes.set_xlabel(title)
    axes.set_ylabel("AUROC")
    axes.legend(
        frameon=False,
        fontsize="small",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
    return figure
