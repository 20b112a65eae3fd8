# SPDX-License-Identifier: Apache-2.0
"""Which columns of a table a model reads, and the numbers in them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import lazy
from cac_tf.data import tables

if TYPE_CHECKING:
    from cac_tf.batch.classifier import Classifier

arrow = lazy.module("pyarrow", extra="parquet")

# What it is called where the inputs are files of images, texts or, in files
# of rows without a schema, vectors.
IMAGE_COLUMN, TEXT_COLUMN, VECTOR_COLUMN = "image", tables.TEXT, "features"


def usual_column(classifier: Classifier) -> str:
    """Where the inputs of a model are, in rows of no schema."""
    if classifier.takes_files:
        return IMAGE_COLUMN
    return TEXT_COLUMN if classifier.takes_texts else VECTOR_COLUMN


def trained_columns(
    classifier: Classifier, names: Collection[str]
) -> tuple[str, ...]:
    """The columns a model was trained on, if its run says so, or the usual one.

    The usual one only where it is there and one of those is missing.

    Args:
        classifier: `Classifier`.
        names: of the columns that there are.
    """
    trained, usual = classifier.input_columns, usual_column(classifier)
    if usual in names and not set(trained) <= set(names):
        return (usual,)
    return trained


def columns_read(
    schema: Any,
    path: str,
    classifier: Classifier,
    wanted: str | None = None,
    key: str | None = None,
) -> tuple[str, ...]:
    """The columns that hold the inputs.

    Those of `trained_columns`, where the model's run says so. Else, for a
    model of vectors, the one column of lists, or all columns of numbers, if
    they are as many as the model takes; for a model of texts, the column
    `text`, or the only one of texts; for one of images, the column `image`, or
    the only one of texts, which are paths.

    Args:
        schema: `pyarrow.Schema` of the table.
        path: of the table, for messages.
        classifier: `Classifier`.
        wanted: the column, if the user names it.
        key: the column with the keys, or None.

    Warns where these are several columns that nobody named.

    Raises:
        ValueError: no such columns.
    """
    chosen = trained_columns(classifier, schema.names)
    if wanted is not None:
        chosen = (wanted,)
    elif not chosen and classifier.takes_texts:
        chosen = (_one_of_texts(TEXT_COLUMN, schema, path, key),)
    elif not chosen and IMAGE_COLUMN in schema.names:
        chosen = (IMAGE_COLUMN,)
    elif not chosen and classifier.takes_files:
        chosen = (_one_of_texts(IMAGE_COLUMN, schema, path, key),)
    if not chosen:
        others = [
            field.name
            for field in schema
            if field.name == key or not tables.may_be_numbers(field.type)
        ]
        chosen = tables.input_columns(schema, path, others=others)
        size = math.prod(size or 1 for size in classifier.input_shape)
        if len(chosen) not in (1, size):
            raise ValueError(
                f"{path} has {len(chosen)} numeric columns, but the model "
                f"expects {size} numbers; its columns are "
                f"{', '.join(schema.names)}."
            )
        if len(chosen) > 1:
            warnings.warn(
                f"{path}: the model does not say which columns it reads; it "
                f"gets {', '.join(chosen)}, in this order.",
                stacklevel=2,
            )
    tables.require_columns(
        schema, path, chosen if key is None else (*chosen, key)
    )
    return chosen


def _one_of_texts(usual, schema, path, key):
    found = [
        field.name
        for field in schema
        if tables.is_text(field.type) and field.name != key
    ]
    if usual in found:
        return usual
    if len(found) != 1:
        raise ValueError(
            f"{path} has no column {usual} and {len(found) or 'no'} text "
            f"columns{': ' * bool(found)}{', '.join(found)}. Name the input "
            "column: image_column=NAME"
        )
    return found[0]


def numbers_in(
    batch: Any, columns: Sequence[str]
) -> tuple[np.ndarray, dict[int, str]]:
    """Rows of numbers from columns of numbers.

    Args:
        batch: `pyarrow.RecordBatch`.
        columns: names.

    Returns:
        (B, D) float64; and a dict from the positions of rows in which a column
        holds no number to a text about it.

    Example:

    >>> import pyarrow
    >>> batch = pyarrow.record_batch({"x": [1, 2], "y": ["3.5", "tall"]})
    >>> rows, errors = numbers_in(batch, ["x", "y"])
    >>> rows[0], errors
    (array([1. , 3.5]), {1: 'the column y has no number here'})
    """
    rows, errors = np.empty((batch.num_rows, len(columns))), {}
    for place, name in enumerate(columns):
        column = batch.column(name)
        try:
            rows[:, place] = column.cast(arrow.float64()).to_numpy()
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            for row, value in enumerate(column.to_pylist()):
                try:
                    rows[row, place] = number_of(value)
                except (TypeError, ValueError):
                    rows[row, place] = 0.0
                    errors[row] = f"the column {name} has no number here"
    return rows, errors


def number_of(value: Any) -> float:
    """The number that a cell contains; bool, as in training, is 0 or 1.

    Raises:
        TypeError, ValueError: there is none.
    """
    return float({"true": 1, "false": 0}.get(str(value).lower(), value))
