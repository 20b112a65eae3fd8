# SPDX-License-Identifier: Apache-2.0
import os
import time
import types
import typing

import numpy as np
import pytest
import tensorflow_datasets as tfds

from cac_tf.data import load_open_set_dataset
from cac_tf.data import streamed_images
from cac_tf.data import tfds_images
from cac_tf.data.reachability import unreachable
from cac_tf.data.sources.tfds import Tfds
from cac_tf.experiments import ExperimentConfig

real_data = pytest.mark.skipif(
    not os.environ.get("TFDS_DATA_DIR"),
    reason="TFDS_DATA_DIR is not set: no prepared data sets here",
)


@pytest.mark.slow
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
    SHAPE = (None, None, 3)
    COUNTS: typing.ClassVar = {"train": 12, "validation": 4}

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": tfds.features.Image(shape=self.SHAPE),
                    "label": tfds.features.ClassLabel(names=["dark", "light"]),
                }
            )
        )

    def _split_generators(self, download_manager):
        return {
            part: self._generate_examples(count)
            for part, count in self.COUNTS.items()
        }

    def _generate_examples(self, count):
        for i in range(count):
            height = self.SHAPE[0] or 8 + i
            image = np.full((height, 10, 3), self.brightness(i), "uint8")
            yield i, {"id": f"train_{i:05d}", "image": image, "label": i % 2}

    def brightness(self, i):
        return 250 * (i % 2)


class WideShapes(TinyShapes):
    """Of one size, which is no square."""

    SHAPE = (8, 10, 3)


class NumberedShapes(WideShapes):
    """Each image is as bright as its number."""

    COUNTS: typing.ClassVar = {"train": 240}

    def brightness(self, i):
        return i


TOPICS = ("world", "sports", "business")


class SmallNews(tfds.core.GeneratorBasedBuilder):
    """Texts, numbers, a vector and features that are no columns."""

    VERSION = tfds.core.Version("1.0.0")
    KEYS: typing.ClassVar = ("description", "topic")

    def _info(self):
        kinds = tfds.features
        features = {
            "title": kinds.Text(),
            "description": kinds.Text(),
            "topic": kinds.ClassLabel(names=TOPICS),
            "stars": np.int32,
            "length": np.float32,
            "embedding": kinds.Tensor(shape=(3,), dtype=np.float32),
            "tokens": kinds.Sequence(np.int32),
            "photo": kinds.Image(shape=(4, 4, 3)),
            "size": {"height": np.int32, "of": {"width": np.float32}},
        }
        return self.dataset_info_from_configs(
            features=kinds.FeaturesDict(features), supervised_keys=self.KEYS
        )

    def _split_generators(self, download_manager):
        counts = {"train": 30, "test": 15}
        return {
            split: self._generate_examples(count)
            for split, count in counts.items()
        }

    def _generate_examples(self, count):
        for i in range(count):
            yield (
                i,
                {
                    "title": f"Title {i}",
                    "description": f"É {i}",
                    "topic": i % 3,
                    "stars": i // 3 % 5,
                    "length": i / 2,
                    "embedding": np.float32([i, 0, -i]),
                    "tokens": [1] * (i % 4),
                    "photo": np.full((4, 4, 3), i, "uint8"),
                    "size": {"height": i, "of": {"width": i / 4}},
                },
            )


class SizesOfNews(SmallNews):
    """A feature with parts is the input."""

    KEYS: typing.ClassVar = ("size", "topic")


class UnlabelledNews(SmallNews):
    """Nothing says what is what, and a row has no class."""

    KEYS: typing.ClassVar = None

    def _generate_examples(self, count):
        for i, example in super()._generate_examples(count):
            yield i, {**example, "topic": -1 if i == 7 else i % 3}


def load_tfds_images(name, data_dir, image_size=None, stream=None):
    any_classes = types.SimpleNamespace(ids=lambda names: None)
    options = {"image_size": image_size, "stream": stream}
    options |= {"label_column": None, "input_columns": None}
    return Tfds().load(name, any_classes, data_dir, **options)


def test_any_data_set_with_image_and_label(tmp_path, monkeypatch):
    # Such as that of a run: the name is that of the data set all the same.
    (tmp_path / "run" / "tiny_shapes").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    images = load_tfds_images("tiny_shapes", str(tmp_path), image_size=16)
    assert images.class_names == ("dark", "light")
    assert images.train.images.shape == (12, 16, 16, 3)
    assert images.test.size == 4
    assert images.notes == ("the split 'validation' serves as test data",)
    np.testing.assert_array_equal(
        images.train.images[:, 8, 8, 0], 250 * images.train.labels
    )
    with pytest.raises(ValueError, match="set image_size"):
        load_tfds_images("tiny_shapes", str(tmp_path))


@pytest.mark.parametrize("name", ["tiny_shapes", "wide_shapes"])
def test_streamed_images_are_squares(tmp_path, name, monkeypatch):
    """Never another shape than in memory without a word."""
    with pytest.raises(ValueError, match="not all square.*image_s"):
        load_tfds_images(name, str(tmp_path), stream=True)
    images = load_tfds_images(name, str(tmp_path), image_size=6, stream=True)
    assert images.train.images.shape == (12, 6, 6, 3)
    if name == "wide_shapes":
        # Also where their number decides.
        monkeypatch.setattr(streamed_images, "MOST_BYTES_IN_MEMORY", 100)
        images = load_tfds_images(name, str(tmp_path))
        assert images.train.images.shape == (12, 8, 10, 3)


def test_numbers_are_in_the_order_of_the_images(tmp_path):
    """Also where a split has several files."""
    builder = tfds.builder("numbered_shapes", data_dir=tmp_path)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3)
    )
    assert len(builder.info.splits["train"].filepaths) == 3
    images, labels = tfds_images.read_split(builder, "train")
    numbers, own = tfds_images.read_numbers(builder, "train")
    np.testing.assert_array_equal(images[:, 0, 0, 0], numbers)
    np.testing.assert_array_equal(labels, own)


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="TFDS has no data set 'nonsense'"):
        load_tfds_images("nonsense", str(tmp_path))


def load_news(folder, name="small_news", **options):
    options = {"known_classes": ["sports", "world"], **options}
    return load_open_set_dataset(name, data_dir=str(folder), **options)


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    """A folder with the prepared sets."""
    return tmp_path_factory.mktemp("news")


def test_texts(news):
    dataset = load_news(news)
    assert dataset.kind_of_inputs == "texts"
    assert dataset.input_columns == ("description",)
    assert dataset.unknown_class_names == ("business",)
    assert dataset.counts["train"] + dataset.counts["validation"] == 20
    assert dataset.counts["unknown_test"] == 5
    for part, split in (("train", "train"), ("known_test", "test")):
        for text, label, name in zip(
            *getattr(dataset, part), getattr(dataset, part).names, strict=True
        ):
            assert name.startswith(f"small_news/{split}#")
            topic = TOPICS[int(text.removeprefix("É ")) % 3]
            assert dataset.class_names[label] == topic
    assert dataset.notes[0].endswith(
        "of small_news are not used: title, stars, length, embedding, "
        "size/height, size/of/width"
    )
    config = ExperimentConfig(
        {"dataset": "small_news", "data_dir": news, "known_share": 0.7}
    )
    assert not config.takes_images
    assert (config.vectors, config.recipe_in_force.network) == (45, "mlp")


def test_other_features_by_name(news):
    dataset = load_news(news, input_columns=["embedding"])
    numbers = dataset.train.images[:, 0]
    np.testing.assert_array_equal(
        dataset.train.images, np.outer(numbers, [1, 0, -1])
    )
    assert len({*numbers}) == dataset.train.size
    # A feature with parts is those that there are.
    dataset = load_news(news, "sizes_of_news")
    assert dataset.input_columns == ("size/height", "size/of/width")
    np.testing.assert_array_equal(
        dataset.train.images[:, 0], 4 * dataset.train.images[:, 1]
    )
    dataset = load_news(
        news,
        input_columns=["length"],
        label_column="stars",
        known_classes=["0", "3"],
    )
    numbers = 2 * dataset.train.images[:, 0]
    assert dataset.unknown_class_names == ("1", "2", "4")
    np.testing.assert_array_equal(3 * dataset.train.labels, numbers // 3 % 5)
    # Images of any name, with labels of any name.
    dataset = load_news(news, input_columns=["photo"], stream=True)
    assert dataset.image_shape == (4, 4, 3)
    brightness = dataset.train.images[:][:, 0, 0, 0]
    names = np.array(dataset.class_names)[dataset.train.labels]
    np.testing.assert_array_equal(np.array(TOPICS)[brightness % 3], names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"input_columns": ["tokens"]},
            "no column tokens; its columns are .*, embeddi",
        ),
        (
            {"input_columns": ["text"]},
            "small_news has no column text; its columns are ",
        ),
        (
            {"input_columns": ["title", "stars"]},
            "column title of .* not number",
        ),
        ({"label_column": "label"}, "no label column label; .*topic"),
        (
            {"label_column": "length"},
            "length of small_news must contain labels",
        ),
        ({"image_size": 8}, "^image_size has no effect here"),
        ({"split_column": "topic"}, "^split_column has no effect here"),
        (
            {"input_columns": ["photo"], "label_column": "stars"},
            "label of the TFDS data set 'small_news' is not a class label",
        ),
        (
            {"input_columns": ["photo"], "label_column": "kind"},
            "needs images in 'photo' and a 'kind'",
        ),
        ({"name": "unlabelled_news"}, "no label column label"),
        (
            {"name": "unlabelled_news", "label_column": "topic"},
            "topic of unlabelled_news is empty in 2 rows, .* row",
        ),
    ],
)
def test_what_is_refused_of_other_features(news, options, message):
    with pytest.raises(ValueError, match=message):
        load_news(news, **options)


def test_a_wrong_class_is_found_before_images_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_images, "read_split", None)
    with pytest.raises(ValueError, match="no class 'ligth'; did you mean"):
        load_open_set_dataset(
            "tiny_shapes",
            data_dir=str(tmp_path),
            known_classes=["dark", "ligth"],
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minst", "'minst'; did you mean 'mnist'"),
        ("fashion_mnits", "did you mean 'fashion_mnist'"),
        ("digit", "did you mean 'digits'"),
        ("mnist/x:y", "is not a TFDS data set"),
        (".", "is a folder, not .* dataset='folder', data_dir='.'"),
    ],
)
def test_a_name_that_is_nearly_right(name, message):
    with pytest.raises(ValueError, match=message):
        load_open_set_dataset(name)


@pytest.mark.parametrize("answers", ["nobody", "everybody, too late"])
@pytest.mark.parametrize("name", ["mnist", "tinyimagenet", "cifar+10"])
def test_neither_on_disk_nor_reachable(tmp_path, monkeypatch, name, answers):
    """TFDS would try for minutes."""

    def connect(place, timeout):
        if answers != "nobody":
            time.sleep(60)  # as a name server that does not answer
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", None)
    started = time.monotonic()
    with pytest.raises(ValueError, match="is not in .*no connection to [a-z]"):
        load_open_set_dataset(name, data_dir=str(tmp_path))
    assert time.monotonic() - started < 5


def test_what_was_downloaded_needs_no_server(tmp_path, monkeypatch):
    prepared = []
    monkeypatch.setattr("socket.create_connection", None)
    monkeypatch.setattr(
        tfds.core.DatasetBuilder,
        "download_and_prepare",
        lambda self: prepared.append(self.name),
    )
    infos = tfds.builder("mnist", data_dir=str(tmp_path)).url_infos
    (tmp_path / "downloads" / "mnist").mkdir(parents=True)
    for i, info in enumerate(infos.values()):
        with open(tmp_path / "downloads" / "mnist" / f"{i}.gz", "wb") as file:
            file.truncate(info.size)
    tfds_images.prepared_builder("mnist", str(tmp_path))
    (tmp_path / "downloads" / "manual").mkdir()
    tfds_images.prepared_builder("tiny_imagenet", str(tmp_path))
    assert prepared == ["mnist", "tiny_imagenet"]


def test_a_proxy_is_what_must_be_reached(monkeypatch):
    tried = []

    def connect(place, timeout):
        tried.append(place)
        raise OSError

    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert unreachable(["https://a.example/b", "https://c.example/d"]) == [
        "proxy.example:3128"
    ]
    assert tried == [("proxy.example", 3128)]


def test_data_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_images, "unreachable", lambda urls: [])

    def refuse(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(
        tfds.core.DatasetBuilder, "download_and_prepare", refuse
    )
    with pytest.raises(
        ValueError,
        match=r"could not be prepared .Conn.*: no network.*set data_dir",
    ):
        load_tfds_images("mnist", str(tmp_path))
