# SPDX-License-Identifier: Apache-2.0
"""Blocks of inputs: photos, or one file of many rows.

A block is what one part of a large result answers. Its rows come in chunks, so
that few of them are in memory at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import os
import re
import typing
import zlib
from collections.abc import Iterable
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cac_tf import lazy
from cac_tf.batch.chunks import Chunk
from cac_tf.batch.chunks import FileOfRows
from cac_tf.batch.chunks import chunk_of_rows
from cac_tf.batch.chunks import keys_of_rows
from cac_tf.batch.chunks import rows_at_once
from cac_tf.batch.columns import columns_read
from cac_tf.batch.columns import numbers_in
from cac_tf.batch.columns import usual_column
from cac_tf.batch.lines import JsonLines
from cac_tf.batch.lines import TextLines
from cac_tf.batch.npz_rows import opened_npz
from cac_tf.data import tables
from cac_tf.data.npy_file import read_npy
from cac_tf.data.record_files import whole_records
from cac_tf.data.regular_file import opened

if TYPE_CHECKING:
    from cac_tf.batch.classifier import Classifier

arrow = lazy.module("pyarrow", extra="parquet")
arrow_compute = lazy.module("pyarrow.compute", extra="parquet")
csv = lazy.module("pyarrow.csv", extra="parquet")
parquet = lazy.module("pyarrow.parquet", extra="parquet")

# Photos that are read at once: so many, and of so many bytes if they are more
# than one.
_FILES, _BYTES = 32, 1 << 28
# By their sizes, the number of all is estimated.
_RECORDS_LOOKED_AT = 100
# Bytes of a column that are read at once; of a row group, they may be all.
_COLUMN_BYTES = 1 << 20
_TABLES = re.compile(
    r"\.(npz(?::(.+))?|npy|csv|parquet|txt|jsonl"
    r"|tfrecords?(?:\.gz)?(?:-\d+-of-\d+)?)$"
)
# No photo is larger; a film or an archive beside photos may be.
_LARGEST_FILE = 1 << 30
# Where tf.Examples hold an image, in the order in which they are looked for.
_IMAGE_FEATURES = ("image/encoded", "image")


@dataclasses.dataclass(frozen=True)
class Photos:
    """Files with one image each."""

    files: tuple

    @property
    def num_rows(self) -> int:
        """Number of rows, perhaps estimated; None where they are not known."""
        return len(self.files)

    def chunks(self, classifier: Classifier) -> Iterator[Chunk]:
        """Yields `Chunk`s of inputs for a `Classifier`.

        Raises:
            ValueError: the rest of the block cannot be read.
        """
        yield from _chunks_of_photos(self.files, self.files)


def _chunks_of_photos(paths, keys):
    """Yields `Chunk`s of files, by paths and n texts as keys."""
    for rows in in_groups(range(len(paths)), lambda row: _size_of(paths[row])):
        values, errors = [], {}
        for place, row in enumerate(rows):
            content = b""
            try:
                content = _content_of_photo(paths[row])
            # (ValueError: also where the path holds a NUL.)
            except Exception as error:
                errors[place] = said_of(error)
            values.append(content)
        yield Chunk([keys[row] for row in rows], values, errors)


def in_groups(items, size_of):
    """Lists of items, in order, that are in memory at the same time.

    Example:

    >>> [len(group) for group in in_groups([1 << 27] * 3 + [1] * 33, int)]
    [2, 32, 2]
    """
    group, size = [], 0
    for item in items:
        more = size_of(item)
        if group and (len(group) == _FILES or size + more > _BYTES):
            yield group
            group, size = [], 0
        group.append(item)
        size += more
    if group:
        yield group


def _size_of(path):
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):  # It has an error, and no content.
        return 0


def _content_of_photo(path):
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _LARGEST_FILE:
            raise ValueError(f"the file is too large ({size:,} bytes)")
        return file.read()


def said_of(error):
    """Why something cannot be read, in a line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    line = str(error).split("\n", 1)[0]
    if isinstance(error, (OSError, ValueError)) and line:
        return line
    return f"{type(error).__name__}: {line}"


@dataclasses.dataclass(frozen=True)
class NpzArray(FileOfRows):
    """An array in an .npz file, named `x` or `images` if no name is given."""

    name: str = ""

    @property
    def num_rows(self) -> int | None:
        try:
            with self._opened() as array:
                return array.shape[0]
        except ValueError:
            return None

    def chunks(self, classifier: Classifier) -> Iterator[Chunk]:
        with self._opened() as array:
            what = f"{array.name} in {self.path}"
            # Before a row is read.
            classifier.rows(np.empty((0, *array.shape[1:]), array.dtype), what)
            start = 0
            for rows in array.pieces(rows_at_once(array.shape[1:])):
                keys = keys_of_rows(self.path, start, len(rows))
                yield Chunk(keys, classifier.rows(rows, what), {})
                start += len(rows)

    def _opened(self):
        wanted = {self.name} if self.name else {"x", "images"}
        return opened_npz(self.path, wanted)


@dataclasses.dataclass(frozen=True)
class NpyArray(FileOfRows):
    """The array of an .npy file."""

    @property
    def num_rows(self) -> int | None:
        try:
            return len(read_npy(self.path))
        except (TypeError, ValueError):
            return None

    def chunks(self, classifier: Classifier) -> Iterator[Chunk]:
        array = read_npy(self.path)
        if not array.ndim:
            raise ValueError("the array is a single value, without rows")
        # Before a row is read.
        classifier.rows(array[:0], self.path)
        count = rows_at_once(array.shape[1:])
        for start in range(0, len(array), count):
            rows = np.array(array[start : start + count])
            keys = keys_of_rows(self.path, start, len(rows))
            yield Chunk(keys, classifier.rows(rows, self.path), {})


@dataclasses.dataclass(frozen=True)
class _Table(FileOfRows):
    """A file of rows with named fields.

    Attributes:
        path: of the file.
        image: field with the input, or None: the usual one, or those that
            the model was trained on.
        key: field with the key, or None: the row's number.
    """

    image: str | None = None
    key: str | None = None


class TFRecords(_Table):
    """A TFRecord file of tf.Examples; gzip if it has ".gz" in its name.

    The input is the file of an image or, where the model takes none, its
    numbers, or a text.
    """

    def chunks(self, classifier: Classifier) -> Iterator[Chunk]:
        import tensorflow as tf

        count, problem = whole_records(self.path, self._is_gzip)
        records = tf.data.TFRecordDataset(
            self.path, "GZIP" if self._is_gzip else ""
        ).take(count)
        start, found = 0, []
        if classifier.takes_files:
            batches = in_groups(records.as_numpy_iterator(), len)
        else:
            # One at a time, the calls would take longer than the work.
            batches = records.batch(rows_at_once(classifier.input_shape))
            batches = batches.as_numpy_iterator()
        try:
            for batch in batches:
                keys = keys_of_rows(self.path, start, len(batch))
                yield (
                    self._chunk_of_numbers(batch, keys, classifier)
                    or self._chunk(list(batch), keys, classifier)
                )
                start += len(batch)
        except tf.errors.OpError as error:
            # What comes before the damage is kept.
            with contextlib.suppress(tf.errors.OpError):
                found.extend(records.skip(start).as_numpy_iterator())
            if found:
                keys = keys_of_rows(self.path, start, len(found))
                yield self._chunk(found, keys, classifier)
            problem = error.message
        if problem:
            raise ValueError(problem)

    @property
    def _is_gzip(self):
        return ".gz" in os.path.basename(self.path)

    @property
    def num_rows(self) -> int | None:
        """About how many records there are, by the sizes of the first ones."""
        try:
            with opened(self.path) as file:
                size = file.seek(0, os.SEEK_END)
                if self._is_gzip:
                    # Its last bytes say how many they were.
                    file.seek(-4, os.SEEK_END)
                    size = int.from_bytes(file.read(4), "little")
            open_ = gzip.open if self._is_gzip else open
            with open_(self.path, "rb") as file:
                for count in range(_RECORDS_LOOKED_AT):
                    if len(length := file.read(8)) < 8:
                        return count
                    # Two checksums, and the content.
                    end = file.seek(int.from_bytes(length, "little") + 8, 1)
            return max(-(-_RECORDS_LOOKED_AT * size // end), _RECORDS_LOOKED_AT)
        except (OSError, EOFError, ValueError, OverflowError, zlib.error):
            return None

    def _chunk_of_numbers(self, records, keys, classifier):
        """A chunk of rows, all parsed by TensorFlow at once.

        None where this does not go: images, or rows that differ.
        """
        import tensorflow as tf

        if classifier.takes_files:
            return None
        name = self.image or usual_column(classifier)
        size = int(np.prod([size or 1 for size in classifier.input_shape]))
        kinds = (tf.float32, tf.int64)
        for kind in (tf.string,) if classifier.takes_texts else kinds:
            wanted = {name: tf.io.FixedLenFeature([size], kind)}
            if self.key is not None:
                wanted[self.key] = tf.io.FixedLenFeature([], tf.string)
            try:
                parsed = tf.io.parse_example(records, wanted)
            except (tf.errors.InvalidArgumentError, ValueError):
                continue
            if self.key is not None:
                keys = [_text(key) for key in parsed[self.key].numpy().tolist()]
            found = parsed[name].numpy()
            if classifier.takes_texts:
                found = found[:, 0]
            return chunk_of_rows(keys, found, classifier, {})
        return None

    def _chunk(self, records, keys, classifier):
        import tensorflow as tf

        values, errors = [], {}
        for place, record in enumerate(records):
            value = b""
            try:
                features = tf.train.Example.FromString(record).features.feature
                if self.key is not None:
                    keys[place] = _text_of(features, self.key)
                value = self._value(features, classifier)
            # An Example is any message; what is none raises a DecodeError.
            except Exception as error:
                errors[place] = f"not a tf.Example: {error}"
                if isinstance(error, ValueError):
                    errors[place] = str(error)
            values.append(value)
        if classifier.takes_files:
            return Chunk(keys, values, errors)
        return chunk_of_rows(keys, values, classifier, errors)

    def _value(self, features, classifier):
        wanted = (self.image,) if self.image else _IMAGE_FEATURES
        if not classifier.takes_files:
            wanted = (self.image or usual_column(classifier),)
        for name in wanted:
            if name in features:
                return _content(features[name], name, classifier)
        raise ValueError(
            f"no feature {' or '.join(wanted)}; found: "
            f"{', '.join(sorted(features)) or 'none'}"
        )


def _content(feature, name, classifier):
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else []
    are_bytes = classifier.takes_files or classifier.takes_texts
    if not are_bytes and kind in ("float_list", "int64_list"):
        return np.array(values)
    if are_bytes and kind == "bytes_list" and len(values) == 1:
        return values[0]
    wanted = "an image file" if classifier.takes_files else "numbers"
    if classifier.takes_texts:
        wanted = "a string"
    raise ValueError(f"the feature {name} does not contain {wanted}")


def _text_of(features, name):
    values = features[name].bytes_list.value if name in features else ()
    if len(values) != 1:
        raise ValueError(f"the feature {name} does not contain a single string")
    return _text(values[0])


def _text(value):
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


class ParquetRows(_Table):
    """A Parquet file.

    The inputs are files of images, as bytes, as structs of `bytes` (and
    `path`) or as paths, relative to the folder of the table; lists of numbers,
    columns of numbers, or texts.
    """

    @property
    def num_rows(self) -> int | None:
        return tables.num_rows(self.path) or None

    def chunks(self, classifier: Classifier) -> Iterator[Chunk]:
        with parquet.ParquetFile(self.path, buffer_size=_COLUMN_BYTES) as file:
            columns = self._columns(file.schema_arrow, classifier)
            read = columns if self.key is None else (*columns, self.key)
            size = rows_at_once(classifier.input_shape)
            if classifier.takes_files:
                # As large as they are on average.
                size = min(_FILES, max(_BYTES // _bytes_of_row(file), 1))
            start = 0
            for batch in file.iter_batches(size, columns=list(read)):
                yield from self._chunks(batch, start, columns, classifier)
                start += batch.num_rows

    def _columns(self, schema, classifier):
        return columns_read(schema, self.path, classifier, self.image, self.key)

    def _chunks(self, batch, start, columns, classifier):
        column = batch.column(columns[0])
        are_paths = classifier.takes_files and tables.is_text(column.type)
        key_column = self.key or (columns[0] if are_paths else None)
        keys = keys_of_rows(self.path, start, batch.num_rows)
        if key_column is not None:
            found = batch.column(key_column).to_pylist()
            keys = [
                key if own in (None, "") else _text(own)
                for key, own in zip(keys, found, strict=True)
            ]
        if are_paths:
            folder = os.path.dirname(self.path)
            paths = [
                os.path.join(folder, name) if name else ""
                for name in column.to_pylist()
            ]
            yield from _chunks_of_photos(paths, keys)
        else:
            yield self._chunk(batch, keys, columns, classifier)

    def _chunk(self, batch, keys, columns, classifier):
        image, column = columns[0], batch.column(columns[0])
        if classifier.takes_texts:
            return chunk_of_rows(keys, column.to_pylist(), classifier, {})
        is_number = not arrow.types.is_nested(column.type)
        if is_number and not classifier.takes_files:
            rows, errors = numbers_in(batch, columns)
            return chunk_of_rows(keys, rows, classifier, errors)
        if not classifier.takes_files:
            numbers = _equal_lists(column)
            if numbers is not None:
                return chunk_of_rows(keys, numbers, classifier, {})
        values, errors = [], {}
        for place, value in enumerate(column.to_pylist()):
            if isinstance(value, dict):
                value = value.get("bytes")
            wanted = bytes if classifier.takes_files else list
            if not isinstance(value, wanted):
                what = "image file" if wanted is bytes else "numbers"
                errors[place] = f"the column {image} has no {what} here"
                value = b""
            values.append(value)
        if classifier.takes_files:
            return Chunk(keys, values, errors)
        return chunk_of_rows(keys, values, classifier, errors)


class CsvRows(ParquetRows):
    """A CSV file, whose first line names the columns."""

    def chunks(self, classifier: Classifier) -> Iterator[Chunk]:
        with self._opened() as file:
            columns = self._columns(file.schema, classifier)
        # A text or key that looks like a number or a date is none, and numbers
        # with a fraction may come late.
        read = columns if self.key is None else (*columns, self.key)
        kinds = dict.fromkeys(read, arrow.string())
        start = 0
        with self._opened(kinds) as file:
            for batch in file:
                yield from self._chunks(batch, start, columns, classifier)
                start += batch.num_rows

    @contextlib.contextmanager
    def _opened(self, kinds=None):
        with (
            opened(self.path) as content,
            csv.open_csv(
                content,
                parse_options=tables.csv_parsing(),
                convert_options=csv.ConvertOptions(column_types=kinds),
            ) as file,
        ):
            yield file


def _bytes_of_row(file):
    meta = file.metadata
    groups = map(meta.row_group, range(meta.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    return size // max(meta.num_rows, 1) + 1


def _equal_lists(column):
    """A column of lists as one array; None where this does not go."""
    types, kind = arrow.types, column.type
    if not (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    ) or not (
        types.is_floating(kind.value_type) or types.is_integer(kind.value_type)
    ):
        return None
    lengths = arrow_compute.list_value_length(column).unique()
    numbers = column.flatten()
    if column.null_count or numbers.null_count or len(lengths) != 1:
        return None
    return numbers.to_numpy().reshape(len(column), -1)


Block: typing.TypeAlias = (
    Photos | NpzArray | NpyArray | TFRecords | ParquetRows | TextLines
)


def blocks_of(
    paths: Iterable[str],
    block_size: int = 1024,
    image: str | None = None,
    key: str | None = None,
) -> list[Block]:
    """Groups inputs into blocks, in their order.

    Each file ending in .npz (or .npz:NAME for one of several arrays), .npy,
    .csv, .txt, .jsonl, .tfrecord or .parquet is a block. All others are photos.

    Args:
        paths: iterable of strings.
        block_size: largest number of photos in a block.
        image, key: feature, column or field that holds the inputs and their
            keys, see `TFRecords`, `ParquetRows` and `JsonLines`.

    Returns:
        List of blocks.

    Example:

    >>> blocks = blocks_of(["a.png", "b.png", "c.png", "d.npz:x_test"], 2)
    >>> [block.files for block in blocks]
    [('a.png', 'b.png'), ('c.png',), ('d.npz',)]
    """
    blocks: list[Block] = []
    photos: list[str] = []

    def end_of_photos():
        if photos:
            blocks.append(Photos(tuple(photos)))
            photos.clear()

    for path in paths:
        match = _TABLES.search(path)
        # A folder or a pipe is no table, whatever it is called.
        if match is None or (os.path.exists(path) and not os.path.isfile(path)):
            photos.append(path)
            if len(photos) == block_size:
                end_of_photos()
            continue
        end_of_photos()
        if match[1].startswith("npz"):
            # Without ":NAME".
            end = match.start() + len(".npz")
            blocks.append(NpzArray(path[:end], match[2] or ""))
        elif match[1] == "npy":
            blocks.append(NpyArray(path))
        elif match[1] in ("csv", "parquet"):
            kind = CsvRows if match[1] == "csv" else ParquetRows
            blocks.append(kind(path, image, key))
        elif match[1] == "txt":
            blocks.append(TextLines(path))
        elif match[1] == "jsonl":
            blocks.append(JsonLines(path, image, key))
        else:
            blocks.append(TFRecords(path, image, key))
    end_of_photos()
    return blocks
