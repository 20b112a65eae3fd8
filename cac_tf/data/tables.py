# SPDX-License-Identifier: Apache-2.0
"""CSV and Parquet files: which columns are what, and what is in them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from cac_tf import lazy
from cac_tf.annotations import Path
from cac_tf.data.image_file import is_name_of_image
from cac_tf.data.number_rows import finite_rows
from cac_tf.data.open_set_dataset import listed
from cac_tf.data.regular_file import opened

arrow = lazy.module("pyarrow", extra="parquet")
arrow_compute = lazy.module("pyarrow.compute", extra="parquet")
csv = lazy.module("pyarrow.csv", extra="parquet")
parquet = lazy.module("pyarrow.parquet", extra="parquet")

ENDINGS = (".csv", ".parquet")
# The column of texts that is taken where none is named.
TEXT = "text"
# The names of a column's values for the parts of a data set.
_PARTS = {
    "train": "train",
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    "test": "test",
}


def is_table(path: Path) -> bool:
    """Whether a path is that of a table, by its ending."""
    return os.fspath(path).endswith(ENDINGS)


def read_table(
    path: Path,
    columns: Sequence[str] | None = None,
    labels: str | None = None,
) -> Any:
    """A `pyarrow.Table` of the columns of a file.

    Args:
        path: of a CSV file whose first line names the columns, or a Parquet
            file.
        columns: names of those to read; None: all.
        labels: name of the column of labels. In a CSV file, they are texts
            unless all are whole numbers, written without leading zeros.

    Raises:
        ValueError: no such file, one that cannot be read, two columns of one
            name, or no row.
    """
    path = os.fspath(path)
    if path.endswith(".csv"):
        table = _read_csv(path, columns)
    else:
        with _opened(path) as content:
            table = parquet.read_table(content, columns=columns)
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has two columns named {listed(twice)}.")
    if not table.num_rows:
        raise ValueError(f"{path} has no rows.")
    if labels in names and path.endswith(".csv"):
        return _labels_as_written(table, path, labels)
    return table


def _read_csv(path, columns, kinds=None):
    options = csv.ConvertOptions(include_columns=columns, column_types=kinds)
    with _opened(path) as content:
        table = csv.read_csv(
            content, parse_options=csv_parsing(), convert_options=options
        )
    _refuse_other_encodings(table.schema, path)
    return table


def _refuse_other_encodings(schema, path):
    for field in schema:
        if arrow.types.is_binary(field.type):
            raise ValueError(
                f"The column {field.name} of {path} contains text that is not "
                "encoded in UTF-8: save the file as CSV UTF-8."
            )


def _labels_as_written(table, path, name):
    """The table; its labels as texts if, as numbers, they look different."""
    labels = table.column(name)
    is_truth = arrow.types.is_boolean(labels.type)
    if labels.null_count or not (
        is_truth or arrow.types.is_integer(labels.type)
    ):
        return table
    written = _read_csv(path, [name], {name: arrow.string()}).column(name)
    if not is_truth and labels.cast(arrow.string()).equals(written):
        return table
    return table.set_column(table.column_names.index(name), name, written)


@contextlib.contextmanager
def _opened(path):
    try:
        with opened(path) as content:
            yield content
    except FileNotFoundError as error:
        raise ValueError(f"File not found: {path}.") from error
    except (OSError, arrow.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def schema_of(path: Path) -> Any:
    """The `pyarrow.Schema` of a file; of a CSV file, that of its beginning.

    Args:
        path: as of `read_table`.

    Raises:
        ValueError: no such file, or one that cannot be read.
    """
    path = os.fspath(path)
    with _opened(path) as content:
        if path.endswith(".csv"):
            file = csv.open_csv(content, parse_options=csv_parsing())
            _refuse_other_encodings(file.schema, path)
            return file.schema
        return parquet.read_schema(content)


def csv_parsing() -> Any:
    """`pyarrow.csv.ParseOptions`: texts in quotes may hold several lines."""
    return csv.ParseOptions(newlines_in_values=True)


def num_rows(path: Path) -> int:
    """How many rows a table has, without reading them; 0: it is unreadable.

    Line breaks within the texts of a CSV file are counted too; its last line
    may have none.
    """
    try:
        with opened(path) as content:
            if os.fspath(path).endswith(".parquet"):
                return parquet.read_metadata(content).num_rows
            pieces = iter(lambda: content.read(1 << 20), b"")
            lines, last = 0, b"\n"
            for piece in pieces:
                lines, last = lines + piece.count(b"\n"), piece[-1:]
            return max(lines + (last != b"\n") - 1, 0)
    except (OSError, ValueError):
        return 0


def input_columns(
    schema: Any,
    path: Path,
    wanted: Sequence[str] | None = None,
    others: Iterable[str] = (),
    images: Sequence[str] = (),
) -> tuple[str, ...]:
    """The columns that an input is made of.

    Args:
        schema: `pyarrow.Schema` of the table.
        path: of the table, for messages.
        wanted: their names; None: the one column of lists of numbers, if there
            is one, else the column `text`, if there is one of texts, else the
            one of `images`, if there is one, else all columns.
        others: names of columns that are something else.
        images: names of columns of paths of images.

    Raises:
        ValueError: a name that there is not, several columns of lists or of
            images, columns of which one is a list, or none at all.

    Example:

    >>> import pyarrow
    >>> table = pyarrow.table(
    ...     {"id": [7], "label": ["cat"], "embedding": [[0.5, 0.25]]})
    >>> input_columns(table.schema, "cats.parquet", others=["label"])
    ('embedding',)
    """
    left = [name for name in schema.names if name not in others]
    lists = [name for name in left if is_list(schema.field(name).type)]
    if wanted is None:
        texts = [TEXT] if TEXT in left else []
        if texts and not is_text(schema.field(TEXT).type):
            texts = []
        if len(single := lists or texts or images) > 1:
            kind = "lists" if lists else "paths of images"
            raise ValueError(
                f"{path} has several columns of {kind}: {listed(single)}. "
                f"Name the one to use: input_columns={single[0]}"
            )
        wanted = single or left
    require_columns(schema, path, wanted)
    lists = [name for name in wanted if name in lists]
    if not wanted or (lists and len(wanted) > 1):
        raise ValueError(
            "input_columns must be columns of numbers, or a single column of "
            "lists of numbers, of texts or of paths of images; got "
            f"{listed(wanted) or 'none'} in {path}."
        )
    return tuple(wanted)


def require_columns(schema: Any, path: Path, names: Iterable[str]) -> None:
    """Raises ValueError for columns that a table lacks; lists those it has."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise ValueError(
            f"{path} has no column {listed(missing)}; its columns are "
            f"{listed(schema.names)}."
        )


def inputs_of(table: Any, path: Path, columns: Sequence[str]) -> np.ndarray:
    """The inputs of a table: texts, or numbers.

    Args:
        table, path, columns: as of `numbers_of`.

    Returns:
        (n, D) float32, see `numbers_of`; of one column of texts (n,) texts.

    Raises:
        ValueError: as `numbers_of`, or a row without a text.
    """
    if len(columns) > 1 or not is_text(table.column(columns[0]).type):
        return numbers_of(table, path, columns)
    return texts_of(table, path, columns[0])


def texts_of(table: Any, path: Path, column: str) -> np.ndarray:
    """(n,) texts of a column; ValueError for a row without one."""
    values = table.column(column)
    _refuse_missing(values, path, column)
    return np.fromiter(values.to_pylist(), object, len(values))


def columns_of_images(table: Any, others: Iterable[str] = ()) -> list[str]:
    """Names of the columns of texts that are, mostly, names of image files.

    Args:
        table: `pyarrow.Table`.
        others: names of columns that are something else.

    Example:

    >>> import pyarrow
    >>> table = pyarrow.table({"photo": ["1.jpg"], "label": ["cat"]})
    >>> columns_of_images(table)
    ['photo']
    """
    found = []
    for name in table.column_names:
        column = table.column(name)
        if is_text(column.type) and name not in others:
            texts = filter(None, column.to_pylist())
            if 2 * sum(map(is_name_of_image, texts)) > len(column):
                found.append(name)
    return found


def numbers_of(table: Any, path: Path, columns: Sequence[str]) -> np.ndarray:
    """The inputs of a table.

    Args:
        table: `pyarrow.Table`.
        path: of the table, for messages.
        columns: as `input_columns` returns them.

    Returns:
        (n, D) float32.

    Raises:
        ValueError: texts, lists that differ in length, rows with a number that
            is missing or not finite.

    Example:

    >>> import pyarrow
    >>> table = pyarrow.table({"age": [31, 4], "height": [1.7, 1.0]})
    >>> numbers_of(table, "people.csv", ["height", "age"])
    array([[ 1.7, 31. ],
           [ 1. ,  4. ]], dtype=float32)
    """
    first = table.column(columns[0])
    if is_list(first.type):
        return _vectors(first.combine_chunks(), path, columns[0])
    made = np.empty((table.num_rows, len(columns)), "float32")
    for place, name in enumerate(columns):
        column = table.column(name)
        if arrow.types.is_null(column.type):
            _refuse_missing(column, path, name)
        if not is_number(column.type):
            raise ValueError(_no_numbers(column, path, name))
        values = column.cast(arrow.float64()).to_numpy()
        made[:, place] = finite_rows(values, f"The column {name} of {path}")
    return made


def is_number(kind: Any) -> bool:
    """Whether a column of this `pyarrow.DataType` holds numbers or bool."""
    types = arrow.types
    return (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
    )


def may_be_numbers(kind: Any) -> bool:
    """Whether a column of this `pyarrow.DataType` holds numbers or lists."""
    return is_list(kind) or is_number(kind)


def is_list(kind: Any) -> bool:
    """Whether a column of this `pyarrow.DataType` holds lists."""
    types = arrow.types
    return (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    )


def is_text(kind: Any) -> bool:
    """Whether a column of this `pyarrow.DataType` holds texts."""
    types = arrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind)


def _no_numbers(column, path, name):
    """The message about a column that holds something else."""
    values = column.to_pylist()
    row = next((i for i, one in enumerate(values) if not _is_numeric(one)), 0)
    return (
        f"The column {name} of {path} contains {column.type}, not numbers: "
        f"row {row} (counted from 0) has {str(values[row])[:40]!r}. Name the "
        "input columns (input_columns=...): columns of numbers, or one "
        "column of texts or of paths of image files."
    )


def _is_numeric(value):
    """Whether it is one, or a text that says one, or nothing."""
    try:
        return value is None or math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _vectors(column, path, name):
    what = f"The column {name} of {path}"
    lengths = arrow_compute.fill_null(
        arrow_compute.list_value_length(column), 0
    ).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero((lengths != lengths[0]) | (lengths == 0))
    if bad.size:
        raise ValueError(
            f"{what} must contain lists of the same length; row 0 has "
            f"{lengths[0]} numbers, row {bad[0]} (counted from 0) has "
            f"{lengths[bad[0]]}."
        )
    numbers = column.flatten()
    kind = numbers.type
    if not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind)):
        raise ValueError(f"{what} must contain lists of numbers; got {kind}.")
    values = numbers.to_numpy(zero_copy_only=False)
    return finite_rows(values.reshape(len(column), -1), what)


def labels_of(table: Any, path: Path, column: str) -> np.ndarray:
    """(n,) labels, whole numbers or texts.

    Raises:
        ValueError: there is no such column, it holds something else, or a row
            has no label.
    """
    if column not in table.column_names:
        raise ValueError(
            f"{path} has no label column {column}; its columns are "
            f"{listed(table.column_names)}. Name the label column: "
            "label_column=..."
        )
    values = table.column(column)
    if arrow.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    types, kind = arrow.types, values.type
    are_texts = is_text(kind)
    if not (are_texts or types.is_integer(kind) or types.is_boolean(kind)):
        raise ValueError(
            f"The column {column} of {path} must contain labels (integers or "
            f"strings); it contains {kind}."
        )
    _refuse_missing(values, path, column)
    found = values.to_numpy()
    return found.astype(str) if are_texts else found.astype("int64")


def parts_of(table: Any, path: Path, column: str) -> dict[str, np.ndarray]:
    """The rows of each part of a data set, by the values of a column.

    Returns:
        Dict from train, validation and test, as far as there are such rows, to
        row numbers.

    Raises:
        ValueError: no such column, a value that is no part's, or no row of the
            training part.
    """
    require_columns(table.schema, path, [column])
    values = table.column(column)
    _refuse_missing(values, path, column)
    found = np.asarray(values.to_pylist()).astype(str)
    wrong = sorted(set(found.tolist()) - set(_PARTS))
    if wrong:
        raise ValueError(
            f"The column {column} of {path} must contain the parts of the "
            f"data set, {', '.join(_PARTS)}; it contains {listed(wrong)}."
        )
    parts = np.array([_PARTS[value] for value in found.tolist()])
    rows = {
        part: np.flatnonzero(parts == part)
        for part in dict.fromkeys(_PARTS.values())
    }
    if not rows["train"].size:
        raise ValueError(
            f"The column {column} of {path} has no row with train, so there "
            "is nothing to train on."
        )
    return {part: numbers for part, numbers in rows.items() if numbers.size}


def _refuse_missing(column, path, name):
    missing = column.is_null()
    if is_text(column.type):
        # (In a CSV file, no text is missing, but it may be empty.)
        empty = arrow_compute.equal(column.cast(arrow.large_string()), "")
        missing = arrow_compute.or_(missing, empty.fill_null(True))
    rows = np.flatnonzero(missing.to_numpy())
    if rows.size:
        raise ValueError(
            f"The column {name} of {path} is empty in {rows.size:,} rows, "
            f"first in row {rows[0]} (counted from 0)."
        )
