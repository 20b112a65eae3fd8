# SPDX-License-Identifier: Apache-2.0
"""Image classification data sets of TensorFlow Datasets."""

import typing

import numpy as np

from cac_tf.data.image_file import read_image
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.data.streamed_images import exceeds_memory

_FILES_AT_ONCE = 1024


class TfdsImages(typing.NamedTuple):
    """What a TFDS data set holds; `test` may be None."""

    class_names: tuple
    train: Examples
    test: Examples | None
    notes: tuple


def load_tfds_images(name, data_dir=None, image_size=None, stream=None):
    """Reads the train and test splits of a TFDS data set.

    Args:
        name: any TFDS name whose features have an `image` and a `label`.
        data_dir: TFDS directory; by default TFDS' own (`TFDS_DATA_DIR`).
        image_size: height and width to resample to; None keeps the images'
            own size, which must then be the same for all.
        stream: as in `read_split`.

    Returns:
        `TfdsImages`; images uint8. `test` is the split "test", else
        "validation", else None.

    Raises:
        ValueError: an unknown name, no `image` or `label`, images of
            different sizes without `image_size`, or data that are damaged,
            or not there and cannot be downloaded.
    """
    builder = prepared_builder(name, data_dir)
    splits = builder.info.splits
    test_split = next((s for s in ("test", "validation") if s in splits), None)
    notes = []
    if test_split == "validation":
        notes.append("the split 'validation' serves as test data")
    options = {"image_size": image_size, "stream": stream}
    return TfdsImages(
        class_names=class_names(builder),
        train=read_split(builder, "train", **options),
        test=read_split(builder, test_split, **options) if test_split else None,
        notes=tuple(notes),
    )


def prepared_builder(name, data_dir=None):
    """The TFDS builder of an image classification set, its data prepared.

    Raises:
        ValueError: as `load_tfds_images`.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ValueError(
            f"{name!r} is taken for a TFDS data set (it is not digits, folder "
            "or a path ending in .npz), and for these tensorflow-datasets and "
            "tensorflow must be installed."
        ) from error
    # TFDS finds the name once the module was imported.
    import cac_tf.data.tiny_imagenet  # noqa: F401

    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        raise ValueError(
            f"TFDS has no data set {name!r} (nor is it digits, folder or "
            f"npz). {str(error).splitlines()[0]}"
        ) from error
    features = builder.info.features
    if "image" not in features or "label" not in features:
        raise ValueError(
            f"TFDS data set {name!r} has the features {sorted(features)}; an "
            "'image' and a 'label' are needed."
        )
    if not isinstance(features["label"], tfds.features.ClassLabel):
        raise ValueError(
            f"The label of TFDS data set {name!r} is no class label, but "
            f"{features['label']!r}."
        )
    try:
        builder.download_and_prepare()
    except Exception as error:
        raise ValueError(_not_there(builder, error)) from error
    return builder


def _not_there(builder, error):
    lines = [
        f"TFDS data set {builder.name!r} is not in {builder.data_dir} and "
        f"could not be made ({type(error).__name__}: {error}). Without a "
        "network, put a prepared copy there (dataset_info.json, "
        f"features.json and {builder.name}-<split>.tfrecord-* from a machine "
        "that has it), or pass --data_dir (or set TFDS_DATA_DIR) to a TFDS "
        "directory that holds one."
    ]
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        text = " ".join(builder.MANUAL_DOWNLOAD_INSTRUCTIONS.split())
        lines.append(f"Or the source itself: {text}")
    return " ".join(lines)


def class_names(builder):
    """Names of the classes of a prepared TFDS data set."""
    return tuple(builder.info.features["label"].names)


def read_split(builder, split, classes=None, image_size=None, stream=None):
    """Reads a split of a prepared TFDS data set.

    Args:
        builder: of `prepared_builder`.
        split: name of the split.
        classes: ids of the classes to read; None for all.
        image_size: height and width to resample to; None keeps the images'
            own.
        stream: whether to keep the images encoded and decode them when they
            are used; None decides by the memory that they would need.

    Returns:
        `Examples`, in the order of the files.

    Raises:
        ValueError: there is no such split, its files are damaged, an example
            has no label, or the images differ in size without `image_size`.
    """
    if split not in builder.info.splits:
        raise ValueError(
            f"{builder.data_dir} has no split {split!r}; it has: "
            f"{', '.join(builder.info.splits)}."
        )
    sources, labels = _encoded(builder, split, classes)
    channels = 1 if builder.info.features["image"].shape[-1] == 1 else 3
    if stream is None:
        size = image_size or builder.info.features["image"].shape[0]
        stream = bool(size) and exceeds_memory(len(sources), size, channels)
    if stream:
        size = image_size or read_image(sources[0])[0].shape[0]
        images = StreamedImages(sources, size, channels)
        return Examples(images, labels)
    decoded = [read_image(s, image_size, channels)[0] for s in sources]
    if len({image.shape for image in decoded}) > 1:
        raise ValueError(
            f"The images of {builder.name} differ in shape; pass --image_size."
        )
    return Examples(np.stack(decoded), labels)


def read_numbers(builder, split):
    """The number of each example in the published data set, and its label.

    Args:
        builder: of `prepared_builder`, with an "id" that ends in a number.
        split: name of the split.

    Returns:
        Two (n,) int64 arrays, in the order of the files, as `read_split`.
    """
    import tensorflow_datasets as tfds

    dataset = builder.as_dataset(
        split=split, decoders={"image": tfds.decode.SkipDecoding()}
    ).map(lambda example: (example["id"], example["label"]))
    batches = list(tfds.as_numpy(dataset.batch(_FILES_AT_ONCE)))
    ids = np.concatenate([batch[0] for batch in batches])
    numbers = [int(text.decode().rsplit("_", 1)[-1]) for text in ids]
    return np.array(numbers), np.concatenate([batch[1] for batch in batches])


def _encoded(builder, split, classes):
    """The files of a split as bytes, and their labels."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    dataset = builder.as_dataset(
        split=split, decoders={"image": tfds.decode.SkipDecoding()}
    ).map(lambda example: (example["image"], example["label"]))
    if classes is not None:
        wanted = tf.constant(list(classes), tf.int64)
        dataset = dataset.filter(
            lambda image, label: tf.reduce_any(label == wanted)
        )
    sources, labels = [], []
    try:
        # One at a time, the calls would take longer than the decoding.
        for batch in tfds.as_numpy(dataset.batch(_FILES_AT_ONCE)):
            sources += batch[0].tolist()
            labels += batch[1].tolist()
    except tf.errors.DataLossError as error:
        raise ValueError(
            f"A file of the split {split!r} in {builder.data_dir} is cut off "
            "or damaged. Delete that folder and prepare it again (or copy it "
            f"again). {str(error).splitlines()[0]}"
        ) from error
    expected = builder.info.splits[split].num_examples
    if classes is None and len(sources) != expected:
        raise ValueError(
            f"The split {split!r} in {builder.data_dir} has {len(sources)} "
            f"examples; its dataset_info.json says {expected}. A file is "
            "missing or was replaced."
        )
    if not sources:
        raise ValueError(
            f"The split {split!r} in {builder.data_dir} has no example"
            + (" of the classes asked for." if classes is not None else ".")
        )
    if min(labels) < 0:
        raise ValueError(
            f"The split {split!r} of {builder.name} has examples without a "
            "label."
        )
    return sources, np.array(labels, "int64")
