# SPDX-License-Identifier: Apache-2.0
"""Whatever else TensorFlow Datasets has, with an image and a label."""

from cac_tf.data import tfds_images
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register


@register
class Tfds(DataSource):
    """TFDS, for every name that no other source takes.

    Images are uint8. `test` is the split "test", else "validation", else none.
    """

    NAME = "tfds"
    TAKES = "the name of another TFDS data set with an image and a label"
    OPTIONS = ("data_dir", "image_size", "interpolation", "stream")
    DATA_DIR_IS_OF_TFDS = True
    IS_FALLBACK = True

    def takes(self, dataset):
        return True

    def load(self, dataset, classes, data_dir, **options):
        builder = tfds_images.prepared_builder(dataset, data_dir)
        # Before images are decoded.
        names = tfds_images.class_names(builder)
        classes.ids(names)
        test_split, notes = tfds_images.test_split(builder), ()
        if test_split == "validation":
            notes = ("the split 'validation' serves as test data",)
        train, test = (
            split and tfds_images.read_split(builder, split, **options)
            for split in ("train", test_split)
        )
        return LabelledParts(names, train, test=test, notes=notes, white=WHITE)
