# SPDX-License-Identifier: Apache-2.0
"""Reading image classification data sets of TensorFlow Datasets."""

import functools
import glob
import operator
import os

import numpy as np

from cac_tf.data.image_file import read_image
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.reachability import unreachable
from cac_tf.data.record_files import DamagedError
from cac_tf.data.record_files import read_records
from cac_tf.data.record_files import whole_records
from cac_tf.data.sources.source import names_of_datasets
from cac_tf.data.sources.source import what_is_taken
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.data.streamed_images import exceeds_memory
from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.registry import did_you_mean

_AT_ONCE = 1024


def _refuse_a_folder(name, error):
    if os.path.isdir(name):
        raise ValueError(
            f"{name!r} is a folder, not the name of a data set. To use its "
            f"images: dataset='folder', data_dir={name!r}."
        ) from error


def prepared_builder(name, data_dir=None):
    """The TFDS builder of an image classification set, with prepared data.

    Raises:
        ValueError: an unknown name, no `image` or `label`, or data that are
            missing and cannot be downloaded.
    """
    builder = builder_of(name, data_dir)
    check_label(builder)
    prepare(builder)
    return builder


def check_label(builder, label="label", image="image"):
    """Raises ValueError unless there are images and their classes."""
    import tensorflow_datasets as tfds

    name, features = builder.name, builder.info.features
    if image not in features or label not in features:
        raise ValueError(
            f"The TFDS data set {name!r} has the features {sorted(features)}; "
            f"it needs images in {image!r} and a {label!r}."
        )
    if not isinstance(features[label], tfds.features.ClassLabel):
        raise ValueError(
            f"The label of the TFDS data set {name!r} is not a class label "
            f"but {features[label]!r}."
        )


def builder_of(name, data_dir=None):
    """The TFDS builder of a data set, which may not be there yet.

    Raises:
        ValueError: an unknown name, or TFDS is not installed.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        _refuse_a_folder(name, error)
        raise ValueError(
            f"{name!r} is assumed to be a TFDS data set, which needs "
            "tensorflow-datasets and tensorflow: pip install "
            f"'cac-tf[datasets]'. Available data: {what_is_taken()}."
        ) from error
    # TFDS finds the name once the module was imported.
    import cac_tf.data.tiny_imagenet  # noqa: F401

    try:
        return tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        _refuse_a_folder(name, error)
        raise ValueError(_no_such_name(name)) from error
    except Exception as error:  # A name with a version or settings in it.
        _refuse_a_folder(name, error)
        raise ValueError(
            f"{name!r} is not a TFDS data set: {str(error).splitlines()[0]} "
            f"Available: {what_is_taken()}."
        ) from error


def prepare(builder):
    """Downloads the data of a builder, if they are not there.

    Raises:
        ValueError: they are missing and cannot be downloaded.
    """
    away = _unreachable(builder)
    if away:
        raise ValueError(
            _not_there(builder, f"no connection to {', '.join(away)}")
        )
    try:
        builder.download_and_prepare()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(_not_there(builder, reason)) from error


def _no_such_name(name):
    import tensorflow_datasets as tfds

    names = [
        *names_of_datasets(),
        *tfds.list_builders(with_community_datasets=False),
    ]
    return (
        f"TFDS has no data set {name!r}{did_you_mean(name, names)} Available: "
        f"{what_is_taken()}."
    )


def _unreachable(builder):
    """The servers that are needed to make a data set and do not answer.

    TFDS would try them again for minutes.
    """
    if os.path.exists(builder.data_dir):
        return []
    downloads = os.path.join(builder.data_dir_root, "downloads")
    if os.path.exists(os.path.join(downloads, "manual")):
        return []
    urls = builder.url_infos or dict.fromkeys(getattr(builder, "URLS", ()))
    there = [
        path
        for pattern in ("*", os.path.join("*", "*"))
        for path in glob.glob(os.path.join(glob.escape(downloads), pattern))
        if os.path.isfile(path)
    ]
    sizes = {os.path.getsize(path) for path in there}
    suffixes = {os.path.splitext(path)[1] for path in there}

    def is_there(url, info):
        if info is None:
            return os.path.splitext(url)[1] in suffixes
        return info.size in sizes

    return unreachable(
        url for url, info in urls.items() if not is_there(url, info)
    )


def _not_there(builder, reason):
    lines = [
        f"The TFDS data set {builder.name!r} is not in {builder.data_dir} and "
        f"could not be prepared ({reason}). Without a network, copy it there "
        "from a machine that has it (dataset_info.json, features.json and "
        f"{builder.name}-<split>.tfrecord-*), or set data_dir (or "
        "TFDS_DATA_DIR) to a TFDS directory that contains it."
    ]
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        text = " ".join(builder.MANUAL_DOWNLOAD_INSTRUCTIONS.split())
        lines.append(f"Or provide the source itself: {text}")
    return " ".join(lines)


def class_names(builder, label="label"):
    """Names of the classes of a prepared TFDS data set."""
    return tuple(builder.info.features[label].names)


def test_split(builder):
    """Name of the split with test images, or None."""
    splits = builder.info.splits
    return next((s for s in ("test", "validation") if s in splits), None)


def read_split(
    builder,
    split,
    classes=None,
    image_size=None,
    stream=None,
    channels=None,
    interpolation=INTERPOLATIONS[0],
    image="image",
    label="label",
):
    """Reads a split of a prepared TFDS data set.

    Args:
        builder: of `prepared_builder`.
        split: name of the split.
        classes: ids of the classes to read; None for all.
        image_size: height and width to resample to; None keeps the images'
            own.
        stream: whether to keep the images encoded and decode them when they
            are used; None decides by the memory that they would need.
        channels: 3 for RGB, 1 for grey; None keeps those of the data set.
        interpolation: "bilinear" or "bicubic".
        image, label: names of the features.

    Returns:
        `Examples`, in the order of the files.

    Raises:
        ValueError: there is no such split, its files are damaged, an example
            has no label, or the images differ in size without `image_size`
            (with `stream`, also if they are not square).
    """
    _check_there_is(split, builder)
    if channels is None:
        is_grey = builder.info.features[image].shape[-1] == 1
        channels = 1 if is_grey else 3
    height, width, _ = builder.info.features[image].shape
    size = image_size or (height if height == width else None)
    if stream and not size:
        raise ValueError(
            f"The images of {builder.name} are not all square and of the same "
            "size, which stream=True requires; set image_size."
        )

    def is_streamed(count):
        if stream is None:
            return bool(size) and exceeds_memory(count, size, channels)
        return stream

    count, kind = (
        builder.info.splits[split].num_examples,
        builder.info.file_format,
    )
    if size and is_streamed(count) and kind.value == "tfrecord":
        sources, labels, facts = _on_disk(
            builder, split, image, label, size, channels, interpolation
        )
        if classes is not None:
            rows = np.flatnonzero(np.isin(labels, list(classes)))
            sources, labels, facts = (x[rows] for x in (sources, labels, facts))
    else:
        sources, labels = read_encoded(builder, split, classes, image, label)
        facts = None
    _check_labels(builder, split, classes, labels)
    if is_streamed(len(sources)):
        images = StreamedImages(sources, size, channels, facts, interpolation)
        return Examples(images, labels)
    form = (image_size, channels, interpolation)
    decoded = [read_image(source, *form)[0] for source in sources]
    if len({image.shape for image in decoded}) > 1:
        raise ValueError(
            f"The images of {builder.name} have different shapes; set "
            "image_size."
        )
    return Examples(np.stack(decoded), labels)


def _check_there_is(split, builder):
    if split not in builder.info.splits:
        raise ValueError(
            f"{builder.data_dir} has no split {split!r}; its splits are: "
            f"{', '.join(builder.info.splits)}."
        )


def _on_disk(builder, split, image, label, size, channels, interpolation):
    """The images of a split, which stay in its files; labels and facts."""
    paths = [os.fspath(p) for p in builder.info.splits[split].filepaths]
    try:
        return read_records(
            builder.data_dir,
            split,
            paths,
            [image],
            [label],
            size,
            channels,
            interpolation,
        )
    except DamagedError as error:
        raise ValueError(_damaged(builder, split, error)) from error


def read_numbers(builder, split):
    """The number of each example in the published data set, and its label.

    Args:
        builder: of `prepared_builder`, with an "id" that ends in a number.
        split: name of the split.

    Returns:
        Two (n,) int64 arrays, in the order of the files, as `read_split`.
    """

    read = read_features(builder, split, ["id", "label"])
    numbers = [int(text.decode().rsplit("_", 1)[-1]) for text in read["id"]]
    return np.array(numbers), read["label"]


def read_features(builder, split, names):
    """Features of a split, in the order of its files.

    Args:
        builder: of `prepare`.
        split: name of the split.
        names: of features that have a fixed shape; images are their files. A
            feature within another is a path of names, with "/" between them.

    Returns:
        Dict from a name to an (n, ...) array; texts are bytes.

    Raises:
        ValueError: there is no such split or no example in it, or a file is
            damaged.
    """
    _check_there_is(split, builder)
    batches = list(_batches(builder, split, names))
    if not batches:
        raise ValueError(
            f"The split {split!r} in {builder.data_dir} has no examples."
        )
    return {
        name: np.concatenate([batch[name] for batch in batches])
        for name in names
    }


def read_encoded(builder, split, classes=None, image="image", label="label"):
    """The image files of a split as bytes, in order, and their labels.

    Args:
        builder, split, classes, image, label: as in `read_split`.

    Returns:
        A list of n bytes, and an (n,) int64 array.

    Raises:
        ValueError: a file is damaged.
    """
    import tensorflow as tf

    wanted = None if classes is None else tf.constant(list(classes), tf.int64)

    def is_wanted(example):
        return tf.reduce_any(example[label] == wanted)

    sources, labels = [], []
    for batch in _batches(
        builder, split, [image, label], None if classes is None else is_wanted
    ):
        sources += batch[image].tolist()
        labels += batch[label].tolist()
    return sources, np.array(labels, "int64")


def _batches(builder, split, names, is_wanted=None):
    """Yields dicts of features, images encoded, in the order of the files."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    info = builder.info
    if info.file_format.value == "tfrecord":
        for path in info.splits[split].filepaths:
            _, problem = whole_records(path)
            if problem:
                raise ValueError(
                    _damaged(builder, split, f"{path}: {problem}.")
                )
    # (Names may have a "/" of their own.)
    paths = {n: [n] if n in info.features else n.split("/") for n in names}
    used = {path[0] for path in paths.values()}
    images = {
        name: tfds.decode.SkipDecoding()
        for name in used
        if isinstance(info.features[name], tfds.features.Image)
    }
    dataset = builder.as_dataset(
        split=split,
        decoders=tfds.decode.PartialDecoding(
            dict.fromkeys(used, True), decoders=images
        ),
        # One file after another, as records are numbered.
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    ).map(
        lambda example: {
            name: functools.reduce(operator.getitem, path, example)
            for name, path in paths.items()
        }
    )
    if is_wanted is not None:
        dataset = dataset.filter(is_wanted)
    try:
        # One at a time, the calls would take longer than the decoding.
        yield from tfds.as_numpy(dataset.batch(_AT_ONCE))
    except tf.errors.DataLossError as error:
        raise ValueError(_damaged(builder, split, error)) from error


def _damaged(builder, split, error):
    return (
        f"A file of the split {split!r} in {builder.data_dir} is truncated or "
        "damaged. Delete that folder and prepare (or copy) it again. "
        f"{str(error).splitlines()[0]}"
    )


def _check_labels(builder, split, classes, labels):
    expected = builder.info.splits[split].num_examples
    if classes is None and len(labels) != expected:
        raise ValueError(
            f"The split {split!r} in {builder.data_dir} has {len(labels)} "
            f"examples, but its dataset_info.json says {expected}. A file is "
            "missing or was replaced."
        )
    if not len(labels):
        raise ValueError(
            f"The split {split!r} in {builder.data_dir} has no examples"
            + (" of the requested classes." if classes is not None else ".")
        )
    if labels.min() < 0:
        raise ValueError(
            f"The split {split!r} of {builder.name} has examples without "
            "labels."
        )
