# SPDX-License-Identifier: Apache-2.0
"""The benchmark's results as a table and a figure, beside published ones."""

import importlib.resources
import json

import numpy as np
import rich.console
import rich.table
from matplotlib.figure import Figure

from cac_tf import atomic_files
from cac_tf.reporting.figures import KNOWN_COLOUR


def _content():
    text = importlib.resources.files("cac_tf.reporting") / "published.json"
    return json.loads(text.read_text(encoding="utf-8"))


def published_ccr(dataset):
    """Published CCR at false-positive rates of 1, 5 and 10 % (Table 3).

    Returns:
        Dict from a method's name to three numbers, None where there is none;
        empty for a data set that is not in the table.

    Example:

    >>> published_ccr("cifar10_vs_svhn")["CAC"]
    [0.683, 0.785, 0.826]
    """
    return _content()["ccr"].get(dataset, {})


def published(split_family):
    """AUROCs of the literature on one split family.

    Returns:
        Dict from a method's name to a dict from a data set's name to mean
        and standard deviation (None where it was not published).

    Example:

    >>> published("neal")["CAC"]["cifar10"]
    (0.801, 0.03)
    >>> published("miller2020")["CAC"]["mnist"]
    (0.987, None)
    """
    content = _content()
    found = {}
    for method, (means, *deviations) in content.get(split_family, {}).items():
        spreads = deviations[0] if deviations else [None] * len(means)
        found[method] = {
            dataset: (mean, spread)
            for dataset, mean, spread in zip(
                content["datasets"], means, spreads, strict=True
            )
            if mean is not None
        }
    return found


def print_benchmark(rows, file=None):
    """Prints AUROC and accuracy by method, score and data set.

    Two tables for each split family, which must not be mixed: mean AUROCs
    over the trials with published ones below, and every trial with its CCR,
    beside the paper's Table 3 where that has the data set.

    Args:
        rows: dicts of `results.csv`, of `benchmark.read_results`.
        file: where to write; standard output by default.
    """
    console = rich.console.Console(file=file, width=160, highlight=False)
    for family in sorted({row["split_family"] for row in rows}):
        own = [row for row in rows if row["split_family"] == family]
        datasets = list(dict.fromkeys(row["dataset"] for row in own))
        console.print(_means(own, family, datasets))
        console.print(_trials(own, family))


def _means(rows, family, datasets):
    table = rich.table.Table(
        title=f"AUROC, mean ± std over trials (count); splits: {family}"
    )
    table.add_column("method")
    for dataset in datasets:
        table.add_column(dataset, justify="right")
    for method, score in dict.fromkeys((r["method"], r["score"]) for r in rows):
        table.add_row(
            f"{method}, {score}",
            *(
                _mean_cell(
                    [
                        row["auroc"]
                        for row in rows
                        if row["auroc"] is not None
                        and (row["dataset"], row["method"], row["score"])
                        == (dataset, method, score)
                    ]
                )
                for dataset in datasets
            ),
        )
    table.add_section()
    for name, values in published(family).items():
        if any(dataset in values for dataset in datasets):
            table.add_row(
                f"published: {name}",
                *(_published_cell(values.get(d)) for d in datasets),
                style="dim",
            )
    return table


def _mean_cell(values):
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread} ({len(values)})"


def _published_cell(value):
    if value is None:
        return "–"
    mean, spread = value
    return f"{mean:.3f}" + ("" if spread is None else f" ± {spread:.3f}")


def _number(value):
    return "–" if value is None else f"{value:.4f}"


def _trials(rows, family):
    table = rich.table.Table(title=f"every trial; splits: {family}")
    columns = ("dataset", "method", "score", "trial")
    numbers = ("auroc", "accuracy", "ccr@1%", "ccr@5%", "ccr@10%", "oscr")
    for name in (*columns, *numbers, "epochs", "seconds"):
        table.add_column(name, justify="left" if name in columns else "right")
    for row in rows:
        table.add_row(
            *(str(row[name]) for name in columns),
            *(_number(row[name]) for name in numbers),
            str(row["epochs"]),
            f"{row['seconds']:.0f}",
        )
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for name, values in published_ccr(dataset).items():
            table.add_row(
                *(dataset, f"published: {name}", "", "", "", ""),
                *(_number(value) for value in values),
                style="dim",
            )
    return table


def write_figure(path, rows):
    """Draws every trial's AUROC, with the paper's means, as a PNG file.

    Args:
        path: of the file; replaced if it exists.
        rows: dicts of `results.csv`.
    """
    families = sorted({row["split_family"] for row in rows})
    figure = Figure(figsize=(8, 3.4 * len(families)), layout="constrained")
    for index, family in enumerate(families, 1):
        own = [
            row
            for row in rows
            if row["split_family"] == family and row["auroc"] is not None
        ]
        axes = figure.add_subplot(len(families), 1, index)
        axes.spines[["top", "right"]].set_visible(False)
        datasets = list(dict.fromkeys(row["dataset"] for row in own))
        kinds = list(dict.fromkeys((r["method"], r["score"]) for r in own))
        for k, kind in enumerate(kinds):
            points = [
                (datasets.index(row["dataset"]), row["auroc"])
                for row in own
                if (row["method"], row["score"]) == kind
            ]
            x, y = np.array(points, dtype=float).T
            shift = (k - (len(kinds) - 1) / 2) * 0.5 / max(len(kinds), 1)
            axes.plot(x + shift, y, "o", markersize=4, label=", ".join(kind))
        paper = published(family).get("CAC", {})
        in_paper = [d for d in datasets if d in paper]
        if in_paper:
            places = np.array([datasets.index(d) for d in in_paper])
            axes.hlines(
                [paper[d][0] for d in in_paper],
                places - 0.35,
                places + 0.35,
                color=KNOWN_COLOUR,
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
    with atomic_files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
