# SPDX-License-Identifier: Apache-2.0
"""Class splits, data sources, and the open-set experiment's data."""

from cac_tf.data.benchmark_sets import BENCHMARK_SETS
from cac_tf.data.class_splits import ClassSplit
from cac_tf.data.class_splits import class_split
from cac_tf.data.class_splits import has_class_split
from cac_tf.data.class_splits import split_families
from cac_tf.data.digits import load_digits
from cac_tf.data.image_folder import load_image_folder
from cac_tf.data.load import load_open_set_dataset
from cac_tf.data.npz_arrays import dump_arrays
from cac_tf.data.npz_arrays import load_npz_arrays
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.open_set_dataset import OpenSetDataset
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.data.open_set_dataset import stratified_split
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.data.tfds_images import load_tfds_images
