# SPDX-License-Identifier: Apache-2.0
import os

import numpy as np
import pytest
import tensorflow_datasets as tfds

from cac_tf.data import load_open_set_dataset
from cac_tf.data import load_tfds_images

real_data = pytest.mark.skipif(
    not os.environ.get("TFDS_DATA_DIR"),
    reason="TFDS_DATA_DIR is not set: no prepared data sets here",
)


@real_data
def test_mnist_of_a_trial():
    """The counts of the benchmark (`neal`, trial 0)."""
    dataset = load_open_set_dataset("mnist", trial=0)
    assert dataset.class_names == ("0", "1", "2", "4", "5", "9")
    assert dataset.counts["known_test"] == 6030
    assert dataset.counts["unknown_test"] == 3970
    assert dataset.image_shape == (32, 32, 1)
    assert dataset.train.images.dtype == np.uint8
    # Known: the mean of all MNIST training images at 28x28 is 0.1307.
    assert dataset.channel_statistics[0][0] == pytest.approx(0.13, abs=0.01)


class TinyShapes(tfds.core.GeneratorBasedBuilder):
    """Images of different sizes; a validation split and no test split."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3)),
                    "label": tfds.features.ClassLabel(names=["dark", "light"]),
                }
            )
        )

    def _split_generators(self, download_manager):
        return {
            "train": self._generate_examples(12),
            "validation": self._generate_examples(4),
        }

    def _generate_examples(self, count):
        for i in range(count):
            image = np.full((8 + i, 10, 3), 250 * (i % 2), "uint8")
            yield i, {"image": image, "label": i % 2}


def test_any_data_set_with_image_and_label(tmp_path):
    images = load_tfds_images("tiny_shapes", str(tmp_path), image_size=16)
    assert images.class_names == ("dark", "light")
    assert images.train.images.shape == (12, 16, 16, 3)
    assert images.test.size == 4
    assert images.notes == ("the split 'validation' serves as test data",)
    np.testing.assert_array_equal(
        images.train.images[:, 8, 8, 0], 250 * images.train.labels
    )
    with pytest.raises(ValueError, match="pass --image_size"):
        load_tfds_images("tiny_shapes", str(tmp_path))


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="TFDS has no data set 'nonsense'"):
        load_tfds_images("nonsense", str(tmp_path))
    with (
        tfds.testing.mock_data(num_examples=5),
        pytest.raises(ValueError, match="an 'image' and a 'label' are needed"),
    ):
        load_tfds_images("titanic", str(tmp_path))


def test_data_that_are_not_there(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(
        tfds.core.DatasetBuilder, "download_and_prepare", refuse
    )
    with pytest.raises(
        ValueError,
        match=r"could not be made .Conn.*: no network.*--data_dir",
    ):
        load_tfds_images("mnist", str(tmp_path))
