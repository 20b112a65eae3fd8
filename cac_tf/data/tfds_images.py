# SPDX-License-Identifier: Apache-2.0
"""Image classification data sets of TensorFlow Datasets."""

import typing

import numpy as np
import PIL.Image

from cac_tf.data.open_set_dataset import Examples


class TfdsImages(typing.NamedTuple):
    """What a TFDS data set holds; `test` may be None."""

    class_names: tuple
    train: Examples
    test: Examples | None
    notes: tuple


def load_tfds_images(name, data_dir=None, image_size=None):
    """Reads the train and test splits of a TFDS data set into memory.

    Args:
        name: any TFDS name whose features have an `image` and a `label`.
        data_dir: TFDS directory; by default TFDS' own (`TFDS_DATA_DIR`).
        image_size: height and width to resample to; None keeps the images'
            own size, which must then be the same for all.

    Returns:
        `TfdsImages`; images uint8. `test` is the split "test", else
        "validation", else None.

    Raises:
        ValueError: an unknown name, no `image` or `label`, images of
            different sizes without `image_size`, or data that are not there
            and cannot be downloaded.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ValueError(
            f"{name!r} is taken for a TFDS data set (it is not digits, folder "
            "or a path ending in .npz), and for these tensorflow-datasets and "
            "tensorflow must be installed."
        ) from error
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
        raise ValueError(
            f"TFDS data set {name!r} is not in {builder.data_dir} and could "
            f"not be downloaded ({type(error).__name__}). Put a prepared "
            "copy there, or pass --data_dir (or set TFDS_DATA_DIR) to a TFDS "
            "directory that has one."
        ) from error
    splits = builder.info.splits
    test_split = next((s for s in ("test", "validation") if s in splits), None)
    notes = []
    if test_split == "validation":
        notes.append("the split 'validation' serves as test data")
    return TfdsImages(
        class_names=tuple(features["label"].names),
        train=_read(builder, "train", image_size),
        test=_read(builder, test_split, image_size) if test_split else None,
        notes=tuple(notes),
    )


def _read(builder, split, image_size):
    import tensorflow_datasets as tfds

    images, labels = [], []
    for example in tfds.as_numpy(builder.as_dataset(split=split)):
        image = example["image"]
        if image_size is not None and image.shape[:2] != (image_size,) * 2:
            picture = PIL.Image.fromarray(
                image[..., 0] if image.shape[-1] == 1 else image
            ).resize((image_size, image_size), PIL.Image.Resampling.BILINEAR)
            image = np.asarray(picture).reshape(image_size, image_size, -1)
        images.append(image)
        labels.append(example["label"])
    if min(labels) < 0:
        raise ValueError(
            f"The split {split!r} of {builder.name} has examples without a "
            "label."
        )
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise ValueError(
            f"The images of {builder.name} differ in shape; pass --image_size."
        )
    return Examples(np.stack(images), np.array(labels, "int64"))
