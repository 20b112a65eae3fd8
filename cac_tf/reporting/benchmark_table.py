# SPDX-License-Identifier: Apache-2.0
"""The benchmark's results as a table and a figure, beside published ones."""

from typing import TextIO

import numpy as np

from cac_tf import lazy
from cac_tf.annotations import Path
from cac_tf.annotations import Rows
from cac_tf.reporting.figures import KNOWN_COLOR
from cac_tf.reporting.figures import write_png
from cac_tf.reporting.published import published
from cac_tf.reporting.published import published_ccr
from cac_tf.reporting.terminal_table import print_table

matplotlib_figure = lazy.module("matplotlib.figure", extra="report")

# An empty cell.
NOTHING = "–"
_KIND = ("method", "variant", "score")
# Empty where released weights were evaluated.
_TIMES = ("epochs", "seconds")


def print_benchmark(rows: Rows, file: TextIO | None = None) -> None:
    """Prints AUROC and accuracy by method, score and data set.

    Two tables for each split family, which must not be mixed: mean AUROCs
    over the trials with published ones below, and every trial with its CCR,
    beside the paper's Table 3 where that has the data set.
    """
    for family in sorted({row["split_family"] for row in rows}):
        own = [row for row in rows if row["split_family"] == family]
        _print_means(own, family, file)
        _print_trials(own, family, file)


def _print_means(rows, family, file):
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    lines = []
    for kind in dict.fromkeys(map(kind_of, rows)):
        cells = [
            mean_of_trials(
                [
                    row["auroc"]
                    for row in rows
                    if row["auroc"] is not None
                    and (row["dataset"], kind_of(row)) == (dataset, kind)
                ]
            )
            for dataset in datasets
        ]
        lines.append(([kind, *cells], False))
    for name, values in published(family).items():
        if any(dataset in values for dataset in datasets):
            cells = [as_published(values.get(d)) for d in datasets]
            lines.append(([f"published: {name}", *cells], True))
    print_table(
        ["method"],
        datasets,
        lines,
        title=f"AUROC, mean ± std over trials (count); splits: {family}",
        file=file,
    )


def kind_of(row):
    """Method, values of a sweep if there are any, and score, as a text."""
    return ", ".join(filter(None, (row[n] for n in _KIND)))


def mean_of_trials(values, with_number=True):
    """Mean ± standard deviation over trials, and their number, as a text.

    Example:

    >>> mean_of_trials([0.79, 0.81])
    '0.800 ± 0.014 (2)'
    >>> mean_of_trials([0.79, 0.81], with_number=False)
    '0.800 ± 0.014'
    """
    if not values:
        return NOTHING
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    number = f" ({len(values)})" if with_number else ""
    return f"{np.mean(values):.3f}{spread}{number}"


def as_published(value):
    """A published mean and spread, or None, as a text."""
    mean, spread = value or (None, None)
    if mean is None:
        return NOTHING
    return f"{mean:.3f}" + ("" if spread is None else f" ± {spread:.3f}")


def _number(value):
    return NOTHING if value is None else f"{value:.4f}"


def _print_trials(rows, family, file):
    measures = {
        "auroc": "auroc",
        "fpr_at_95_tpr": "fpr@95%",
        "aupr_known": "aupr known",
        "aupr_unknown": "aupr unknown",
        "accuracy": "accuracy",
        "ccr@1%": "ccr@1%",
        "ccr@5%": "ccr@5%",
        "ccr@10%": "ccr@10%",
        "oscr": "oscr",
        "macro_f1": "macro-f1",
    }
    lines = [
        (
            [
                f"{row['dataset']}, {kind_of(row)}",
                str(row["trial"]),
                *(_number(row[name]) for name in measures),
                *(
                    NOTHING if row[n] is None else f"{row[n]:.0f}"
                    for n in _TIMES
                ),
            ],
            False,
        )
        for row in rows
    ]
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for name, values in published_ccr(dataset).items():
            cells = [*[""] * 6, *map(_number, values), *[""] * 4]
            lines.append(([f"{dataset}, published: {name}", *cells], True))
    print_table(
        ["data, method, score"],
        ["trial", *measures.values(), *_TIMES],
        lines,
        title=f"all trials; splits: {family}",
        file=file,
    )


def write_figure(path: Path, rows: Rows) -> None:
    """Draws every trial's AUROC, with the paper's means, as a PNG file."""
    families = sorted({row["split_family"] for row in rows})
    figure = matplotlib_figure.Figure(
        figsize=(8, 3.4 * len(families)), layout="constrained"
    )
    for index, family in enumerate(families, 1):
        own = [
            row
            for row in rows
            if row["split_family"] == family and row["auroc"] is not None
        ]
        axes = figure.add_subplot(len(families), 1, index)
        axes.spines[["top", "right"]].set_visible(False)
        datasets = list(dict.fromkeys(row["dataset"] for row in own))
        kinds = list(dict.fromkeys(map(kind_of, own)))
        for k, kind in enumerate(kinds):
            points = [
                (datasets.index(row["dataset"]), row["auroc"])
                for row in own
                if kind_of(row) == kind
            ]
            x, y = np.array(points, dtype=float).T
            shift = (k - (len(kinds) - 1) / 2) * 0.5 / max(len(kinds), 1)
            axes.plot(x + shift, y, "o", markersize=4, label=kind)
        paper = published(family).get("CAC", {})
        in_paper = [d for d in datasets if d in paper]
        if in_paper:
            places = np.array([datasets.index(d) for d in in_paper])
            axes.hlines(
                [paper[d][0] for d in in_paper],
                places - 0.35,
                places + 0.35,
                color=KNOWN_COLOR,
                linewidth=1,
                label="published: CAC",
            )
        axes.set_xticks(range(len(datasets)), datasets)
        axes.set_ylabel("AUROC")
        axes.set_title(f"splits: {family}")
        axes.legend(
            frameon=False,
            fontsize=7,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )
    write_png(path, figure)
