# SPDX-License-Identifier: Apache-2.0
"""Whatever else TensorFlow Datasets has, with inputs and a label."""

from cac_tf.data import tables
from cac_tf.data import tfds_images
from cac_tf.data import tfds_tables
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.data.sources.table import LABEL
from cac_tf.data.sources.table import examples_in
from cac_tf.data.sources.table import labelled_parts
from cac_tf.data.sources.table import with_columns

# The usual name of a feature with images.
IMAGE = "image"


@register
class Tfds(DataSource):
    """TFDS, for every name that no other source takes.

    Images are uint8; of other features, those that `tables` can hold are its
    columns. `test` is the split "test", else "validation", else none.
    """

    NAME = "tfds"
    TAKES = (
        "the name of any other TFDS data set with images, texts, vectors or "
        "numbers, and a label"
    )
    OPTIONS = (
        "data_dir",
        "label_column",
        "input_columns",
        "image_size",
        "interpolation",
        "stream",
    )
    DATA_DIR_IS_OF_TFDS = True
    IS_FALLBACK = True

    def takes(self, dataset):
        return True

    def holds_images(
        self, dataset, data_dir, label_column, input_columns, **options
    ):
        try:
            builder = tfds_images.builder_of(dataset, data_dir)
        except ValueError:
            return True
        inputs, _ = _keys(builder, input_columns, label_column)
        return _is(builder, inputs, "Image")

    def num_inputs(self, dataset, data_dir, **options):
        try:
            builder = tfds_images.builder_of(dataset, data_dir)
            # Before, it need not know.
            tfds_images.prepare(builder)
        except ValueError:
            return 0
        splits, used = builder.info.splits, _splits(builder).values()
        return sum(splits[one].num_examples for one in used if one in splits)

    def load(
        self, dataset, classes, data_dir, label_column, input_columns, **options
    ):
        builder = tfds_images.builder_of(dataset, data_dir)
        inputs, label = _keys(builder, input_columns, label_column)
        if _is(builder, inputs, "Image"):
            tfds_images.check_label(builder, label, *inputs)
            tfds_images.prepare(builder)
            # Before images are decoded.
            names = tfds_images.class_names(builder, label)
            classes.ids(names)
            read = {
                part: tfds_images.read_split(
                    builder, split, image=inputs[0], label=label, **options
                )
                for part, split in _splits(builder).items()
            }
            parts = LabelledParts(names, white=WHITE, **read)
        else:
            tfds_images.prepare(builder)
            table, rows, names = tfds_tables.read_table(
                builder, _splits(builder)
            )
            name = builder.name
            labels = tables.labels_of(table, name, label)
            columns = tables.input_columns(table.schema, name, inputs, (label,))
            examples_of = examples_in(
                tables.inputs_of(table, name, columns), names
            )
            parts = labelled_parts(name, labels, rows, examples_of)
            parts = with_columns(parts, table, name, columns, (label,))
        if _splits(builder).get("test") == "validation":
            note = "the split 'validation' serves as test data"
            parts = parts._replace(notes=(note, *parts.notes))
        return parts


def _keys(builder, input_columns, label_column):
    """Names of the features that are inputs, or None, and of the label."""
    keys = (*(builder.info.supervised_keys or ()), None, None)
    usual, label = (key if isinstance(key, str) else None for key in keys[:2])
    if usual is None and IMAGE in builder.info.features:
        usual = IMAGE
    inputs = usual and (usual,)
    if _is(builder, inputs, "FeaturesDict"):
        parts = builder.info.features[usual]
        inputs = tuple(tfds_tables.columns_of(parts, above=f"{usual}/"))
    return input_columns or inputs, label_column or label or LABEL


def _is(builder, inputs, kind):
    """Whether inputs are one feature, of a kind of `tfds.features`."""
    import tensorflow_datasets as tfds

    features = dict(builder.info.features.items())
    kinds = [features.get(name) for name in inputs or ()]
    return len(kinds) == 1 and isinstance(
        kinds[0], getattr(tfds.features, kind)
    )


def _splits(builder):
    """Dict from the parts that there are to the splits that they are."""
    test = tfds_images.test_split(builder)
    return {"train": "train", **({"test": test} if test else {})}
