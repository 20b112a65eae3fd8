# SPDX-License-Identifier: Apache-2.0
"""Images in folders: one sub-folder per class."""

import collections
import pathlib

import numpy as np
import tqdm

from cac_tf.data.image_file import read_image
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.open_set_dataset import listed
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.data.streamed_images import exceeds_memory
from cac_tf.data.streamed_images import file_digest
from cac_tf.labels import check_class_names

_IMAGE_SIZE = 32


@register
class ImageFolder(DataSource):
    """The folder `data_dir`, with one sub-folder per class."""

    NAME = "folder"
    DATASETS = (NAME,)
    TAKES = "folder (of images, see data_dir)"
    OPTIONS = ("data_dir", "image_size", "strict", "stream")

    def load(self, dataset, classes, data_dir, image_size, strict, stream):
        if data_dir is None:
            raise ValueError(
                f"dataset={dataset!r} needs data_dir: the folder, with one "
                "sub-folder of images per class."
            )
        # Before images are decoded.
        names = folder_classes(data_dir)
        ids = classes.ids(names)
        _check_there_are_files(data_dir, names, ids)
        size = _IMAGE_SIZE if image_size is None else image_size
        return load_image_folder(data_dir, size, strict, stream)


def _class_folders(folder):
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def folder_classes(data_dir):
    """Names of the classes in a folder of images, in alphabetical order.

    Raises:
        ValueError: the folder does not exist, cannot be read or holds no
            class, or a class whose name is not valid UTF-8.
    """
    root = pathlib.Path(data_dir)
    if not root.is_dir():
        raise ValueError(f"There is no folder {data_dir}.")
    parts = _parts(root)
    names = {f.name for part in parts.values() for f in _class_folders(part)}
    if not names:
        raise ValueError(
            f"{data_dir} holds no sub-folder. Expected one sub-folder per "
            "class, or train/ and test/ with the classes inside."
        )
    names = tuple(sorted(names))
    check_class_names(names, data_dir)
    return names


def _check_there_are_files(data_dir, class_names, ids):
    """Refuses classes to train on that have no file at all."""
    root = _parts(pathlib.Path(data_dir))["train"]
    for chosen in (ids.known, ids.negative):
        empty = [
            class_names[i]
            for i in chosen
            if next(image_files(root / class_names[i]), None) is None
        ]
        if empty:
            raise ValueError(
                f"These classes of {data_dir} have no training image: "
                f"{listed(empty)}."
            )


def image_files(folder):
    """The files of a folder at any depth, in any order; hidden ones are not."""
    return (
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def _parts(root):
    """The folders that hold classes: {"train": ..., "test": ...} or all."""
    if (root / "train").is_dir() and (root / "test").is_dir():
        parts = {"train": root / "train", "test": root / "test"}
        if (root / "validation").is_dir():
            parts["validation"] = root / "validation"
        return parts
    return {"train": root}


def load_image_folder(data_dir, image_size=32, strict=False, stream=None):
    """Reads all images of a folder, as RGB of one size.

    Either `data_dir/<class>/*`, or `data_dir/train/<class>/*`,
    `data_dir/test/<class>/*` and optionally `data_dir/validation/<class>/*`;
    a class may be only in test. Grey images become RGB, an alpha channel is
    dropped, other sizes are resampled (bilinear, antialiased) to a square;
    `notes` says how many.

    Args:
        data_dir: the folder.
        image_size: height and width of the images returned.
        strict: whether a file that is not a readable image is an error;
            otherwise it is skipped and named in `notes`.
        stream: whether to decode images each time they are used, instead of
            keeping them in memory; None decides by the memory that they
            would need. Every file is read once here in either case.

    Returns:
        `LabelledParts`; images uint8 (n, image_size, image_size, 3), an array
        or `StreamedImages`; labels are positions in `class_names`, which are
        in alphabetical order.

    Raises:
        ValueError: no such folder, no class in it, or an unreadable file
            with `strict`.

    Example:

    >>> import os, tempfile, PIL.Image
    >>> folder = tempfile.mkdtemp()
    >>> for name in ("cat", "dog"):
    ...     os.mkdir(os.path.join(folder, name))
    ...     path = os.path.join(folder, name, "1.png")
    ...     PIL.Image.new("L", (40, 30)).save(path)
    >>> images = load_image_folder(folder)
    >>> images.class_names, images.train.images.shape
    (('cat', 'dog'), (2, 32, 32, 3))
    >>> images.notes[0]
    '2 images in grey were converted to RGB, 32x32'
    """
    if image_size < 1:
        raise ValueError(f"image_size must be at least 1; got {image_size}.")
    class_names = folder_classes(data_dir)
    conversions = collections.Counter()
    skipped = []
    parts = {}
    for part, folder in _parts(pathlib.Path(data_dir)).items():
        files = [
            (path, class_names.index(class_folder.name))
            for class_folder in _class_folders(folder)
            for path in sorted(image_files(class_folder))
        ]
        is_streamed = stream
        if stream is None:
            is_streamed = exceeds_memory(len(files), image_size, 3)
        images, labels, digests = [], [], []
        for path, label in tqdm.tqdm(
            files, desc=f"reading {part}", unit="image", leave=False
        ):
            try:
                image, kinds = read_image(path, image_size)
            except Exception as error:  # Pillow's decoders raise of any kind.
                if strict:
                    raise ValueError(
                        f"{path} cannot be read as an image: {error}"
                    ) from error
                skipped.append(str(path.relative_to(data_dir)))
                continue
            images.append(path if is_streamed else image)
            if is_streamed:
                # While the system still has the file in memory.
                digests.append(file_digest(path))
            labels.append(label)
            conversions.update(kinds)
        if is_streamed:
            images = StreamedImages(images, image_size, digests=digests)
        else:
            shape = (len(images), image_size, image_size, 3)
            images = np.array(images, "uint8").reshape(shape)
        parts[part] = Examples(images, np.array(labels, "int64"))
    return LabelledParts(
        class_names=class_names,
        train=parts["train"],
        validation=parts.get("validation"),
        test=parts.get("test"),
        notes=tuple(_notes(conversions, skipped, image_size)),
        white=WHITE,
    )


def _notes(conversions, skipped, image_size):
    for kind, count in sorted(conversions.items()):
        yield (
            f"{count} images {kind} were converted to RGB, "
            f"{image_size}x{image_size}"
        )
    if skipped:
        shown = ", ".join(skipped[:10])
        more = f" and {len(skipped) - 10} more" if len(skipped) > 10 else ""
        yield (
            f"{len(skipped)} files are not readable images and were skipped: "
            f"{shown}{more}"
        )
