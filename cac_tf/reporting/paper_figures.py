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
from cac_tf.reporting.figures import new_figure

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

    A row for each data set and a column for each method, from the arrays of
    `scores.npz` of one run by both names. A title holds the Bhattacharyya
    coefficient.

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
        axes.set_xlabel("distance to the nearest class mean")
    for row in grid:
        row[0].set_ylabel("fraction of inputs")
    grid[0][-1].legend(frameon=False, fontsize="small")
    return figure


def logit_spaces_figure(evaluations: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Three-dimensional logit spaces (Figure 1).

    Of each method the arrays of `scores.npz` of one run, with `class_names`
    and `centers` of its model besides.

    Raises:
        ValueError: there are not three classes, or not three logits.
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
        sizes = len(arrays["class_names"]), arrays["logits"].shape[1]
        if sizes != (3, 3):
            raise ValueError(
                "Logit spaces can be drawn only for three classes and three "
                f"logits; {method} has {sizes[0]} and {sizes[1]}."
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


def _by_trial(rows, place_of, measure="auroc"):
    """Values by line, by place and by trial.

    Args:
        rows: dicts of `results.csv`; of several scores of a run the first one
            counts.
        place_of: takes a row and gives its line and its place there, or None
            for one that is left out.
        measure: name of a column.
    """
    found = {}
    for row in rows:
        where = None if row[measure] is None else place_of(row)
        if where is not None:
            line, place = where
            by_trial = found.setdefault(line, {}).setdefault(place, {})
            by_trial.setdefault(row["trial"], row[measure])
    return found


def class_count_figure(rows: Rows) -> Figure:
    """AUROC over the number of known classes, as many as unknown ones.

    A line for each data set and method, means over the trials with their
    standard deviation, of the rows of split families `random<n>`.

    Raises:
        ValueError: no row has such a split family.
    """

    def place_of(row):
        size = re.fullmatch(r"random(\d+)", row["split_family"])
        if size and not row["variant"]:
            return f"{row['dataset']}, {row['method']}", float(size[1])
        return None

    lines = _by_trial(rows, place_of)
    if not lines:
        raise ValueError("There are no results for split families random<n>.")
    return lines_figure(lines, "known classes (and as many unknown)")


def bars_figure(rows: Rows, measure: str) -> Figure:
    """A measure of each method on each data set: Figure 3 by the accuracy.

    Bars for the means over the trials, and their standard deviation.

    Args:
        rows: dicts of `results.csv`, of one split family.
        measure: "accuracy", or "epochs" until training had converged.

    Raises:
        ValueError: there are no such numbers.
    """

    def place_of(row):
        return None if row["variant"] else (row["method"], row["dataset"])

    values = _by_trial(rows, place_of, measure)
    if not values:
        raise ValueError(f"No results contain {measure}.")
    methods = list(values)
    datasets = list(
        dict.fromkeys(row["dataset"] for row in rows if place_of(row))
    )
    figure, axes = new_figure(2.4 + 1.3 * len(datasets), 3.4)
    width = 0.8 / len(methods)
    for k, method in enumerate(methods):
        found = [list(v.values()) for v in values[method].values()]
        axes.bar(
            [
                datasets.index(d) + (k + 0.5) * width - 0.4
                for d in values[method]
            ],
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
        lowest = min(bar.get_height() for bar in axes.patches)
        axes.set_ylim(max(0.0, np.floor(20 * lowest - 1) / 20), 1.0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


_MEASURES = {
    "accuracy": "accuracy on known classes",
    "epochs": "training epochs",
}


def _spread(values):
    """Their standard deviation; of a single one NaN, which is not drawn."""
    return np.std(values, ddof=1) if len(values) > 1 else np.nan


def sweep_figure(rows: Rows, field: str) -> Figure:
    """AUROC by each run's first score, over the values of a field.

    A line for each data set, method and further field; means over the trials
    with their standard deviation.

    Args:
        rows: dicts of `results.csv`, of one sweep; those whose variant lacks
            the field are left out.
        field: name of a field of the recipe, whose values are numbers.

    Raises:
        ValueError: no row has a value of the field, or one that is no number.
    """

    def place_of(row):
        parts = row["variant"].split(",") if row["variant"] else []
        values = dict(part.split("=", 1) for part in parts)
        if field not in values:
            return None
        place = values.pop(field)
        others = [f"{name}={value}" for name, value in values.items()]
        try:
            place = float(place)
        except ValueError:
            raise ValueError(
                f"A sweep over {field} cannot be plotted, because its values "
                "are not numbers."
            ) from None
        return ", ".join([row["dataset"], row["method"], *others]), place

    lines = _by_trial(rows, place_of)
    if not lines:
        raise ValueError(f"There are no results for a sweep over {field}.")
    return lines_figure(lines, field)


def lines_figure(lines, title):
    """Lines of mean AUROCs with their spread.

    Args:
        lines: of `_by_trial`; the places are numbers.
        title: of the horizontal axis.
    """
    figure, axes = new_figure(6.4, 3.6)
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
