# SPDX-License-Identifier: Apache-2.0
"""What holds for every data source, and for one of another package."""

import collections
import io
import os
import typing

import numpy as np
import PIL.Image
import pyarrow
import pyarrow.parquet
import pytest
import sklearn.datasets
import tensorflow_datasets as tfds
from absl import flags

from cac_tf.data import Examples
from cac_tf.data import load_open_set_dataset
from cac_tf.data import sources
from cac_tf.data.class_splits import ClassSplit
from cac_tf.data.sources import DataSource
from cac_tf.data.sources import LabelledParts
from cac_tf.data.sources import source as source_module
from cac_tf.data.sources.source import source_of
from cac_tf.data.sources.source import what_is_taken
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.train import command_line

PARTS = ("train", "validation", "known_test", "unknown_test")


class Case(typing.NamedTuple):
    """A small data set of a source, with classes to choose among."""

    dataset: str
    options: dict
    image_shape: tuple
    known: tuple
    others: tuple

    def load(self, **options):
        options = {"known_classes": self.known, **self.options, **options}
        return load_open_set_dataset(self.dataset, **options)


def digits(count=600):
    """Real images, as uint8 of 8x8 pixels."""
    bunch = sklearn.datasets.load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype("uint8")
    return images[:count], bunch.target[:count]


class SmallDigits(tfds.core.GeneratorBasedBuilder):
    """Digits as a data set of TFDS, without a test part."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(8, 8, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        )
        return self.dataset_info_from_configs(features=features)

    def _split_generators(self, download_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i, (image, label) in enumerate(zip(*digits(), strict=True)):
            yield i, {"image": image[..., None], "label": label}


class DigitVectors(SmallDigits):
    """The same digits as vectors."""

    def _info(self):
        features = {
            "pixels": tfds.features.Tensor(shape=(64,), dtype=np.int32),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(features)
        )

    def _generate_examples(self):
        for i, (image, label) in enumerate(zip(*digits(), strict=True)):
            yield i, {"pixels": image.ravel().astype("int32"), "label": label}


def digits_case(folder):
    return Case("digits", {}, (8, 8, 1), ("3", "1", "7"), ("0", "8"))


def npz_case(folder):
    images, labels = digits()
    np.savez(folder / "made.npz", x_train=images, y_train=labels)
    path = str(folder / "made.npz")
    return Case(path, {}, (8, 8, 1), ("3", "1", "7"), ("0", "8"))


def folder_case(folder):
    names = ("zero", "one", "two", "three")
    for i, (image, label) in enumerate(zip(*digits(), strict=True)):
        if label < len(names):
            path = folder / names[label] / f"{i}.png"
            path.parent.mkdir(exist_ok=True)
            PIL.Image.fromarray(image).save(path)
    options = {"data_dir": str(folder), "image_size": 8}
    return Case("folder", options, (8, 8, 3), ("two", "one"), ("zero", "three"))


def npy_case(folder):
    images, labels = digits()
    np.save(folder / "x.npy", images.reshape(len(images), 64))
    np.save(folder / "y.npy", labels)
    options = {"labels": str(folder / "y.npy")}
    path = str(folder / "x.npy")
    return Case(path, options, (64,), ("3", "1", "7"), ("0", "8"))


def table_case(folder):
    images, labels = digits()
    vectors = images.reshape(len(images), 64).tolist()
    table = pyarrow.table({"label": labels, "pixels": vectors})
    path = str(folder / "made.parquet")
    pyarrow.parquet.write_table(table, path)
    return Case(path, {}, (64,), ("3", "1", "7"), ("0", "8"))


def table_of_paths_case(folder):
    (folder / "photos").mkdir()
    rows = ["photo,label"]
    for i, (image, label) in enumerate(zip(*digits(), strict=True)):
        PIL.Image.fromarray(image).save(folder / "photos" / f"{i}.png")
        rows.append(f"photos/{i}.png,{label}")
    path = folder / "made.csv"
    path.write_text("\n".join(rows))
    options = {"image_size": 8}
    return Case(str(path), options, (8, 8, 3), ("3", "1", "7"), ("0", "8"))


def tfds_case(folder):
    options = {"data_dir": str(folder)}
    return Case("small_digits", options, (8, 8, 1), ("3", "1"), ("0", "8"))


def tfds_of_vectors_case(folder):
    options = {"data_dir": str(folder)}
    return Case("digit_vectors", options, (64,), ("3", "1"), ("0", "8"))


def benchmark_case(folder):
    if not os.environ.get("TFDS_DATA_DIR"):
        pytest.skip("TFDS_DATA_DIR is not set: no prepared data sets here")
    return Case("mnist", {"image_size": 8}, (8, 8, 1), ("3", "1"), ("0", "8"))


def records_case(folder):
    rows = []
    for image, label in zip(*digits(), strict=True):
        file = io.BytesIO()
        PIL.Image.fromarray(image).save(file, "png")
        rows.append({"image": file.getvalue(), "label": int(label)})
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, folder / "train.parquet")
    options = {"data_dir": str(folder), "image_size": 8}
    return Case("records", options, (8, 8, 3), ("3", "1"), ("0", "8"))


# By the name of the source, and of what it holds.
CASES = {
    "benchmark": benchmark_case,
    "digits": digits_case,
    "folder": folder_case,
    "npy": npy_case,
    "npz": npz_case,
    "records": records_case,
    "table": table_case,
    "table of paths": table_of_paths_case,
    "tfds": tfds_case,
    "tfds of vectors": tfds_of_vectors_case,
}


@pytest.fixture(
    scope="module",
    params=[
        # It reads MNIST from TFDS, several times.
        pytest.param(name, marks=pytest.mark.slow)
        if name == "benchmark"
        else name
        for name in CASES
    ],
)
def case(request, tmp_path_factory):
    name = request.param.split()[0]
    made = CASES[request.param](tmp_path_factory.mktemp(name))
    assert name == source_of(made.dataset).NAME
    return made


def test_every_source_has_a_small_data_set():
    assert {name.split()[0] for name in CASES} == {*sources.names()}


@pytest.fixture(scope="module")
def loaded(case):
    return case.load()


def assert_same(one, other, parts=PARTS):
    for part in parts:
        a, b = getattr(one, part), getattr(other, part)
        np.testing.assert_array_equal(a.images[:], b.images[:])
        np.testing.assert_array_equal(a.labels, b.labels)


def test_every_source_says_what_it_takes(case):
    source = source_of(case.dataset)
    assert source.TAKES in what_is_taken()
    taking = [
        other.NAME
        for other in map(sources.find, sources.names())
        if other().takes(case.dataset) and not other.IS_FALLBACK
    ]
    assert taking == [] if source.IS_FALLBACK else [source.NAME]


def test_images_labels_and_classes_belong_together(case, loaded):
    assert loaded.name == case.dataset
    assert loaded.class_names == case.known
    assert len(loaded.class_ids) == len(case.known)
    assert len(loaded.unknown_class_ids) == len(loaded.unknown_class_names)
    assert set(case.others) <= set(loaded.unknown_class_names)
    assert loaded.image_shape == case.image_shape
    for part in PARTS:
        images, labels = getattr(loaded, part)
        assert images.shape == (len(labels), *case.image_shape)
        assert labels.dtype == np.int64
        assert loaded.counts[part] == len(labels)
        of_unknown = part == "unknown_test"
        names = loaded.unknown_class_names if of_unknown else case.known
        # No class is without an image.
        assert set(labels) == set(range(len(names)))
        are_images = len(case.image_shape) == 3
        assert images[:].dtype == (np.uint8 if are_images else np.float32)
        # Values 0...255, not 0...1.
        assert images[:].max() > 128
    assert loaded.negatives.size == 0
    assert loaded.negatives.images.shape == (0, *case.image_shape)


def test_an_image_keeps_the_name_of_its_class(case, loaded):
    """Known classes in another order: the same images under their names."""
    other = case.load(known_classes=case.known[::-1])
    assert other.class_names == case.known[::-1]

    def named(dataset):
        return collections.Counter(
            (dataset.class_names[label], image.tobytes())
            for part in ("train", "validation", "known_test")
            for image, label in zip(
                getattr(dataset, part).images[:],
                getattr(dataset, part).labels,
                strict=True,
            )
        )

    assert named(loaded) == named(other)


def test_no_class_is_known_and_unknown(case, loaded):
    assert not set(loaded.class_names) & set(loaded.unknown_class_names)
    assert not set(loaded.class_ids) & set(loaded.unknown_class_ids)
    with pytest.raises(ValueError, match=f"known and unknown: {case.known[0]}"):
        case.load(unknown_classes=[case.known[0], case.others[0]])


def test_no_image_is_in_two_parts(loaded):
    seen = {
        part: {image.tobytes() for image in getattr(loaded, part).images[:]}
        for part in ("train", "validation", "known_test")
    }
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["known_test"]
    assert not seen["validation"] & seen["known_test"]


def test_the_seed_decides_the_split(case, loaded):
    assert_same(loaded, case.load(split_seed=0))
    other = case.load(split_seed=1)
    assert other.counts == loaded.counts
    assert other.digests["validation"] != loaded.digests["validation"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("data_dir", "somewhere"),
        ("image_size", 16),
        ("strict", True),
        ("stream", False),
        ("validation_split", "authors"),
        ("trial", 1),
        ("split_family", "neal"),
        ("labels", "labels.npy"),
        ("label_column", "label"),
        ("input_columns", ["x"]),
    ],
)
def test_an_option_without_effect_is_refused(case, option, value):
    if option in source_of(case.dataset).OPTIONS:
        pytest.skip("this source uses it")
    with pytest.raises(ValueError, match=f"^{option} has no effect here"):
        case.load(**{option: value})


def test_the_options_that_it_has(case, loaded):
    has = source_of(case.dataset).OPTIONS
    if not loaded.holds_images:
        for option, value in {"image_size": 16, "stream": True}.items():
            with pytest.raises(ValueError, match=f"^{option} has no effect"):
                case.load(**{option: value})
        return
    if "image_size" in has:
        assert case.load(image_size=10).image_shape[:2] == (10, 10)
    if "stream" in has:
        streamed = case.load(stream=True)
        assert isinstance(streamed.train.images, StreamedImages)
        assert_same(loaded, streamed)


def test_a_share_of_the_classes_is_drawn(case):
    """The names in order, permuted by the trial's seed."""
    known_only = {"known_classes": None}
    dataset = case.load(**known_only, known_share=0.5, trial=2)
    known, unknown = dataset.class_names, dataset.unknown_class_names
    options = {"interpolation": INTERPOLATIONS[0], **case.options}
    names = sorted(
        source_of(case.dataset)
        .load(
            case.dataset,
            sources.source.ClassChoice(case.dataset, known_share=0.5),
            **{
                name: options.get(name)
                for name in source_of(case.dataset).OPTIONS
            },
        )
        .class_names
    )
    order = np.random.default_rng(2).permutation(len(names))
    drawn = sorted(names[i] for i in order[: round(0.5 * len(names))])
    assert known == tuple(drawn)
    assert sorted(unknown) == [name for name in names if name not in known]
    assert (dataset.split_family, dataset.trial) == ("share0.5", 2)
    with pytest.raises(ValueError, match="^known_classes has no effect here"):
        case.load(known_share=0.5)


def test_negatives(case, loaded):
    """They leave the unknown classes; what is known stays as it was."""
    one, other = case.others
    dataset = case.load(negative_classes=[one])
    assert dataset.negatives.size == dataset.counts["negatives"] > 0
    assert set(dataset.negatives.labels) == {-1}
    assert dataset.negatives.labels.dtype == np.int64
    assert dataset.negatives.images.shape[1:] == case.image_shape
    assert one not in dataset.unknown_class_names
    assert other in dataset.unknown_class_names
    assert_same(loaded, dataset, ("train", "validation", "known_test"))


def test_a_class_that_there_is_not(case):
    for option in ("known_classes", "unknown_classes", "negative_classes"):
        with pytest.raises(ValueError, match=r"no class 'x'\. Its classes: "):
            case.load(**{option: [case.known[0], "x"]})


# ---- a source of another package -------------------------------------------


@pytest.fixture
def register(monkeypatch):
    """Registers a source for one test."""
    sources.names()  # ours, before the copy
    registry = source_module._SOURCES
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    return sources.register


class Rings(DataSource):
    """Two known classes, against those of another data set."""

    NAME, TAKES = "rings", "rings:<width>"
    OPTIONS = ("stream",)

    def takes(self, dataset):
        return dataset.startswith("rings:")

    def load(self, dataset, classes, stream):
        if stream:
            raise ValueError("rings are never streamed")
        size = int(dataset.removeprefix("rings:"))
        rng = np.random.default_rng(0)

        def made(count, num_classes):
            images = rng.integers(0, 256, (count, size, size, 1))
            labels = np.arange(count) % num_classes
            return Examples(images.astype("uint8"), labels)

        return LabelledParts(
            class_names=("thin", "thick", "broken"),
            train=made(60, 3),
            test=made(30, 3),
            unknown=made(20, 2),
            unknown_class_names=("square", "star"),
            notes=("rings are drawn",),
            split=ClassSplit((1, 0), (1,)),
            fields={"split_family": "round", "trial": 7},
            validation_fraction=0.25,
        )


def test_a_source_of_another_package(register):
    register(Rings)
    dataset = load_open_set_dataset("rings:6")
    assert dataset.name == "rings:6"
    assert dataset.image_shape == (6, 6, 1)
    assert dataset.class_names == ("thick", "thin")
    assert dataset.unknown_class_names == ("star",)
    assert (dataset.split_family, dataset.trial) == ("round", 7)
    assert dataset.notes == ("rings are drawn",)
    assert dataset.counts == {
        "train": 30,
        "validation": 10,
        "known_test": 20,
        "unknown_test": 10,
    }
    # Negatives are no classes of the other data set: the split is the same.
    dataset = load_open_set_dataset("rings:6", negative_classes=["broken"])
    assert dataset.counts["negatives"] == 20
    assert dataset.unknown_class_names == ("star",)
    assert dataset.trial == 7
    other = load_open_set_dataset("rings:6", known_classes=["thin", "broken"])
    assert other.unknown_class_names == ("star",)
    assert (other.split_family, other.trial) == ("custom", None)
    other = load_open_set_dataset("rings:6", unknown_classes=["square"])
    assert other.class_names == ("thick", "thin")
    assert (other.split_family, other.trial) == ("custom", None)
    with pytest.raises(ValueError, match="never streamed"):
        load_open_set_dataset("rings:6", stream=True)
    for option in ({"image_size": 3}, {"test_fraction": 0.5}, {"trial": 0}):
        (name,) = option
        with pytest.raises(ValueError, match=f"^{name} has no effect here"):
            load_open_set_dataset("rings:6", **option)


@pytest.mark.parametrize("white", [None, 1.0])
def test_its_pixels_may_have_another_scale(register, white):
    class UnitRings(Rings):
        def load(self, dataset, classes, stream):
            parts = super().load(dataset, classes, stream)
            scaled = {
                name: part._replace(images=np.float32(part.images / 255))
                for name, part in parts._asdict().items()
                if isinstance(part, Examples)
            }
            return parts._replace(white=white, **scaled)

    register(Rings)
    expected = load_open_set_dataset("rings:6")
    source_module._SOURCES._entries["rings"] = UnitRings
    found = load_open_set_dataset("rings:6")
    for part in PARTS:
        np.testing.assert_allclose(
            getattr(found, part).images,
            getattr(expected, part).images,
            atol=1e-4,
        )
    assert found.notes[0] == "rings are drawn"
    assert found.notes[1].startswith("pixel values of 0...1 were scaled")


def test_the_command_line_knows_it(register):
    register(Rings)
    values = flags.FlagValues()
    command_line.define_data_flags(values)
    assert "rings:<width>" in values["dataset"].help
    values(["a binary", "--dataset=rings:6", "--negative_classes=broken"])
    dataset = load_open_set_dataset(**command_line.data_settings(values))
    assert dataset.counts["negatives"] == 20


def test_a_name_that_two_sources_take(register):
    class Mine(Rings):
        NAME = "mine"

        def takes(self, dataset):
            return dataset == "digits"

    register(Mine)
    with pytest.raises(ValueError, match="one .*'digits' and 'mine' do"):
        load_open_set_dataset("digits")
    with pytest.raises(ValueError, match="data source 'mine' is already"):
        register(type("Other", (DataSource,), {"NAME": "mine"}))


def test_an_option_that_there_is_not():
    with pytest.raises(
        ValueError, match=r"may contain data_dir.*; got 'size'\."
    ):
        type("Wrong", (DataSource,), {"OPTIONS": ("size",)})
