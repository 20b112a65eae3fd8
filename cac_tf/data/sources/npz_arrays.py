# SPDX-License-Identifier: Apache-2.0
"""Images or vectors as NumPy arrays in one .npz file."""

from __future__ import annotations

import json
import math
import os
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import psutil

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.data.class_splits import ClassSplit
from cac_tf.data.npy_file import read_header
from cac_tf.data.number_rows import finite_rows
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.open_set_dataset import as_negatives
from cac_tf.data.open_set_dataset import listed
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.regular_file import opened
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import class_ids
from cac_tf.data.sources.source import register
from cac_tf.labels import check_class_names
from cac_tf.labels import check_labels

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset

_PARTS = ("train", "validation", "test")
_OPTIONAL = (
    "x_test",
    "y_test",
    "x_validation",
    "y_validation",
    "class_names",
    "known_classes",
    "x_negatives",
    "white",
)
_KNOWN = {"x_train", "y_train", "origin", *_OPTIONAL}
# Fields of an `OpenSetDataset` that `dump_arrays` writes besides its arrays.
_ORIGIN = (
    "name",
    "split_family",
    "trial",
    "class_ids",
    "unknown_class_ids",
    "input_columns",
    "interpolation",
)
# A file of so many is made to take time.
_MOST_MEMBERS = 10_000
# What one byte becomes at most, in the two ways in which NumPy writes.
_EXPANSIONS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
# Float labels above it are no longer exact.
_LARGEST_ID = 2**53


@register
class NpzArrays(DataSource):
    """An .npz file, made by the user or by `dump_arrays`."""

    NAME = "npz"
    TAKES = "a path ending in .npz"

    def takes(self, dataset):
        return dataset.endswith(".npz")

    def holds_images(self, dataset):
        return len(_shape_of_inputs(dataset)) != 2

    def num_inputs(self, dataset):
        return (*_shape_of_inputs(dataset), 0)[0]

    def load(self, dataset, classes):
        return load_npz_arrays(dataset)


def _shape_of_inputs(path):
    try:
        with zipfile.ZipFile(path) as file:
            return _header(file, "x_train.npy")[0]
    except Exception:  # Loading the file will say what is wrong.
        return ()


def load_npz_arrays(path: Path) -> LabelledParts:
    """Reads `x_train`, `y_train` and the other parts, if there are any.

    Entries: `x_train` (n, H, W, C) or (n, H, W) for images, (n, D) for
    vectors, and `y_train` (n,) class ids from 0; `x_validation`,
    `y_validation`, `x_test`, `y_test` likewise, optional, and of the same
    kind; `class_names` optional, else the ids that occur are the names;
    `known_classes` optional, the names of those that are known unless others
    are named; `x_negatives` optional, images of further classes, see
    `OpenSetDataset`; `white` optional, the value of a white pixel, else it is
    found from the values, see `pixel_scale.on_one_scale`.

    Args:
        path: the file.

    Returns:
        `LabelledParts`; images as they are in the file.

    Raises:
        ValueError: no such file, a damaged one or one that memory cannot hold,
            entries missing or of a wrong shape or type, labels that are not
            class ids, two classes with one name, images that differ in shape.

    Example:

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "made.npz")
    >>> np.savez(path, x_train=np.zeros((4, 8, 8)), y_train=[0, 1, 2, 0])
    >>> arrays = load_npz_arrays(path)
    >>> arrays.train.images.shape, arrays.class_names, arrays.test
    ((4, 8, 8, 1), ('0', '1', '2'), None)
    """
    # Images are copied into the parts of the data set.
    entries, others = read_entries(path, _KNOWN, copies=2)
    if "x_train" not in entries or "y_train" not in entries:
        raise ValueError(
            f"{path} must contain x_train and y_train (and may contain "
            f"{', '.join(_OPTIONAL)}); it contains: "
            f"{listed(sorted([*entries, *others]))}."
        )
    parts = {part: _examples(entries, part, path) for part in _PARTS}
    present = [examples for examples in parts.values() if examples is not None]
    negatives = entries.get("x_negatives")
    if negatives is not None:
        negatives = _images(negatives, "x_negatives", path)
        parts["negatives"] = as_negatives(negatives)
    shapes = {
        examples.images.shape[1:]
        for examples in parts.values()
        if examples is not None
    }
    if len(shapes) > 1:
        raise ValueError(
            f"The inputs in {path} have different shapes: {sorted(shapes)}."
        )
    names = _texts(entries, "class_names", path)
    if names:
        largest = max(int(e.labels.max(initial=0)) for e in present)
        if largest >= len(names):
            raise ValueError(
                f"{path} has {len(names)} class_names, but labels up to "
                f"{largest}."
            )
    else:
        # Ids may be far apart: only those that occur are classes.
        ids = np.unique(np.concatenate([e.labels for e in present]))
        names = tuple(str(i) for i in ids)
        for part in _PARTS:
            if parts[part] is not None:
                positions = np.searchsorted(ids, parts[part].labels)
                parts[part] = parts[part]._replace(labels=positions)
    names = tuple(check_class_names(names, path))
    known = _texts(entries, "known_classes", path)
    unused = f"these entries of {path} are not used: {listed(others)}"
    fields = _fields(entries, path)
    return LabelledParts(
        class_names=names,
        **parts,
        notes=(unused,) if others else (),
        split=ClassSplit(tuple(class_ids(known, names, path)), None)
        if known
        else None,
        # (Some splits have fields of their own, but not these.)
        input_columns=fields.pop("input_columns", ()),
        interpolation=fields.pop("interpolation", None),
        fields=fields,
        white=white_of(entries, path),
    )


def read_entries(path, wanted, copies=1):
    """Arrays of an .npz file that memory can hold.

    Args:
        path: the file.
        wanted: names of the arrays to read, if they are there.
        copies: how often they will be in memory.

    Returns:
        Dict of arrays by name, and the sorted names of the others.

    Raises:
        ValueError: no such file, a damaged one, or one that memory cannot
            hold.
    """
    try:
        with opened(path) as content, zipfile.ZipFile(content) as file:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in file.infolist()
            }
            used = {n: m for n, m in members.items() if n in wanted}
            _check_memory(file, used.values(), path, copies)
            content.seek(0)
            with np.load(content, allow_pickle=False) as arrays:
                entries = {name: arrays[name] for name in used}
    except FileNotFoundError as error:
        raise ValueError(f"File not found: {path}.") from error
    except _NotThisFile:
        raise
    # Damaged files make zipfile, zlib and NumPy raise of any kind.
    except Exception as error:
        raise ValueError(
            f"{path} is not a readable .npz file: {error}"
        ) from error
    return entries, sorted(set(members) - set(used))


class _NotThisFile(ValueError):
    """A file that is not even tried."""


def _check_memory(file, members, path, copies):
    """Refuses arrays that say that they are larger than they can be.

    A few bytes can claim to expand to any size.
    """
    if len(file.infolist()) > _MOST_MEMBERS:
        raise _NotThisFile(
            f"{path} contains {len(file.infolist()):,} arrays; the limit is "
            f"{_MOST_MEMBERS:,}."
        )
    needed, there = 0, os.path.getsize(path)
    for member in members:
        # Members that claim the same bytes, or more than are in the file.
        there -= member.compress_size
        expansion = _EXPANSIONS.get(member.compress_type, math.inf)
        if there < 0 or member.file_size > expansion * member.compress_size:
            raise _NotThisFile(
                f"{path} is damaged: {member.filename} claims to contain "
                f"{member.file_size:,} bytes, which is not possible."
            )
        shape, dtype = _header(file, member)
        size = math.prod(shape) * dtype.itemsize
        if size > member.file_size and not dtype.hasobject:
            raise _NotThisFile(
                f"{path} is damaged: {member.filename} should contain {shape} "
                f"{dtype}, {size:,} bytes, but contains {member.file_size:,}."
            )
        needed += max(size, member.file_size)
    available = psutil.virtual_memory().available
    needed *= copies
    if needed > available:
        raise _NotThisFile(
            f"The arrays in {path} need {needed / 2**30:,.1f} GiB of "
            f"memory; {available / 2**30:,.1f} GiB are available. For data "
            "larger than memory, use a folder of images."
        )


def _header(file, member):
    """Shape and type of an array in an opened .npz file."""
    with file.open(member) as array:
        shape, _, dtype = read_header(array)
        return shape, dtype


def _texts(entries, entry, path):
    """A list of names; empty if there is none."""
    array = entries.get(entry, np.array([], str))
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise ValueError(
            f"{entry} in {path} must be a list of strings; got {array.dtype} "
            f"{array.shape}."
        )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "surrogateescape")
    return tuple(str(name) for name in array)


def white_of(entries, path):
    """The value of a white pixel in entries of `read_entries`, or None.

    Raises:
        ValueError: it is not one number.
    """
    white = entries.get("white")
    if white is None:
        return None
    if white.size != 1 or white.dtype.kind not in "uif":
        raise ValueError(
            f"white in {path} must be one number, the value of a white pixel; "
            f"got {white.dtype} {white.shape}."
        )
    return white.item()


def _fields(entries, path):
    """The fields of the source that `dump_arrays` wrote, as they were."""
    if "origin" not in entries:
        return {}
    try:
        origin = json.loads(str(entries["origin"]))
        unknown = set(origin) - set(_ORIGIN)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"origin in {path} was not written by dump_arrays: {error}"
        ) from error
    if unknown:
        raise ValueError(
            f"origin in {path} was not written by dump_arrays: it contains "
            f"{listed(sorted(unknown))}."
        )
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in origin.items()
    }


def dump_arrays(path: Path, dataset: OpenSetDataset) -> None:
    """Writes an experiment's data as one file that `load_npz_arrays` reads.

    Loaded again, it gives the same `OpenSetDataset`: the same images in the
    same parts, classes, name, split family and trial. So a machine that has
    neither TensorFlow nor the data sets can train it.

    Args:
        path: path of the file, ending in ".npz"; replaced if it exists.
        dataset: `OpenSetDataset`.

    Raises:
        ValueError: the path does not end in ".npz".

    Example:

    >>> import os, tempfile
    >>> from cac_tf.data import load_open_set_dataset
    >>> digits = load_open_set_dataset("digits", trial=2)
    >>> path = os.path.join(tempfile.mkdtemp(), "digits2.npz")
    >>> dump_arrays(path, digits)
    >>> again = load_open_set_dataset(path)
    >>> again.name, again.trial, again.counts == digits.counts
    ('digits', 2, True)
    """
    if not os.fspath(path).endswith(".npz"):
        # NumPy would add it, to the temporary name.
        raise ValueError(f"The path must end in .npz; got {path}.")
    if dataset.kind_of_inputs == "texts":
        raise ValueError(
            "Texts cannot be dumped as arrays: copy their table instead."
        )
    num_known = len(dataset.class_names)
    known, unknown = dataset.known_test, dataset.unknown_test
    origin = {name: getattr(dataset, name) for name in _ORIGIN}
    negatives = dataset.negatives.images
    optional = {"x_negatives": negatives[:]} if len(negatives) else {}
    if dataset.holds_images:
        optional["white"] = WHITE
    if dataset.validation.size:
        optional["x_validation"] = dataset.validation.images[:]
        optional["y_validation"] = dataset.validation.labels
    with atomic_files.replacing(path) as temporary:
        np.savez(
            temporary,
            **optional,
            x_train=dataset.train.images[:],
            y_train=dataset.train.labels,
            x_test=np.concatenate([known.images[:], unknown.images[:]]),
            y_test=np.r_[known.labels, unknown.labels + num_known],
            class_names=[*dataset.class_names, *dataset.unknown_class_names],
            known_classes=list(dataset.class_names),
            origin=json.dumps(origin),
        )


def origin_of(path: Path) -> str | None:
    """Name of the data set that `dump_arrays` wrote to a file, or None.

    Reads nothing else, and raises nothing.
    """
    try:
        entries, _ = read_entries(path, {"origin"})
        return json.loads(str(entries["origin"]))["name"]
    except Exception:  # Loading the file will say what is wrong.
        return None


def _examples(entries, part, path):
    images, labels = entries.get(f"x_{part}"), entries.get(f"y_{part}")
    if images is None and labels is None:
        return None
    if images is None or labels is None:
        raise ValueError(f"{path} must contain both x_{part} and y_{part}.")
    images = _images(images, f"x_{part}", path)
    if labels.ndim == 2 and labels.shape[0] == 1:
        labels = labels[0]
    try:
        labels = check_labels(labels, _LARGEST_ID + 1)
    except ValueError as error:
        raise ValueError(f"y_{part} in {path}: {error}") from error
    if len(labels) != len(images):
        raise ValueError(
            f"y_{part} in {path} must contain one class id per input, "
            f"({len(images)},); got {labels.shape}."
        )
    return Examples(images, labels)


def _images(images, entry, path):
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim not in (2, 4) or images.dtype.kind not in "buif":
        raise ValueError(
            f"{entry} in {path} must be numbers of shape (n, height, width) "
            "or (n, height, width, channels) for images, or (n, D) for "
            f"vectors; got {images.dtype} {images.shape}."
        )
    if 0 in images.shape[1:]:
        raise ValueError(
            f"The inputs {entry} in {path} are empty: their shape is "
            f"{images.shape[1:]}."
        )
    if images.ndim == 2:
        return finite_rows(images, f"{entry} in {path}")
    return images
