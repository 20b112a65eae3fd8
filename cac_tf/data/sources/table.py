# SPDX-License-Identifier: Apache-2.0
"""Texts, vectors or columns of numbers in a CSV or Parquet file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cac_tf.annotations import Path
from cac_tf.data import tables
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.open_set_dataset import listed
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.labels import check_class_names

# The columns that are taken where none is named.
LABEL, SPLIT = "label", "split"


@register
class Table(DataSource):
    """A table with a row for each input."""

    NAME = "table"
    TAKES = "a path ending in .csv or .parquet, of numbers, vectors or texts"
    OPTIONS = ("label_column", "split_column", "input_columns")

    def takes(self, dataset):
        return tables.is_table(dataset)

    def num_vectors(self, dataset):
        return tables.num_rows(dataset)

    def load(self, dataset, classes, **options):
        return load_table(dataset, **options)


def load_table(
    path: Path,
    label_column: str | None = None,
    split_column: str | None = None,
    input_columns: Sequence[str] | None = None,
) -> LabelledParts:
    """Reads a table.

    Args:
        path: of the CSV or Parquet file.
        label_column: column with the classes, whole numbers or texts; None:
            `label`.
        split_column: column that says of each row whether it is for train,
            validation (or valid, val, dev) or test; None: `split`, if there is
            such a column, else parts are set apart at random.
        input_columns: columns of numbers, or one column of lists of numbers or
            of texts; None: the one column of lists, if there is one, else a
            column of texts called `text`, else all other columns.

    Returns:
        `LabelledParts`; inputs are (n, D) float32, or (n,) texts. Names of
        classes are the labels, in order; the name of a row is that in
        `cac-predict`.

    Raises:
        ValueError: whatever `cac_tf.data.tables` finds wrong.

    Example:

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "flowers.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("label,width,length\\nrose,1,2\\niris,3,4\\n")
    >>> parts = load_table(path)
    >>> parts.class_names, parts.train.images[0], parts.input_columns
    (('iris', 'rose'), array([1., 2.], dtype=float32), ('width', 'length'))
    """
    table = tables.read_table(path)
    label_column = label_column or LABEL
    labels = tables.labels_of(table, path, label_column)
    rows = rows_of_parts(table, path, split_column)
    split_column = split_column or SPLIT
    columns = tables.input_columns(
        table.schema, path, input_columns, (label_column, split_column)
    )
    values = tables.inputs_of(table, path, columns)
    used = {*columns, label_column, split_column}
    unused = [name for name in table.column_names if name not in used]
    names = [f"{path}#{row}" for row in range(len(labels))]
    parts = labelled_parts(path, values, labels, names, rows)
    note = f"these columns of {path} are not used: {listed(unused)}"
    return parts._replace(
        input_columns=columns, notes=(note,) if unused else ()
    )


def rows_of_parts(table, path, split_column):
    """Row numbers by part, see `tables.parts_of`; all for train by default."""
    if split_column is None and SPLIT not in table.column_names:
        return {"train": np.arange(table.num_rows)}
    return tables.parts_of(table, path, split_column or SPLIT)


def labelled_parts(path, values, labels, names, rows):
    """`LabelledParts` of all inputs of a file.

    Args:
        path: of the file.
        values: (n, D) inputs.
        labels: (n,) whole numbers or texts.
        names: n texts.
        rows: dict from parts to row numbers.
    """
    found, ids = np.unique(labels, return_inverse=True)
    examples = Examples(values, ids.astype("int64"), names)
    return LabelledParts(
        class_names=tuple(check_class_names(map(str, found.tolist()), path)),
        **{part: examples.take(numbers) for part, numbers in rows.items()},
    )
