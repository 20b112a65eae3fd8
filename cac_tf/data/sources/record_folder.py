# SPDX-License-Identifier: Apache-2.0
"""Labelled images in TFRecord or Parquet files."""

import collections
import glob
import hashlib
import json
import os
import re

import numpy as np
import tqdm

from cac_tf import atomic_files
from cac_tf import lazy
from cac_tf.annotations import Path
from cac_tf.data.image_facts import conversion_notes
from cac_tf.data.kept_beside import FOLDER
from cac_tf.data.kept_beside import listing_of
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.record_files import read_records
from cac_tf.data.regular_file import opened
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.data.streamed_images import exceeds_memory
from cac_tf.hyperparameters import INTERPOLATIONS

arrow = lazy.module("pyarrow", extra="parquet")
parquet = lazy.module("pyarrow.parquet", extra="parquet")

_PARTS = ("train", "validation", "test")
_KIND = re.compile(r"\.(parquet|tfrecords?)(-\d+-of-\d+)?$")
_COMPRESSED = re.compile(r"\.(parquet|tfrecords?)\S*\.?(gz|bz2|xz|zst|zip)\b")
_IMAGES = ("image/encoded", "image")
_LABELS = ("label", "image/class/label")
_ROWS_AT_ONCE = 256


@register
class RecordFolder(DataSource):
    """The folder `data_dir` with files of many images each."""

    NAME = "records"
    DATASETS = (NAME,)
    TAKES = "records (TFRecord or Parquet files of images, see data_dir)"
    OPTIONS = ("data_dir", "image_size", "interpolation", "stream")
    IMAGE_SIZE = 32

    def has_part(self, part, data_dir, **options):
        return data_dir is not None and bool(_files_of(data_dir, part))

    def load(
        self, dataset, classes, data_dir, image_size, interpolation, stream
    ):
        if data_dir is None:
            raise ValueError(
                f"dataset={dataset!r} needs data_dir: the folder of files "
                "whose names begin with train and end in .tfrecord or "
                ".parquet."
            )
        size = self.IMAGE_SIZE if image_size is None else image_size
        return load_record_folder(data_dir, size, stream, interpolation)


def load_record_folder(
    data_dir: Path,
    image_size: int = 32,
    stream: bool | None = None,
    interpolation: str = INTERPOLATIONS[0],
) -> LabelledParts:
    """Reads labelled images from TFRecord or Parquet files.

    The files of a part are those whose names begin with `train`, `validation`
    or `test`, and end in `.tfrecord`, `.tfrecord-00000-of-00010` or
    `.parquet`. A record holds the file of an image, as `image/encoded` or
    `image`, and a `label` (or `image/class/label`), a whole number or a text;
    in Parquet an `image` is bytes, or a struct with `bytes`.

    Each record is read once; what was found is kept in `.cac_tf` of the
    folder, where a Parquet file is also copied to TFRecords. The next time,
    files are only listed, and images are read when they are used.

    Args:
        data_dir: the folder.
        image_size: height and width of the images, which become RGB.
        stream: whether images stay in their files and are decoded when they
            are used; None decides by the memory that they would need.
        interpolation: "bilinear" or "bicubic".

    Returns:
        `LabelledParts`. Names of classes are the labels, in order.

    Raises:
        ValueError: no such folder or no training file in it, a file that is
            compressed as a whole (.tfrecord.gz), a record without
            image or label, a damaged file, or an image that cannot be read.

    Example:

    >>> import io, tempfile, PIL.Image, pyarrow, pyarrow.parquet
    >>> file = io.BytesIO()
    >>> PIL.Image.new("RGB", (8, 8)).save(file, "png")
    >>> table = pyarrow.table({
    ...     "image": [file.getvalue()] * 4, "label": ["cat", "dog"] * 2})
    >>> folder = tempfile.mkdtemp()
    >>> pyarrow.parquet.write_table(table, f"{folder}/train.parquet")
    >>> parts = load_record_folder(folder, image_size=8)
    >>> parts.class_names, parts.train.images.shape
    (('cat', 'dog'), (4, 8, 8, 3))
    """
    if not os.path.isdir(data_dir):
        raise ValueError(f"Folder not found: {data_dir}.")
    if not _files_of(data_dir, "train"):
        raise ValueError(
            f"{data_dir} contains no file whose name begins with train and "
            "ends in .tfrecord or .parquet."
        )
    read = {
        part: _read_part(data_dir, part, paths, image_size, interpolation)
        for part in _PARTS
        if (paths := _files_of(data_dir, part))
    }
    # The labels of an empty part have no kind.
    labels_found = [labels for _, labels, _ in read.values() if len(labels)]
    if not labels_found:
        raise ValueError(f"The files in {data_dir} contain no records.")
    if len({labels.dtype.kind for labels in labels_found}) > 1:
        raise ValueError(
            f"The labels in {data_dir} are integers in some files and strings "
            "in others."
        )
    found = np.unique(np.concatenate(labels_found))
    conversions: collections.Counter[str] = sum(
        (facts.count_conversions() for *_, facts in read.values()),
        collections.Counter(),
    )
    parts = {
        part: _examples(
            StreamedImages(records, image_size, 3, facts, interpolation),
            labels,
            found,
            stream,
        )
        for part, (records, labels, facts) in read.items()
    }
    return LabelledParts(
        class_names=tuple(str(label) for label in found.tolist()),
        train=parts["train"],
        validation=parts.get("validation"),
        test=parts.get("test"),
        notes=tuple(conversion_notes(conversions, image_size)),
        white=WHITE,
    )


def _files_of(data_dir, part):
    pattern = os.path.join(glob.escape(os.fspath(data_dir)), f"{part}*")
    there = sorted(glob.glob(pattern))
    compressed = [
        path for path in there if _COMPRESSED.search(os.path.basename(path))
    ]
    if compressed:
        raise ValueError(
            f"{compressed[0]} is compressed, so its records cannot be read "
            "individually. Decompress it."
        )
    paths = [path for path in there if _KIND.search(path)]
    if len({_is_table(path) for path in paths}) > 1:
        raise ValueError(
            f"The files of the part {part} in {data_dir} mix two formats, "
            "TFRecord and Parquet."
        )
    return paths


def _is_table(path):
    return _KIND.search(path)[1] == "parquet"


def _read_part(data_dir, part, paths, size, interpolation):
    if _is_table(paths[0]):
        paths = [_as_records(data_dir, part, paths)]
    return read_records(
        data_dir, part, paths, _IMAGES, _LABELS, size, 3, interpolation
    )


def _examples(images, labels, found, stream):
    labels = np.searchsorted(found, labels).astype("int64")
    if stream is None:
        stream = exceeds_memory(len(images), *images.shape[2:])
    return Examples(images if stream else images[:], labels)


def _as_records(data_dir, part, paths):
    """Path of a TFRecord file with the rows of Parquet files.

    Parquet has no way to read a single row, as training needs it.
    """
    lazy.require("tensorflow", "tensorflow")
    key = json.dumps(listing_of(data_dir, paths)).encode()
    name = f"{part}_{hashlib.sha256(key).hexdigest()[:16]}.tfrecord"
    path = os.path.join(data_dir, FOLDER, name)
    if os.path.exists(path):
        return path
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        atomic_files.write_once(path, lambda to: _copy(to, part, paths))
    except OSError as error:
        raise ValueError(
            f"The Parquet files in {data_dir} have to be copied to TFRecords "
            f"in {os.path.dirname(path)}, but this failed ({error}). Make "
            "that folder writable, or convert them to TFRecords elsewhere."
        ) from error
    # Those of earlier files, also what a kill left of them.
    folder = glob.escape(os.path.dirname(path))
    for start in ("", "."):
        for other in glob.glob(f"{folder}/{start}{part}_*.tfrecord"):
            if other != path:
                os.unlink(other)
    return path


def _copy(path, part, paths):
    import tensorflow as tf

    with (
        tf.io.TFRecordWriter(path) as writer,
        tqdm.tqdm(
            desc=f"copying {part}", unit="image", leave=False, disable=None
        ) as progress,
    ):
        for source in paths:
            for image, label in _readable_rows(source):
                writer.write(example_of(image, label))
                progress.update()


def _readable_rows(path):
    try:
        yield from _rows(path)
    except (OSError, arrow.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _rows(path):
    with opened(path) as content, parquet.ParquetFile(content) as file:
        names = file.schema_arrow.names
        chosen = []
        for wanted in (_IMAGES, _LABELS):
            name = next((name for name in wanted if name in names), None)
            if name is None:
                raise ValueError(
                    f"{path} has no column {' or '.join(wanted)}; its columns "
                    f"are {', '.join(names)}."
                )
            chosen.append(name)
        row = 0
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=chosen):
            columns = [batch.column(name).to_pylist() for name in chosen]
            for image, label in zip(*columns, strict=True):
                if isinstance(image, dict):
                    image = image.get("bytes")
                is_label = isinstance(label, (int, str))
                if not isinstance(image, bytes) or not is_label:
                    raise ValueError(
                        f"Row {row} of {path} must have an image as bytes, "
                        "and a label that is an integer or a string."
                    )
                yield image, label
                row += 1


def example_of(image, label):
    """A tf.Example, as bytes, of an image's file and a text or number."""
    import tensorflow as tf

    feature = tf.train.Feature
    if isinstance(label, str):
        values = tf.train.BytesList(value=[label.encode()])
        label = feature(bytes_list=values)
    else:
        label = feature(int64_list=tf.train.Int64List(value=[label]))
    image = feature(bytes_list=tf.train.BytesList(value=[image]))
    features = tf.train.Features(feature={"image": image, "label": label})
    return tf.train.Example(features=features).SerializeToString()
