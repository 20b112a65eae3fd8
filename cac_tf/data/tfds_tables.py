# SPDX-License-Identifier: Apache-2.0
"""Splits of TensorFlow Datasets as a table, a column for each feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cac_tf import lazy
from cac_tf.data.tfds_images import read_features

arrow = lazy.module("pyarrow", extra="parquet")


def columns_of(features: Any, above: str = "") -> dict[str, Any]:
    """The features that a table can hold, by name.

    These are texts, classes, numbers, and vectors of one length; of features
    that have parts, the parts, such as "features/age".

    Args:
        features: `tfds.features.FeaturesDict`.
        above: of parts, the beginning of their names.
    """
    import tensorflow_datasets as tfds

    found = {}
    for name, feature in features.items():
        if isinstance(feature, tfds.features.FeaturesDict):
            found.update(columns_of(feature, f"{above}{name}/"))
            continue
        info = feature.get_tensor_info()
        # (Of a sequence of such features, it is a dict.)
        shape = getattr(info, "shape", (None,))
        is_vector = len(shape) == 1 and shape[0]
        if not shape or (is_vector and np.issubdtype(info.np_dtype, np.number)):
            found[f"{above}{name}"] = feature
    return found


def read_table(
    builder: Any, splits: Mapping[str, str]
) -> tuple[Any, dict[str, np.ndarray], list[str]]:
    """The rows of splits, one after another.

    Args:
        builder: of `tfds_images.prepare`.
        splits: from parts of a data set to the splits that they are.

    Returns:
        `pyarrow.Table`, in which a class is its name, or nothing where there
        is none; dict from parts to row numbers; and a name for each row.

    Raises:
        ValueError: a damaged file, or a split without an example.
    """
    columns = columns_of(builder.info.features)
    read, rows = [], {}
    names: list[str] = []
    for part, split in splits.items():
        values = read_features(builder, split, [*columns])
        found = {n: _column(columns[n], values[n]) for n in columns}
        read.append(arrow.table(found))
        count = read[-1].num_rows
        rows[part] = np.arange(len(names), len(names) + count)
        names += [f"{builder.name}/{split}#{row}" for row in range(count)]
    return arrow.concat_tables(read), rows, names


def _column(feature, values):
    import tensorflow_datasets as tfds

    if values.dtype == object:
        texts = (text.decode("utf-8", "backslashreplace") for text in values)
        return arrow.array(texts, arrow.string())
    if isinstance(feature, tfds.features.ClassLabel):  # -1 is no class.
        names = np.array([*feature.names, None], object)
        return arrow.array(names[values], arrow.string())
    if values.ndim == 2:
        numbers = arrow.array(np.ascontiguousarray(values).ravel())
        return arrow.FixedSizeListArray.from_arrays(numbers, values.shape[1])
    return arrow.array(values)
