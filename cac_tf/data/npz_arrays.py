# SPDX-License-Identifier: Apache-2.0
"""Images as NumPy arrays in one .npz file."""

import json
import os
import typing
import zipfile

import numpy as np

from cac_tf import atomic_files
from cac_tf.data.open_set_dataset import Examples

_PARTS = ("train", "validation", "test")


class NpzArrays(typing.NamedTuple):
    """What an .npz file holds; `validation` and `test` may be None."""

    class_names: tuple
    train: Examples
    validation: Examples | None
    test: Examples | None
    # Of a file that `dump_arrays` wrote, else empty: names of the known
    # classes, and name, split family, trial and class ids of the source.
    known_classes: tuple = ()
    origin: dict | None = None


def load_npz_arrays(path):
    """Reads `x_train`, `y_train` and what there is of the other parts.

    Entries: `x_train` (n, H, W, C) or (n, H, W) with values 0...255 and
    `y_train` (n,) class ids from 0; `x_validation`, `y_validation`,
    `x_test`, `y_test` likewise, optional; `class_names` optional, else the
    ids are the names.

    Args:
        path: the file.

    Returns:
        `NpzArrays`.

    Raises:
        ValueError: no such file, entries missing or of a wrong shape or
            type, labels that are no class ids, images that differ in shape.

    Example:

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "made.npz")
    >>> np.savez(path, x_train=np.zeros((4, 8, 8)), y_train=[0, 1, 2, 0])
    >>> arrays = load_npz_arrays(path)
    >>> arrays.train.images.shape, arrays.class_names, arrays.test
    ((4, 8, 8, 1), ('0', '1', '2'), None)
    """
    if not os.path.isfile(path):
        raise ValueError(f"There is no file {path}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            entries = {key: file[key] for key in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(f"{path} is no readable .npz file: {error}") from error
    if "x_train" not in entries or "y_train" not in entries:
        raise ValueError(
            f"{path} must hold x_train and y_train (and may hold x_test, "
            "y_test, x_validation, y_validation, class_names); it holds: "
            f"{', '.join(sorted(entries))}."
        )
    parts = {part: _examples(entries, part, path) for part in _PARTS}
    present = [examples for examples in parts.values() if examples is not None]
    shapes = {examples.images.shape[1:] for examples in present}
    if len(shapes) > 1:
        raise ValueError(
            f"The images in {path} differ in shape: {sorted(shapes)}."
        )
    num_classes = 1 + max(int(e.labels.max(initial=0)) for e in present)
    names = tuple(str(n) for n in entries.get("class_names", ()))
    if names and len(names) < num_classes:
        raise ValueError(
            f"{path} has {len(names)} class_names but labels up to "
            f"{num_classes - 1}."
        )
    return NpzArrays(
        class_names=names or tuple(str(i) for i in range(num_classes)),
        **parts,
        known_classes=tuple(str(n) for n in entries.get("known_classes", ())),
        origin=json.loads(str(entries.get("origin", "null"))),
    )


def dump_arrays(path, dataset):
    """Writes an experiment's data as one file that `load_npz_arrays` reads.

    Loaded again, it gives the same `OpenSetDataset`: the same images in the
    same parts, classes, name, split family and trial. So a machine that has
    neither TensorFlow nor the data sets can train it.

    Args:
        path: of the file, ending in ".npz"; replaced if it exists.
        dataset: `OpenSetDataset`.

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
    num_known = len(dataset.class_names)
    known, unknown = dataset.known_test, dataset.unknown_test
    origin = {
        "name": dataset.name,
        "split_family": dataset.split_family,
        "trial": dataset.trial,
        "class_ids": dataset.class_ids,
        "unknown_class_ids": dataset.unknown_class_ids,
    }
    with atomic_files.replacing(path) as temporary:
        np.savez(
            temporary,
            x_train=dataset.train.images[:],
            y_train=dataset.train.labels,
            x_validation=dataset.validation.images[:],
            y_validation=dataset.validation.labels,
            x_test=np.concatenate([known.images[:], unknown.images[:]]),
            y_test=np.r_[known.labels, unknown.labels + num_known],
            class_names=[*dataset.class_names, *dataset.unknown_class_names],
            known_classes=list(dataset.class_names),
            origin=json.dumps(origin),
        )


def origin_of(path):
    """Name of the data set that `dump_arrays` wrote to a file, or None.

    Reads nothing else, and raises nothing.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return json.loads(str(file["origin"]))["name"]
    except Exception:  # Whatever is wrong, loading the file will say.
        return None


def _examples(entries, part, path):
    images, labels = entries.get(f"x_{part}"), entries.get(f"y_{part}")
    if images is None and labels is None:
        return None
    if images is None or labels is None:
        raise ValueError(f"{path} must hold both x_{part} and y_{part}.")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.dtype.kind not in "uif":
        raise ValueError(
            f"x_{part} in {path} must be numbers of shape (n, height, width) "
            f"or (n, height, width, channels); got {images.dtype} "
            f"{images.shape}."
        )
    labels = labels.reshape(-1) if labels.ndim == 2 else labels
    if labels.shape != (len(images),):
        raise ValueError(
            f"y_{part} in {path} must hold one class id per image, "
            f"({len(images)},); got {labels.shape}."
        )
    if labels.dtype.kind not in "uif" or np.any(labels != np.floor(labels)):
        raise ValueError(f"y_{part} in {path} must be whole numbers.")
    if labels.min(initial=0) < 0:
        raise ValueError(f"y_{part} in {path} has a class id below 0.")
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        rows = np.flatnonzero(
            ~np.isfinite(images.reshape(len(images), -1)).all(axis=1)
        )
        raise ValueError(
            f"x_{part} in {path} holds NaN or infinity in images "
            f"{rows[:10].tolist()}."
        )
    return Examples(images, labels.astype("int64"))
