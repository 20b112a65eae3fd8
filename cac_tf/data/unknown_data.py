# SPDX-License-Identifier: Apache-2.0
"""Unknown test images from elsewhere, whatever their classes are."""

import collections
import os
import pathlib

import numpy as np

from cac_tf.annotations import Path
from cac_tf.counted import counted
from cac_tf.counted import were
from cac_tf.data import tfds_images
from cac_tf.data.image_facts import skipped_notes
from cac_tf.data.image_file import as_pixels
from cac_tf.data.image_file import read_image
from cac_tf.data.number_rows import finite_rows
from cac_tf.data.pixel_scale import on_one_scale
from cac_tf.data.sources.image_folder import image_files
from cac_tf.data.sources.npz_arrays import read_entries
from cac_tf.data.sources.npz_arrays import white_of
from cac_tf.hyperparameters import INTERPOLATIONS

KINDS = ("folder", "npz", "tfds")


def load_unknown_images(
    source: str,
    image_shape: tuple[int, ...],
    data_dir: Path | None = None,
    interpolation: str = INTERPOLATIONS[0],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Images of other data, in the form that a model takes.

    Their labels do not matter: to the model all of them are unknown. They are
    resampled (antialiased) and converted to its number of channels.

    Args:
        source: "folder:<path>", the image files of a folder at any depth;
            "npz:<path>", the array `x_test` or the only array of a file,
            (n, H, W) or (n, H, W, C) of any scale, and if need be `white`, the
            value of a white pixel; or "tfds:<name>", the split "test" of a
            TFDS data set, else "validation", else "train".
        image_shape: (height, width, channels), height and width equal; or
            another shape, and `source` is an .npz file with (n, *image_shape)
            numbers.
        data_dir: the TFDS directory.
        interpolation: "bilinear" or "bicubic".

    Returns:
        (n, height, width, channels) uint8 array, and a tuple of notes on what
        was converted or skipped.

    Raises:
        ValueError: another kind of source, no image, a file that is no such
            array, or a model that does not take square images of 1 or 3
            channels.

    Example:

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "noise.npz")
    >>> np.savez(path, np.random.default_rng(0).random((5, 28, 28)))
    >>> images, notes = load_unknown_images(f"npz:{path}", (8, 8, 3))
    >>> images.shape, images.dtype, notes[-1]
    ((5, 8, 8, 3), dtype('uint8'), '5 images of another size were converted')
    """
    kind, _, name = source.partition(":")
    if kind not in KINDS or not name:
        raise ValueError(
            "Unknown data must be given as folder:<path>, npz:<path> or "
            f"tfds:<name>; got {source!r}."
        )
    if not image_shape:
        raise ValueError(
            "Separate sets of unknown data must be images or vectors. For "
            "texts, add them to the table of the other texts, as a class "
            "that is not known."
        )
    if len(image_shape) != 3:
        return _vectors(kind, name, image_shape)
    height, width, channels = image_shape
    if height != width or channels not in (1, 3):
        raise ValueError(
            "Unknown images are converted to square images with 1 or 3 "
            f"channels; the model expects {tuple(image_shape)}."
        )
    if kind == "tfds":
        return _of_tfds(name, data_dir, height, channels, interpolation)
    found: collections.Counter[str] = collections.Counter()
    skipped: dict[str, str] = {}
    if kind == "npz":
        arrays, notes = _arrays(name)
        count = len(arrays)
        converted = (
            as_pixels(
                np.rint(one).astype("uint8"), height, channels, interpolation
            )
            for one in arrays
        )
    else:
        paths, notes, count = _files(name), (), -1
        form = (height, channels, interpolation)
        converted = _readable(paths, name, form, skipped)

    def readable():
        for pixels, kinds in converted:
            found.update(kinds)
            yield pixels

    kind_of_image = np.dtype(("uint8", tuple(image_shape)))
    images = np.fromiter(readable(), kind_of_image, count)
    if not images.size:
        raise ValueError(
            " ".join([f"{name} contains no images.", *skipped_notes(skipped)])
        )
    conversions = (
        f"{counted(count, 'image')} {what} {were(count)} converted"
        for what, count in sorted(found.items())
    )
    return images, (*notes, *conversions, *skipped_notes(skipped))


def _vectors(kind, path, shape):
    if kind != "npz":
        raise ValueError(
            f"The model expects inputs of shape {tuple(shape)}: give further "
            "unknown inputs as npz:<path>."
        )
    entries, others = read_entries(path, {"x_test"}, copies=2)
    if not entries and len(others) == 1:
        entries, _ = read_entries(path, set(others), copies=2)
    name, values = next(iter(entries.items()), ("", np.zeros(0)))
    if values.shape[1:] != tuple(shape) or not len(values):
        raise ValueError(
            f"{path} must contain numbers of shape (n, "
            f"{', '.join(map(str, shape))}) as x_test or as its only array; "
            f"it contains {', '.join(sorted({*entries, *others})) or 'none'}, "
            f"of shape {values.shape}."
        )
    return finite_rows(values, f"{name} in {path}"), ()


def _readable(paths, folder, form, skipped):
    """Yields what `read_image` gives; says in `skipped` of what it does not."""
    for path in paths:
        try:
            yield read_image(path, *form)
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            skipped[os.path.relpath(path, folder)] = problem


def _files(name):
    if not os.path.isdir(name):
        raise ValueError(f"Folder not found: {name}.")
    return sorted(image_files(pathlib.Path(name)))


def _arrays(path):
    # As they are, and as what is returned.
    entries, others = read_entries(path, {"x_test", "white"}, copies=2)
    white = white_of(entries, path)
    entries.pop("white", None)
    if not entries and len(others) == 1:
        entries, _ = read_entries(path, set(others), copies=2)
    name, images = next(iter(entries.items()), ("", np.zeros(0)))
    is_array_of_images = images.ndim == 3 or (
        images.ndim == 4 and images.shape[-1] in (1, 3)
    )
    if not is_array_of_images:
        raise ValueError(
            f"{path} must contain images as x_test or as its only array, (n, "
            "H, W) or (n, H, W, C) with 1 or 3 channels; it contains "
            f"{', '.join(sorted({*entries, *others})) or 'none'}"
            + (f", of shape {images.shape}." if entries else ".")
        )
    scaled, notes = on_one_scale({name: images}, white)
    return scaled[name], notes


def _of_tfds(name, data_dir, size, channels, interpolation):
    builder = tfds_images.prepared_builder(name, data_dir)
    split = tfds_images.test_split(builder) or "train"
    notes = () if split == "test" else (f"{name}: the split {split!r}",)
    examples = tfds_images.read_split(
        builder,
        split,
        image_size=size,
        stream=False,
        channels=channels,
        interpolation=interpolation,
    )
    return examples.images, notes
