# SPDX-License-Identifier: Apache-2.0
"""Vectors in an .npy file, with their labels in another file."""

from __future__ import annotations

import numpy as np

from cac_tf.annotations import Path
from cac_tf.data import tables
from cac_tf.data.npy_file import read_npy
from cac_tf.data.number_rows import finite_rows
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.data.sources.table import LABEL
from cac_tf.data.sources.table import examples_in
from cac_tf.data.sources.table import labelled_parts
from cac_tf.data.sources.table import rows_of_parts


@register
class NpyVectors(DataSource):
    """An array of vectors."""

    NAME = "npy"
    TAKES = "a path ending in .npy (vectors, with labels=FILE)"
    OPTIONS = ("labels", "label_column", "split_column")

    def takes(self, dataset):
        return dataset.endswith(".npy")

    def holds_images(self, dataset, **options):
        return False

    def num_inputs(self, dataset, **options):
        try:
            return len(read_npy(dataset))
        except (TypeError, ValueError):  # Of no axis, or none.
            return 0

    def load(self, dataset, classes, **options):
        return load_npy_vectors(dataset, **options)


def load_npy_vectors(
    path: Path,
    labels: Path | None,
    label_column: str | None = None,
    split_column: str | None = None,
) -> LabelledParts:
    """Reads vectors, and their labels from another file.

    Args:
        path: of the .npy file, (n, D) numbers.
        labels: an .npy file with (n,) whole numbers or texts; or a CSV or
            Parquet file with n rows in the same order.
        label_column, split_column: of that table, as in `load_table`.

    Returns:
        `LabelledParts`; inputs are (n, D) float32.

    Raises:
        ValueError: no such file, one of another shape, another number of
            labels, no labels at all, or a row that is not finite.

    Example:

    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> path, labels = (os.path.join(folder, n) for n in ("x.npy", "y.npy"))
    >>> np.save(path, np.eye(3)), np.save(labels, ["cat", "dog", "cat"])
    (None, None)
    >>> load_npy_vectors(path, labels).train.labels
    array([0, 1, 0])
    """
    vectors = read_npy(path)
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ValueError(
            f"{path} must contain vectors, numbers of shape (n, D); got "
            f"{vectors.dtype} {vectors.shape}."
        )
    if labels is None:
        raise ValueError(
            f"The labels of {path} are missing: give labels=FILE, an .npy "
            "file of n integers or strings, or a .csv or .parquet file with "
            "a column of them."
        )
    rows = {"train": np.arange(len(vectors))}
    if tables.is_table(labels):
        label_column = label_column or LABEL
        table = tables.read_table(labels, labels=label_column)
        found = tables.labels_of(table, labels, label_column)
    else:
        for name, value in (
            ("label_column", label_column),
            ("split_column", split_column),
        ):
            if value is not None:
                raise ValueError(
                    f"{name}={value} has no effect because {labels} is not a "
                    "table; leave it out."
                )
        table, found = None, read_npy(labels)
        if found.ndim != 1 or found.dtype.kind not in "iuU":
            raise ValueError(
                f"{labels} must contain n integers or strings, one label for "
                f"each vector; got {found.dtype} {found.shape}."
            )
    if len(found) != len(vectors):
        raise ValueError(
            f"{labels} has {len(found):,} labels for the {len(vectors):,} "
            f"vectors of {path}."
        )
    if table is not None:
        rows = rows_of_parts(table, labels, split_column)
    names = [f"{path}#{row}" for row in range(len(vectors))]
    values = finite_rows(vectors, f"{path}")
    of_rows = examples_in(values, names)
    return labelled_parts(path, np.asarray(found), rows, of_rows)
