# SPDX-License-Identifier: Apache-2.0
"""Some rows of a file, as a model takes them, and what is wrong with others."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf.annotations import Shape

if TYPE_CHECKING:
    from cac_tf.batch.classifier import Classifier

# Rows of an array that are classified at once: as few as photos where a row is
# large, more of small ones; of texts, a network makes many numbers of each.
_ROWS, _TEXTS, _NUMBERS = 4096, 512, 1 << 19


@dataclasses.dataclass(frozen=True)
class FileOfRows:
    """A file with many inputs."""

    path: str

    @property
    def files(self) -> tuple[str, ...]:
        return (self.path,)


class Chunk(typing.NamedTuple):
    """Some rows."""

    keys: list  # of texts
    values: list | np.ndarray  # contents of files, or rows of an array
    errors: dict  # of what could not be read: position -> text


def chunk_of_rows(
    keys: list[Any],
    values: Sequence[Any],
    classifier: Classifier,
    errors: dict[int, str],
) -> Chunk:
    """A chunk of single rows; one that does not fit the model is an error.

    Args:
        keys: list of texts.
        values: list of numbers, in any shape of the right size; or of texts.
        classifier: `Classifier`.
        errors: dict of what could not be read, from the position.
    """
    if classifier.takes_texts:
        # What is no text, its check will say.
        texts = ("" if row in errors else v for row, v in enumerate(values))
        array = np.fromiter(texts, object, len(values))
        return Chunk(keys, classifier.rows(array, "it"), errors)
    readable = (v for place, v in enumerate(values) if place not in errors)
    shape = _shape_of_rows(readable, classifier)
    if not errors and shape is not None:
        # All at once; if that fails, one by one, to find out which.
        with contextlib.suppress(TypeError, ValueError):
            array = np.reshape(np.asarray(values), (len(values), *shape))
            return Chunk(keys, classifier.rows(array, "it"), {})
    if shape is None:
        shape = tuple(size or 1 for size in classifier.input_shape)
    rows = [np.zeros(shape, "uint8")] * len(values)
    for place, value in enumerate(values):
        if place in errors:
            continue
        try:
            row = _as_row(value, classifier)
            if row.shape != shape:
                raise ValueError(
                    f"its shape is {row.shape}, but others read with it have "
                    f"shape {shape}"
                )
            rows[place] = row
        except (TypeError, ValueError) as error:
            errors[place] = str(error)
    return Chunk(keys, np.stack(rows), errors)


def _as_row(value, classifier):
    """One row in the model's shape. Not more than one size can be found out."""
    row, shape = np.asarray(value), classifier.input_shape
    if not row.size:
        raise ValueError("it contains no numbers")
    if shape.count(None) < 2:
        row = np.reshape(row, [-1 if s is None else s for s in shape])
    return classifier.rows(row[np.newaxis], "it")[0]


def _shape_of_rows(values, classifier):
    """The model's, with open sizes of the first row that fits, or None."""
    shape = classifier.input_shape
    if None not in shape:
        return shape
    for value in values:
        with contextlib.suppress(TypeError, ValueError):
            return _as_row(value, classifier).shape
    return None


def rows_at_once(shape: Shape) -> int:
    """How many inputs of this shape are classified at once."""
    if not shape:
        return _TEXTS
    numbers = int(np.prod([size or 1 for size in shape]))
    return min(max(_NUMBERS // max(numbers, 1), 1), _ROWS)


def keys_of_rows(path: str, start: int, count: int) -> list[str]:
    """Texts for rows that have no names of their own."""
    return [f"{path}#{row}" for row in range(start, start + count)]
