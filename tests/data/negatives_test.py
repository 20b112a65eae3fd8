# SPDX-License-Identifier: Apache-2.0
"""Known unknowns: images of other classes that a method may train on."""

import dataclasses
import os

import numpy as np
import pytest

from cac_tf import data
from cac_tf.data import Examples
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.data.sources.digits import load_digits
from cac_tf.data.sources.npz_arrays import dump_arrays

KNOWN = ("train", "validation", "known_test")


def load(dataset="digits", **options):
    return data.load_open_set_dataset(dataset, **options)


def assert_same(one, other, parts):
    for part in parts:
        for a, b in zip(getattr(one, part), getattr(other, part), strict=True):
            np.testing.assert_array_equal(a, b)


def test_they_are_the_images_of_their_classes():
    plain, dataset = load(), load(negative_classes=["8", "3"])
    examples, _ = load_digits()
    expected = examples.images[np.isin(examples.labels, [3, 8])]
    np.testing.assert_array_equal(dataset.negatives.images, expected)
    np.testing.assert_array_equal(dataset.negatives.labels, -1)
    assert dataset.negatives.labels.dtype == np.int64
    assert_same(plain, dataset, KNOWN)
    # The other unknown classes of the split are left, and it is no longer
    # that of the benchmark.
    assert plain.unknown_class_names == ("3", "6", "7", "8")
    assert dataset.unknown_class_names == ("6", "7")
    assert (dataset.split_family, dataset.trial) == ("custom", None)
    assert sum(dataset.counts.values()) == 1797
    rows = np.isin(examples.labels, [6, 7])
    np.testing.assert_array_equal(
        dataset.unknown_test.images, examples.images[rows]
    )


def test_no_negatives():
    dataset = load(negative_classes=[])
    assert "negatives" not in dataset.counts
    assert dataset.trial == 0
    again = dataclasses.replace(dataset, notes=("changed",))
    assert again.negatives.size == 0


def test_unknown_classes_beside_them():
    dataset = load(
        known_classes=["0", "1"],
        negative_classes=["2"],
        unknown_classes=["9", "5"],
    )
    assert dataset.unknown_class_names == ("9", "5")
    assert set(dataset.unknown_test.labels) == {0, 1}
    dataset = load(known_classes=["0", "1"], negative_classes=["2", "3"])
    assert dataset.unknown_class_names == ("4", "5", "6", "7", "8", "9")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negative_classes": ["4", "3", "0"]}, "known and negative: 0, 4"),
        (
            {"negative_classes": ["3", "6"], "unknown_classes": ["3", "7"]},
            "negative and unknown: 3",
        ),
        ({"negative_classes": ["3", "3"]}, "negative class is listed twice"),
        ({"negative_classes": ["ten"]}, "no class 'ten'. Its classes: 0, 1"),
    ],
)
def test_classes_that_stand_for_two_things(options, message):
    with pytest.raises(ValueError, match=message):
        load(**options)


def test_of_a_source_with_a_test_part():
    """Their training images; their test images are nowhere."""
    images = np.arange(40, dtype="uint8").reshape(10, 2, 2, 1)
    train = Examples(images, np.arange(10) % 4)
    dataset = make_open_set_dataset(
        "made",
        train,
        ["a", "b", "c", "d"],
        known_classes=[0, 1],
        test=train,
        validation=train,
        negative_classes=[3],
    )
    assert dataset.unknown_class_names == ("c",)
    np.testing.assert_array_equal(dataset.negatives.images, images[3::4])
    np.testing.assert_array_equal(dataset.unknown_test.images, images[2::4])
    # A class that is in the test part alone cannot be trained on.
    with pytest.raises(ValueError, match="negative .* no training examples: e"):
        make_open_set_dataset(
            "made",
            train,
            ["a", "b", "c", "d", "e"],
            known_classes=[0, 1],
            test=Examples(images, np.arange(10) % 5),
            negative_classes=[4],
        )


def test_dumped_arrays_keep_them(tmp_path):
    path = str(tmp_path / "digits.npz")
    one = load(trial=1, negative_classes=["2", "6"], split_seed=3)
    dump_arrays(path, one)
    two = load(path)
    assert_same(one, two, (*KNOWN, "unknown_test", "negatives"))
    for field in dataclasses.fields(one):
        if not isinstance(getattr(one, field.name), Examples):
            assert getattr(one, field.name) == getattr(two, field.name)
    assert two.counts["negatives"] == one.counts["negatives"] > 0
    with pytest.raises(ValueError, match="^negative_classes has no effect"):
        load(path, negative_classes=["1"])
    # Other unknown classes, the same negatives.
    assert_same(one, load(path, unknown_classes=["1"]), ("negatives",))
    dump_arrays(path, load())
    assert "x_negatives" not in np.load(path).files


def test_negatives_of_an_npz_file_of_ones_own(tmp_path):
    path = str(tmp_path / "mine.npz")
    examples, _ = load_digits()
    arrays = {
        "x_train": examples.images[:200],
        "y_train": examples.labels[:200],
    }
    np.savez(path, **arrays, x_negatives=255 - examples.images[200:230, ..., 0])
    dataset = load(path, known_classes=["1", "2"])
    assert dataset.counts["negatives"] == 30
    np.testing.assert_array_equal(
        dataset.negatives.images, 255 - examples.images[200:230]
    )
    np.savez(path, **arrays, x_negatives=np.zeros((3, 9, 9, 1)))
    with pytest.raises(ValueError, match="different shapes"):
        load(path, known_classes=["1", "2"])
    np.savez(path, **arrays, x_negatives=np.full((2, 8, 8, 1), np.nan))
    with pytest.raises(ValueError, match=r"negatives .* NaN .*\[0, 1\]"):
        load(path, known_classes=["1", "2"])


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("TFDS_DATA_DIR"),
    reason="TFDS_DATA_DIR is not set: no prepared data sets here",
)
def test_of_a_benchmark_set_with_two_sources():
    """Animals of CIFAR10 are negatives; the unknown ones are of CIFAR100."""
    plain = load("cifar+10", trial=3)
    dataset = load("cifar+10", trial=3, negative_classes=["cat", "frog"])
    assert dataset.counts["negatives"] == 10000
    assert dataset.unknown_class_ids == plain.unknown_class_ids
    assert (dataset.split_family, dataset.trial) == ("neal", 3)
    assert_same(plain, dataset, (*KNOWN, "unknown_test"))
    with pytest.raises(ValueError, match="known and negative: ship"):
        load("cifar+10", trial=3, negative_classes=["ship"])
