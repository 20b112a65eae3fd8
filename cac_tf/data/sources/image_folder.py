# SPDX-License-Identifier: Apache-2.0
"""Images in folders: one sub-folder per class."""

import os
import pathlib

import numpy as np

from cac_tf.annotations import Path
from cac_tf.data.image_file import is_name_of_image
from cac_tf.data.image_reading import ImageReading
from cac_tf.data.open_set_dataset import listed
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.labels import check_class_names

_PARTS = ("train", "test", "validation")


@register
class ImageFolder(DataSource):
    """The folder `data_dir`, with one sub-folder per class."""

    NAME = "folder"
    DATASETS = (NAME,)
    TAKES = "folder (of images, see data_dir)"
    OPTIONS = ("data_dir", "image_size", "interpolation", "strict", "stream")
    IMAGE_SIZE = 32

    def num_inputs(self, dataset, data_dir, **options):
        if data_dir is None:  # Loading it will say so.
            return 0
        return sum(1 for _ in image_files(data_dir))

    def load(
        self,
        dataset,
        classes,
        data_dir,
        image_size,
        interpolation,
        strict,
        stream,
    ):
        if data_dir is None:
            raise ValueError(
                f"dataset={dataset!r} needs data_dir: the folder that has one "
                "subfolder of images per class."
            )
        # Before images are decoded.
        names = folder_classes(data_dir)
        ids = classes.ids(names)
        _check_there_are_files(data_dir, names, ids)
        size = self.IMAGE_SIZE if image_size is None else image_size
        return load_image_folder(data_dir, size, strict, stream, interpolation)


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
        raise ValueError(f"Folder not found: {data_dir}.")
    parts = _parts(root)
    names = {f.name for part in parts.values() for f in _class_folders(part)}
    if not names:
        raise ValueError(
            f"{data_dir} has no subfolders. It needs one subfolder per class, "
            "or train/ and test/ with the classes inside."
        )
    return tuple(check_class_names(sorted(names), data_dir))


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
                f"These classes in {data_dir} have no training images: "
                f"{listed(empty)}."
            )


def image_files(folder):
    """Paths of files of a folder at any depth, in any order.

    Hidden files and folders are left out. Links are followed, but no folder is
    read twice. A link that leads nowhere is a file that cannot be read.

    Raises:
        OSError: a folder that cannot be read.
    """

    def refuse(error):
        # (A part need not have a folder of each class.)
        if not isinstance(error, FileNotFoundError):
            raise error

    seen = set()
    for parent, folders, files in os.walk(
        folder, onerror=refuse, followlinks=True
    ):
        status = os.stat(parent)
        identity = status.st_dev, status.st_ino
        if identity in seen:
            folders.clear()
            continue
        seen.add(identity)
        folders[:] = [name for name in folders if not name.startswith(".")]
        # Of a folder and a link to it, the folder is read.
        folders.sort(
            key=lambda name: os.path.islink(os.path.join(parent, name))
        )
        for name in files:
            path = os.path.join(parent, name)
            is_file = os.path.isfile(path) or not os.path.exists(path)
            if not name.startswith(".") and is_file:
                yield path


def _parts(root):
    """The folders that hold classes: {"train": ..., "test": ...} or all."""
    if (root / "train").is_dir() and (root / "test").is_dir():
        parts = [root / name for name in _PARTS if (root / name).is_dir()]
        classes = {f.name for part in parts for f in _class_folders(part)}
        others = [
            folder.name
            for folder in _beside_parts(root)
            if _holds_images(folder, classes)
        ]
        if others:
            raise ValueError(
                f"{root} contains train and test, but also "
                f"{', '.join(others)}. Next to train and test, only "
                "validation is allowed. If train and test are names of "
                "classes, move all class folders into a new folder train/, "
                "with no test/ next to it."
            )
        return {part.name: part for part in parts}
    return {"train": root}


def _beside_parts(root):
    return [f for f in _class_folders(root) if f.name not in _PARTS]


def _holds_images(folder, classes):
    """Whether it looks like a class, or like a part with these classes."""
    try:
        names = os.listdir(folder)
    except PermissionError:  # Such as lost+found.
        return False
    return not classes.isdisjoint(names) or any(map(is_name_of_image, names))


def load_image_folder(
    data_dir: Path,
    image_size: int = 32,
    strict: bool = False,
    stream: bool | None = None,
    interpolation: str = INTERPOLATIONS[0],
) -> LabelledParts:
    """Reads all images of a folder, as RGB of one size.

    Either `data_dir/<class>/*`, or `data_dir/train/<class>/*`,
    `data_dir/test/<class>/*` and optionally `data_dir/validation/<class>/*`;
    a class may be only in test. Grey images become RGB, an alpha channel is
    dropped, other sizes are resampled (antialiased) to a square; `notes` says
    how many.

    Args:
        data_dir: the folder.
        image_size: height and width of the images returned.
        strict: whether a file that is no image that is read is an error;
            otherwise it is skipped, and `notes` names it and says why.
        stream: whether to decode images each time they are used, instead of
            keeping them in memory; None decides by the memory that they
            would need. Each is read once here, and what was found is kept in
            `.cac_tf` of the folder: the next time, the files are only listed.
        interpolation: "bilinear" or "bicubic".

    Returns:
        `LabelledParts`; images uint8 (n, image_size, image_size, 3), an array
        or `StreamedImages`; labels are positions in `class_names`, which are
        in alphabetical order.

    Raises:
        ValueError: no such folder, no class in it, a file that the system
            does not read, or with `strict` one that is no image.

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
    '2 images in grayscale were converted to RGB, 32x32'
    """
    if image_size < 1:
        raise ValueError(f"image_size must be at least 1; got {image_size}.")
    class_names = folder_classes(data_dir)
    reading = ImageReading(data_dir, image_size, strict, stream, interpolation)
    root = pathlib.Path(data_dir)
    folders = _parts(root)
    parts = {
        part: reading.examples(part, *_files_of(data_dir, folder, class_names))
        for part, folder in folders.items()
    }
    others = [f.name for f in _beside_parts(root)] if "test" in folders else ()
    left_out = f"folders next to train and test are ignored: {listed(others)}"
    return LabelledParts(
        class_names=class_names,
        train=parts["train"],
        validation=parts.get("validation"),
        test=parts.get("test"),
        notes=(*reading.notes(), *((left_out,) if others else ())),
        white=WHITE,
    )


def _files_of(data_dir, folder, class_names):
    """Paths in a part, (n,) positions of their classes, and their names."""
    paths, labels = [], []
    positions = {name: i for i, name in enumerate(class_names)}
    for class_folder in _class_folders(folder):
        found = sorted(image_files(class_folder), key=_by_parts)
        paths += found
        labels += [positions[class_folder.name]] * len(found)
    names = [os.path.relpath(path, data_dir) for path in paths]
    return paths, np.array(labels, "int64"), names


def _by_parts(path):
    return path.split(os.sep)
