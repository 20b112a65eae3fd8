# SPDX-License-Identifier: Apache-2.0
"""Files with an input in each line: texts, or JSON objects."""

from __future__ import annotations

import codecs
import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cac_tf.batch.chunks import Chunk
from cac_tf.batch.chunks import FileOfRows
from cac_tf.batch.chunks import chunk_of_rows
from cac_tf.batch.chunks import keys_of_rows
from cac_tf.batch.chunks import rows_at_once
from cac_tf.batch.columns import number_of
from cac_tf.batch.columns import trained_columns
from cac_tf.batch.columns import usual_column
from cac_tf.data.regular_file import opened

if TYPE_CHECKING:
    from cac_tf.batch.classifier import Classifier


@dataclasses.dataclass(frozen=True)
class TextLines(FileOfRows):
    """A .txt file: each line is a text, the empty ones too."""

    @property
    def num_rows(self) -> int | None:
        try:
            with opened(self.path) as content:
                return sum(1 for _ in content)
        except (OSError, ValueError):
            return None

    def chunks(self, classifier: Classifier) -> Iterator[Chunk]:
        self._check(classifier)
        start, count = 0, rows_at_once(classifier.input_shape)
        with opened(self.path) as content:
            while lines := list(itertools.islice(content, count)):
                if start == 0:
                    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                keys = keys_of_rows(self.path, start, len(lines))
                yield self._chunk(keys, lines, classifier)
                start += len(lines)

    def _check(self, classifier):
        if not classifier.takes_texts:
            raise ValueError(
                "this file contains texts, which the model does not accept"
            )

    def _chunk(self, keys, lines, classifier):
        texts = [line.rstrip(b"\r\n") for line in lines]
        return chunk_of_rows(keys, texts, classifier, {})


@dataclasses.dataclass(frozen=True)
class JsonLines(TextLines):
    """A .jsonl file: each line is an object with the input in a field.

    Attributes:
        image: the field, or None: those that the model was trained on, or
            `text`, or `features` with a list of numbers.
        key: field with the key, or None: the line's number, from 0.
    """

    image: str | None = None
    key: str | None = None

    def _check(self, classifier):
        if classifier.takes_files:
            raise ValueError(
                "the model expects images, which this file cannot contain"
            )

    def _chunk(self, keys, lines, classifier):
        values, errors = [], {}
        for place, line in enumerate(lines):
            value = ""
            try:
                row = json.loads(line)
                if self.key is not None and row[self.key] is not None:
                    keys[place] = str(row[self.key])
                names = (self.image,) if self.image else ()
                names = names or trained_columns(classifier, row)
                names = names or (usual_column(classifier),)
                value = [row[name] for name in names]
            except KeyError as error:
                errors[place] = f"the field {error} is missing"
            except (ValueError, TypeError, RecursionError):
                errors[place] = "not a JSON object"
            else:
                value = _single(value, names, place, errors)
            values.append(value)
        return chunk_of_rows(keys, values, classifier, errors)


def _single(found, names, place, errors):
    """The value of one field, or those of several, which are numbers."""
    if len(names) == 1:
        return found[0]
    numbers = []
    for name, value in zip(names, found, strict=True):
        try:
            numbers.append(number_of(value))
        except (TypeError, ValueError, OverflowError):
            errors[place] = f"the field {name!r} has no number here"
    return numbers
