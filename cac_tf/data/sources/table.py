# SPDX-License-Identifier: Apache-2.0
"""Texts, vectors, numbers or paths of images in a CSV or Parquet file."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from cac_tf.annotations import Path
from cac_tf.data import tables
from cac_tf.data.image_file import is_name_of_image
from cac_tf.data.image_reading import ImageReading
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.open_set_dataset import listed
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.labels import check_class_names

# The columns that are taken where none is named.
LABEL, SPLIT = "label", "split"


@register
class Table(DataSource):
    """A table with a row for each input."""

    NAME = "table"
    TAKES = (
        "a path ending in .csv or .parquet (numbers, vectors, texts or paths "
        "of images)"
    )
    OPTIONS = (
        "label_column",
        "split_column",
        "input_columns",
        "image_size",
        "interpolation",
        "strict",
        "stream",
    )
    IMAGE_SIZE = 32

    def takes(self, dataset):
        return tables.is_table(dataset)

    def holds_images(
        self, dataset, label_column, split_column, input_columns, **options
    ):
        others = (label_column or LABEL, split_column or SPLIT)
        try:
            schema = tables.schema_of(dataset)
            texts = [
                name
                for name in schema.names
                if name not in others
                and not tables.may_be_numbers(schema.field(name).type)
            ]
            images = []
            if texts:  # Nothing else is read.
                table = tables.read_table(dataset, texts)
                images = tables.columns_of_images(table)
            columns = tables.input_columns(
                schema, dataset, input_columns, others, images
            )
        except ValueError:
            return False
        return are_of_images(columns, images)

    def num_inputs(self, dataset, **options):
        return tables.num_rows(dataset)

    def load(self, dataset, classes, image_size, **options):
        size = self.IMAGE_SIZE if image_size is None else image_size
        return load_table(dataset, image_size=size, **options)


def are_of_images(columns, images):
    """Whether chosen columns are one of `images`."""
    return len(columns) == 1 and columns[0] in images


def load_table(
    path: Path,
    label_column: str | None = None,
    split_column: str | None = None,
    input_columns: Sequence[str] | None = None,
    image_size: int = 32,
    interpolation: str = INTERPOLATIONS[0],
    strict: bool = False,
    stream: bool | None = None,
) -> LabelledParts:
    """Reads a table.

    Args:
        path: of the CSV or Parquet file.
        label_column: column with the classes, whole numbers or texts; None:
            `label`.
        split_column: column that says of each row whether it is for train,
            validation (or valid, val, dev) or test; None: `split`, if there is
            such a column, else parts are set apart at random.
        input_columns: columns of numbers, or one column of lists of numbers,
            of texts or of paths of image files, relative to the folder of the
            table; None: the one column of lists, if there is one, else a
            column of texts called `text`, else the one of paths, if there is
            one, else all other columns.
        image_size, interpolation, strict, stream: of images; as of
            `load_image_folder`.

    Returns:
        `LabelledParts`; inputs are (n, D) float32, (n,) texts, or images as of
        `load_image_folder`. Names of classes are the labels, in order; the
        name of a row is that in `cac-predict`.

    Raises:
        ValueError: whatever `cac_tf.data.tables` finds wrong; a row that names
            no image file, or one that is not there.

    Example:

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "flowers.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("label,width,length\\nrose,1,2\\niris,3,4\\n")
    >>> parts = load_table(path)
    >>> parts.class_names, parts.train.images[0], parts.input_columns
    (('iris', 'rose'), array([1., 2.], dtype=float32), ('width', 'length'))
    """
    path = os.fspath(path)
    label_column = label_column or LABEL
    table = tables.read_table(path, labels=label_column)
    labels = tables.labels_of(table, path, label_column)
    rows = rows_of_parts(table, path, split_column)
    split_column = split_column or SPLIT
    others = (label_column, split_column)
    images = tables.columns_of_images(table, others)
    columns = tables.input_columns(
        table.schema, path, input_columns, others, images
    )
    if are_of_images(columns, images):
        files = tables.texts_of(table, path, columns[0])
        reading = ImageReading(
            os.path.dirname(path) or os.curdir,
            image_size,
            strict,
            stream,
            interpolation,
            kept_as=f"{os.path.basename(path)}_",
        )
        examples_of = _images_in(files, path, columns[0], reading)
        parts = labelled_parts(path, labels, rows, examples_of)
        parts = parts._replace(notes=tuple(reading.notes()), white=WHITE)
    else:
        values = tables.inputs_of(table, path, columns)
        names = [f"{path}#{row}" for row in range(len(labels))]
        parts = labelled_parts(path, labels, rows, examples_in(values, names))
    return with_columns(parts, table, path, columns, others)


def with_columns(parts, table, path, columns, others):
    """`LabelledParts` that say which columns are used, and which are not."""
    used = {*columns, *others}
    unused = [name for name in table.column_names if name not in used]
    note = f"these columns of {path} are not used: {listed(unused)}"
    return parts._replace(
        input_columns=columns,
        notes=(*parts.notes, *((note,) if unused else ())),
    )


def rows_of_parts(table, path, split_column):
    """Row numbers by part, see `tables.parts_of`; all for train by default."""
    if split_column is None and SPLIT not in table.column_names:
        return {"train": np.arange(table.num_rows)}
    return tables.parts_of(table, path, split_column or SPLIT)


def labelled_parts(path, labels, rows, examples_of):
    """`LabelledParts` of all inputs of a file.

    Args:
        path: of the file.
        labels: (n,) whole numbers or texts.
        rows: dict from parts to row numbers.
        examples_of: from a part, its row numbers and their class ids to
            `Examples`.
    """
    found, ids = np.unique(labels, return_inverse=True)
    ids = ids.astype("int64")
    return LabelledParts(
        class_names=tuple(check_class_names(map(str, found.tolist()), path)),
        **{
            part: examples_of(part, numbers, ids[numbers])
            for part, numbers in rows.items()
        },
    )


def examples_in(values, names):
    """For `labelled_parts`: the inputs themselves, (n, ...), and n texts."""

    def examples_of(part, rows, labels):
        return Examples(values[rows], labels, [names[row] for row in rows])

    return examples_of


def _images_in(names, path, column, reading):
    """For `labelled_parts`: images in the files that n texts name."""
    folder = os.path.dirname(path) or os.curdir
    paths = [os.path.join(folder, name) for name in names]
    for what, is_right in (
        ("files that are not images", map(is_name_of_image, names)),
        (
            f"files that do not exist (looked for in {folder})",
            map(os.path.isfile, paths),
        ),
    ):
        wrong = np.flatnonzero(~np.fromiter(is_right, bool, len(names)))
        if wrong.size:
            raise ValueError(
                f"The column {column} of {path} names {what} in "
                f"{wrong.size:,} rows, first in row {wrong[0]} (counted from "
                f"0): {names[wrong[0]][:200]!r}."
            )

    def examples_of(part, rows, labels):
        return reading.examples(
            part,
            [paths[row] for row in rows],
            labels,
            names[rows],
            [f"{names[row]} (row {row})" for row in rows],
        )

    return examples_of
