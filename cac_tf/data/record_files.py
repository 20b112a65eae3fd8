# SPDX-License-Identifier: Apache-2.0
"""TFRecord files of tf.Examples whose records are read one by one, anywhere."""

import array
import functools
import gzip
import os
import sys
import zlib

import numpy as np

from cac_tf import lazy
from cac_tf.annotations import Path
from cac_tf.counted import counted
from cac_tf.data.image_facts import ImageFacts
from cac_tf.data.image_facts import look_at
from cac_tf.data.image_file import problem_of
from cac_tf.data.kept_beside import kept_beside
from cac_tf.data.kept_beside import listing_of
from cac_tf.data.regular_file import opened
from cac_tf.hyperparameters import INTERPOLATIONS

# Of a record: 8 bytes for its length and 4 for a checksum of that before it, 4
# for a checksum of its content after it.
_LENGTH, _BEFORE, _AFTER = 8, 12, 4
# Half of what protobuf would read.
_LARGEST_RECORD = 1 << 30
_RECORDS_AT_ONCE = 1024
# Half of what Linux usually allows a process.
_OPEN_FILES = 512


class Records:
    """The values of one bytes feature in TFRecord files, read when indexed.

    In memory is only where each record lies.

    Args:
        files: tuple of a path and an `_identity` for each file.
        feature: name of the feature, which holds one value.
        places: (n, 3) int64: number of the file, offset of the record's
            content, its length.
    """

    def __init__(self, files, feature, places):
        self._files, self._feature = files, feature
        self._places = places

    def __len__(self):
        return len(self._places)

    def __getitem__(self, rows):
        """A value, as bytes; or `Records` of some, for a slice or an array."""
        if isinstance(rows, slice) or np.ndim(rows):
            return Records(self._files, self._feature, self._places[rows])
        number, offset, length = self._places[rows].tolist()
        # By a name: an object that only this thread has, because another one
        # opened the file at the same time, is closed when nothing names it.
        file = _opened(*self._files[number])
        content = os.pread(file.fileno(), length, offset)
        features = _features(content)
        return features[self._feature].bytes_list.value[0]


@functools.lru_cache(maxsize=_OPEN_FILES)
def _opened(path, identity):
    file = opened(path)  # It stays open.
    if _identity(os.fstat(file.fileno())) != identity:
        file.close()
        raise ValueError(f"{path} was replaced while it was in use.")
    return file


def _identity(status):
    """What differs if a path names another file, or one with other content."""
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _features(content):
    import tensorflow as tf

    return tf.train.Example.FromString(content).features.feature


def whole_records(path: Path, is_gzip: bool = False) -> tuple[int, str]:
    """How many records stand whole at the beginning of a TFRecord file.

    TensorFlow makes room for what a record says to be its length before it
    looks whether so much is there, and the process ends where this is more
    than there is memory. So no file is read by it that was not counted.

    Args:
        path: of the file.
        is_gzip: whether it is compressed as a whole.

    Returns:
        The number, and a text that says what follows them; "" for nothing.

    Raises:
        OSError: the system does not open it, or it is no file.

    Example:

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "cut.tfrecord")
    >>> with open(path, "wb") as file:
    ...     _ = file.write(bytes(16) + (2**40).to_bytes(8, "little") + b"abc")
    >>> whole_records(path)
    (1, 'record 1 claims to have 1,099,511,627,776 bytes, more than the limit')
    """
    count, end = 0, 0
    with opened(path) as content:
        file = gzip.GzipFile(fileobj=content) if is_gzip else content
        try:
            while header := file.read(_LENGTH):
                length = int.from_bytes(header, "little")
                if len(header) < _LENGTH:
                    return count, f"record {count} is truncated"
                if length > _LARGEST_RECORD:
                    return count, (
                        f"record {count} claims to have {length:,} bytes, "
                        "more than the limit"
                    )
                end += _BEFORE + length + _AFTER
                file.seek(end - 1)
                if not file.read(1):
                    return count, (
                        f"record {count} is truncated: it should have "
                        f"{length:,} bytes"
                    )
                count += 1
        except (OSError, EOFError, zlib.error) as error:
            return count, f"damaged after {count} records: {error}"
    return count, ""


class DamagedError(ValueError):
    """A file that is cut off, or whose checksums are wrong."""


def read_records(
    folder,
    name,
    paths,
    image_features,
    label_features,
    size,
    channels,
    interpolation=INTERPOLATIONS[0],
):
    """Images in TFRecord files, which stay there, and what is known of them.

    Each record is read and decoded once; what was found is kept in `.cac_tf`
    of the folder.

    Args:
        folder: the folder of the files.
        name: of what is kept; a part of a file's name.
        paths: of the files, not compressed.
        image_features, label_features: names, of which the first that a
            record has is taken. A label is a whole number or a text.
        size, channels: height and width, and number of channels, that images
            are brought to.
        interpolation: as of `read_image`.

    Returns:
        `Records`; (n,) labels, int64 or texts; `ImageFacts`.

    Raises:
        DamagedError: a damaged file.
        ValueError: a record without image or label, or with an image that
            cannot be read; the message says where.
    """
    lazy.require("tensorflow", "tensorflow")
    files = tuple((path, _identity(os.stat(path))) for path in paths)
    listing = [image_features, label_features, listing_of(folder, paths)]
    found = kept_beside(
        folder,
        f"{name}_records",
        listing,
        lambda: _index(paths, image_features, label_features),
    )
    records = Records(files, str(found["feature"]), found["places"])
    facts = ImageFacts(
        **kept_beside(
            folder,
            f"{name}_{size}x{channels}",
            [size, channels, interpolation, *listing],
            lambda: look_at(
                records, size, channels, name, interpolation=interpolation
            ).arrays(),
        )
    )
    bad = np.flatnonzero(~facts.is_readable)
    if len(bad):
        file, *_ = found["places"][bad[0]]
        why = problem_of(records[bad[0]])
        raise ValueError(
            f"{counted(len(bad), 'image')} of {name} cannot be read; the "
            f"first is record {bad[0]}, in {paths[file]} ({why})."
        )
    return records, found["labels"], facts


def _index(paths, image_features, label_features):
    """Where each image lies, and its label, as a dict of arrays."""
    import tensorflow as tf

    # (A list of tuples would be seven times as large.)
    places, labels, names = array.array("q"), [], set()
    for number, path in enumerate(paths):
        offset = 0
        _, problem = whole_records(path)
        if problem:
            raise DamagedError(f"{path} is truncated or damaged: {problem}.")
        batches = tf.data.TFRecordDataset(path).batch(_RECORDS_AT_ONCE)
        try:
            # This checks the checksums.
            for batch in batches.as_numpy_iterator():
                for record in batch.tolist():
                    where = f"Record {len(labels)}, in {path},"
                    features = _example(record, where)
                    names.add(_name_of(features, image_features, where))
                    labels.append(_label(features, label_features, where))
                    place = offset + _BEFORE
                    places.extend((number, place, len(record)))
                    offset = place + len(record) + _AFTER
        except tf.errors.OpError as error:
            raise DamagedError(
                f"{path} is truncated or damaged: {str(error).splitlines()[0]}"
            ) from error
    if len(names) > 1 or len({type(label) for label in labels}) > 1:
        raise ValueError(
            f"The records in {os.path.dirname(paths[0])} do not all store "
            "images and labels the same way. Names of the image feature: "
            f"{' and '.join(sorted(names))}."
        )
    return {
        "places": np.array(places, "int64").reshape(-1, 3),
        "labels": np.array(labels),
        "feature": np.array(next(iter(names), "")),
    }


def _example(record, where):
    try:
        return _features(record)
    except Exception as error:  # A DecodeError of protobuf.
        raise ValueError(f"{where} is not a tf.Example.") from error


def _name_of(features, wanted, where):
    for name in wanted:
        # (Looked up, a name that is not there would be added.)
        if name in features and len(features[name].bytes_list.value) == 1:
            return name
    raise ValueError(
        f"{where} has no image, a single bytes value named "
        f"{' or '.join(wanted)}; it has "
        f"{', '.join(sorted(features)) or 'nothing'}."
    )


def _label(features, wanted, where):
    for name in wanted:
        if name in features:
            feature = features[name]
            if len(feature.int64_list.value) == 1:
                return feature.int64_list.value[0]
            if len(feature.bytes_list.value) == 1:
                try:
                    text = feature.bytes_list.value[0].decode()
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{where} has a label that is not valid UTF-8: {error}."
                    ) from error
                return sys.intern(text)
    raise ValueError(
        f"{where} has no label, a single integer or string named "
        f"{' or '.join(wanted)}; it has "
        f"{', '.join(sorted(features)) or 'nothing'}."
    )
