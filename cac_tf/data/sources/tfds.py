# SPDX-License-Identifier: Apache-2.0
"""Whatever else TensorFlow Datasets has, with an image and a label."""

from cac_tf.annotations import Path
from cac_tf.data import tfds_images
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register


@register
class Tfds(DataSource):
    """TFDS, for every name that no other source takes."""

    NAME = "tfds"
    TAKES = "the name of another TFDS data set with an image and a label"
    OPTIONS = ("data_dir", "image_size", "stream")
    DATA_DIR_IS_OF_TFDS = True
    IS_FALLBACK = True

    def takes(self, dataset):
        return True

    def load(self, dataset, classes, data_dir, image_size, stream):
        builder = tfds_images.prepared_builder(dataset, data_dir)
        # Before images are decoded.
        classes.ids(tfds_images.class_names(builder))
        return _read(builder, image_size, stream)


def load_tfds_images(
    name: str,
    data_dir: Path | None = None,
    image_size: int | None = None,
    stream: bool | None = None,
) -> LabelledParts:
    """Reads the train and test splits of a TFDS data set.

    Args:
        name: any TFDS name whose features have an `image` and a `label`.
        data_dir: TFDS directory; by default TFDS' own (`TFDS_DATA_DIR`).
        image_size: height and width to resample to; None keeps the images'
            own size, which must then be the same for all.
        stream: as in `tfds_images.read_split`.

    Returns:
        `LabelledParts`; images uint8. `test` is the split "test", else
        "validation", else None.

    Raises:
        ValueError: an unknown name, no `image` or `label`, images of
            different sizes without `image_size`, or data that are damaged, or
            missing and cannot be downloaded.
    """
    builder = tfds_images.prepared_builder(name, data_dir)
    return _read(builder, image_size, stream)


def _read(builder, image_size, stream):
    test_split = tfds_images.test_split(builder)
    notes = ()
    if test_split == "validation":
        notes = ("the split 'validation' serves as test data",)
    train, test = (
        split
        and tfds_images.read_split(builder, split, None, image_size, stream)
        for split in ("train", test_split)
    )
    return LabelledParts(
        tfds_images.class_names(builder),
        train,
        test=test,
        notes=notes,
        white=WHITE,
    )
