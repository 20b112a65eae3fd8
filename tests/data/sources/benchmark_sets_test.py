# SPDX-License-Identifier: Apache-2.0
"""The benchmark's data sets: counts, sources, and copies that are not whole."""

import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds

from cac_tf.data import Examples
from cac_tf.data import class_split
from cac_tf.data import load_open_set_dataset
from cac_tf.data.authors_split import authors_training_index
from cac_tf.data.class_splits import ClassSplit
from cac_tf.data.sources import benchmark_sets
from cac_tf.data.sources.source import ClassChoice

DATA_DIR = os.environ.get("TFDS_DATA_DIR")
real_data = pytest.mark.skipif(
    not DATA_DIR,
    reason="TFDS_DATA_DIR is not set: no prepared data sets here",
)


@pytest.fixture(scope="module")
def cifar_plus_50():
    return load_open_set_dataset("cifar+50", trial=3)


@real_data
def test_cifar10():
    dataset = load_open_set_dataset("cifar10", trial=0)
    assert dataset.counts == {
        "train": 24000,
        "validation": 6000,
        "known_test": 6000,
        "unknown_test": 4000,
    }
    split = class_split("cifar10", "neal", 0)
    assert dataset.class_ids == split.known
    assert dataset.unknown_class_ids == split.unknown
    assert dataset.class_names[:3] == ("airplane", "automobile", "bird")
    assert dataset.image_shape == (32, 32, 3)
    assert dataset.openness == pytest.approx(0.1340, abs=1e-4)
    # Stratified: exactly a fifth of each class.
    assert set(np.bincount(dataset.validation.labels)) == {1000}
    # Statistics are of the known classes' training images alone.
    images = np.float64(dataset.train.images) / 255.0
    mean, std = dataset.channel_statistics
    np.testing.assert_allclose(mean, images.mean(axis=(0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(std, images.std(axis=(0, 1, 2)), rtol=1e-9)


@real_data
def test_cifar_plus_50_has_unknown_classes_of_cifar100(cifar_plus_50):
    dataset = cifar_plus_50
    assert dataset.counts == {
        "train": 16000,
        "validation": 4000,
        "known_test": 4000,
        "unknown_test": 5000,
    }
    assert dataset.class_names == ("airplane", "automobile", "ship", "truck")
    split = class_split("cifar+50", "neal", 3)
    assert dataset.unknown_class_ids == split.unknown
    assert "wolf" in dataset.unknown_class_names
    assert dataset.openness == pytest.approx(0.6286, abs=1e-4)
    assert set(np.bincount(dataset.unknown_test.labels)) == {100}


def test_the_classes_of_figure_1(vehicles_folder, tmp_path):
    """From CIFAR100 as TFDS prepares it, with these five classes alone."""

    def examples(part):
        for path in sorted((vehicles_folder / part).glob("*/*.png")):
            name = path.parent.name
            yield (
                path.stem,
                {
                    "id": path.stem,
                    "image": str(path),
                    "label": name,
                    "coarse_label": 0,
                },
            )

    builder = tfds.builder("cifar100", data_dir=tmp_path)
    present = sorted(path.name for path in (vehicles_folder / "test").iterdir())
    others = [f"not here {i}" for i in range(len(present), 100)]
    builder.info.features["label"].names = [*present, *others]
    builder.info.features["coarse_label"].names = [*map(str, range(20))]
    builder._split_generators = lambda *_: {
        part: examples(part) for part in ("train", "test")
    }
    builder.download_and_prepare()
    dataset = load_open_set_dataset("vehicles_animals", data_dir=str(tmp_path))
    assert dataset.class_names == ("train", "bus", "bicycle")
    assert dataset.unknown_class_names == ("bear", "possum")
    assert dataset.counts == {
        "train": 1350,
        "validation": 150,
        "known_test": 300,
        "unknown_test": 200,
    }
    assert dataset.split_family == "custom"


@pytest.fixture
def made_images(monkeypatch):
    """CIFAR10, CIFAR100 and SVHN with their counts, of single pixels."""
    names = {
        "cifar10": tuple(f"ten {i}" for i in range(10)),
        "cifar100": (*(f"hundred {i}" for i in range(99)), "bus"),
        "svhn_cropped": tuple(map(str, range(10))),
    }
    counts = {"cifar10": (5000, 1000), "cifar100": (500, 100)}
    read = []

    def read_split(name, split, classes, **options):
        read.append((name, split))
        labels = np.repeat(classes, counts[name][split == "test"])
        # A pixel says what its image is.
        pixels = labels + 100 * (name == "cifar100")
        return Examples(np.uint8(pixels)[:, None, None, None], labels)

    for function, replacement in (
        ("prepared_builder", lambda name, data_dir: name),
        ("class_names", names.get),
        ("read_split", read_split),
    ):
        monkeypatch.setattr(benchmark_sets.tfds_images, function, replacement)
    return read


def test_cifar_plus_10_shares_the_known_data(made_images):
    ten, fifty = (
        load_open_set_dataset(name, trial=3)
        for name in ("cifar+10", "cifar+50")
    )
    assert ten.counts["unknown_test"] == 1000
    assert ten.openness == pytest.approx(0.3333, abs=1e-4)
    for part in ("train", "validation", "known_test"):
        assert ten.digests[part] == fifty.digests[part]
    assert ten.digests["unknown_test"] != fifty.digests["unknown_test"]


def test_negatives_of_cifar100(made_images):
    """Its training images; these classes are not tested on."""
    dataset = load_open_set_dataset(
        "cifar10_vs_cifar100", negative_classes=["hundred 3", "hundred 8"]
    )
    assert len(dataset.class_names) == 10
    assert dataset.counts["negatives"] == 1000
    assert set(np.ravel(dataset.negatives.images)) == {103, 108}
    assert set(dataset.negatives.labels) == {-1}
    # Without those and without what has a counterpart among the known ones.
    assert len(dataset.unknown_class_names) == 97
    assert not {"hundred 3", "hundred 8", "bus"} & {
        *dataset.unknown_class_names
    }
    assert not {103, 108, 199} & set(np.ravel(dataset.unknown_test.images))
    assert ("cifar100", "train") in made_images
    with pytest.raises(
        ValueError, match="both negative and unknown: hundred 3"
    ):
        load_open_set_dataset(
            "cifar10_vs_cifar100",
            negative_classes=["hundred 3"],
            unknown_classes=["hundred 3", "hundred 4"],
        )
    with pytest.raises(ValueError, match="has no class 'ten 3'"):
        load_open_set_dataset("cifar10_vs_cifar100", negative_classes=["ten 3"])


def test_without_negatives_nothing_of_cifar100_is_trained_on(made_images):
    dataset = load_open_set_dataset("cifar10_vs_cifar100")
    assert "negatives" not in dataset.counts
    assert len(dataset.unknown_class_names) == 99
    assert ("cifar100", "train") not in made_images
    few = load_open_set_dataset(
        "cifar10_vs_cifar100", unknown_classes=["hundred 7", "bus"]
    )
    assert few.unknown_class_names == ("hundred 7", "bus")
    assert few.counts["train"] == 40000
    assert few.counts["unknown_test"] == 200


def test_negatives_against_a_third_data_set():
    """SVHN is unknown, CIFAR100 negative: no class is both."""
    choice = ClassChoice("made", negative=["2"], split=ClassSplit((0, 1), (2,)))
    ids = choice.ids(["a", "b"], ["0", "1", "2"], None, ["1", "2", "3"])
    assert ids == ([0, 1], [2], [1])


@pytest.mark.slow
@real_data
def test_the_validation_images_of_the_authors():
    """Their own split of CIFAR10, of which these numbers are known."""
    dataset = load_open_set_dataset(
        "cifar10",
        split_family="miller2020",
        validation_split="authors",
    )
    assert dataset.counts["train"] == 24000
    assert dataset.counts["validation"] == 6000
    assert set(np.bincount(dataset.train.labels)) == {4000}
    with pytest.raises(ValueError, match="^split_seed has no effect"):
        load_open_set_dataset(
            "cifar10", validation_split="authors", split_seed=1
        )
    with pytest.raises(ValueError, match="which image of mnist is which"):
        load_open_set_dataset("mnist", validation_split="authors")


def test_the_authors_generator():
    """First training images of class 0 of MNIST-like and later data sets."""
    labels = np.repeat([0, 1], 50)
    one = authors_training_index(labels, [])
    again = authors_training_index(labels, [])
    later = authors_training_index(labels, [[5, 7]])
    assert one.sum() == later.sum() == 80
    np.testing.assert_array_equal(one, again)
    assert np.any(one != later)


@pytest.mark.slow
@real_data
def test_options_of_the_benchmark_sets(cifar_plus_50):
    with pytest.raises(ValueError, match="both known and unknown: 1"):
        load_open_set_dataset(
            "mnist", known_classes=["0", "1"], unknown_classes=["1", "2"]
        )
    with pytest.raises(ValueError, match="has no class 'ant'"):
        load_open_set_dataset("cifar+10", unknown_classes=["ant"])
    with pytest.raises(ValueError, match="^test_fraction has no effect"):
        load_open_set_dataset("mnist", test_fraction=0.5)
    with pytest.raises(ValueError, match="^trial has no effect"):
        load_open_set_dataset("cifar10_vs_svhn", trial=1)
    closed = load_open_set_dataset(
        "mnist", known_classes=[str(i) for i in range(10)], image_size=8
    )
    assert closed.counts["unknown_test"] == 0
    assert "closed-set" in closed.notes[-1]
    assert closed.image_shape == (8, 8, 1)


@real_data
def test_a_truncated_file(tmp_path):
    """Cut off in an image: an error that says what to do."""
    source = pathlib.Path(DATA_DIR) / "mnist"
    shutil.copytree(source, tmp_path / "mnist", copy_function=shutil.copy)
    (file,) = (tmp_path / "mnist").rglob("mnist-train.tfrecord*")
    os.chmod(file, 0o644)
    # Early: the images before the cut are read first.
    os.truncate(file, 100_000)
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_open_set_dataset("mnist", data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "mnist", "trial": 5}, "trial must be at most 4; got 5"),
        ({"dataset": "mnist", "split_family": "x"}, "neal, miller2020"),
        (
            {"dataset": "mnst"},
            r"TFDS has no data set 'mnst'.*Available: .*mnist.*; digits; ",
        ),
    ],
)
def test_unknown_names(options, message):
    with pytest.raises(ValueError, match=message):
        load_open_set_dataset(**options)
