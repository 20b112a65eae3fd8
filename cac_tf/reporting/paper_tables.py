# SPDX-License-Identifier: Apache-2.0
"""Tables 1 to 5 of the paper, from results of one's own."""

from typing import TextIO

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.annotations import Rows
from cac_tf.reporting.benchmark_table import NOTHING
from cac_tf.reporting.benchmark_table import as_published
from cac_tf.reporting.benchmark_table import mean_of_trials
from cac_tf.reporting.paper import TABLES
from cac_tf.reporting.terminal_table import print_table

# Variants of a recipe that have lines of their own, and what these say.
_VARIANTS = {
    None: "",
    "preset=paper": ", preset=paper",
    "preset=fast": ", preset=fast",
}


def paper_table(number, rows):
    """A table of the paper: own numbers, each row above the published ones.

    Mean ± standard deviation over the trials, and their number in brackets.
    Returns the titles of the columns; and the lines: pairs of the texts, and
    whether the line was published by others.

    Example:

    >>> row = {"split_family": "neal", "dataset": "mnist", "method": "cac",
    ...     "variant": None, "score": "gamma", "auroc": 0.9931}
    >>> columns, lines = paper_table(1, [row])
    >>> columns, lines[0][0]
    (['mnist'], ['CAC', '0.993 (1)'])
    >>> next(texts for texts, _ in lines if texts[0] == "published: CAC")
    ['published: CAC', '0.991 ± 0.005']
    """
    table = TABLES[number]
    own = [
        row
        for row in rows
        if row["split_family"] in (table.split_family, "custom")
        and (row["method"], row["score"]) in table.rows.values()
        and row["variant"] in _VARIANTS
    ]
    datasets = list(dict.fromkeys(row["dataset"] for row in own))
    one = len(table.measures) == 1
    columns = [
        dataset if one else f"{dataset}, {title}"
        for dataset in datasets
        for title in table.measures
    ]
    lines = []
    for name, (method, score) in table.rows.items():
        for variant, words in _VARIANTS.items():
            cells = [
                mean_of_trials(
                    [
                        row[measure]
                        for row in own
                        if (row["dataset"], row["variant"])
                        == (dataset, variant)
                        and (row["method"], row["score"]) == (method, score)
                        and row[measure] is not None
                    ]
                )
                for dataset in datasets
                for measure in table.measures.values()
            ]
            if any(cell != NOTHING for cell in cells):
                lines.append(([f"{name}{words}", *cells], False))
    theirs = {dataset: table.published(dataset) for dataset in datasets}
    names = dict.fromkeys(n for values in theirs.values() for n in values)
    if not table.shows_others:
        names = [name for name in table.rows if name in names]
    for name in names:
        nothing = [(None, None)] * len(table.measures)
        cells = [
            as_published(value)
            for dataset in datasets
            for value in theirs[dataset].get(name, nothing)
        ]
        lines.append(([f"published: {name}", *cells], True))
    return columns, lines


def print_paper_table(
    number: int, rows: Rows, file: TextIO | None = None
) -> None:
    """Prints a table of the paper; see `paper_table`."""
    columns, lines = paper_table(number, rows)
    table = TABLES[number]
    print_table(
        ["method"],
        columns,
        lines,
        title=f"{table.title}; splits: {table.split_family}",
        caption="mean ± standard deviation over the trials (their number)",
        file=file,
    )


def write_paper_table(path: Path, number: int, rows: Rows) -> None:
    """Writes a table of the paper as Markdown; replaces the file."""
    columns, lines = paper_table(number, rows)
    table = TABLES[number]
    text = [
        f"**{table.title}; splits: {table.split_family}**",
        "",
        f"| method | {' | '.join(columns)} |",
        "| --- |" + " ---: |" * len(columns),
        *(f"| {' | '.join(texts)} |" for texts, _ in lines),
        "",
        "Mean ± standard deviation over the trials (their number).",
        "",
    ]
    atomic_files.write_text(path, "\n".join(text))
