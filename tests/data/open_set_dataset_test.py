# SPDX-License-Identifier: Apache-2.0
import time

import numpy as np
import pytest

from cac_tf import data
from cac_tf.data import Examples
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.data.open_set_dataset import stratified_split
from cac_tf.data.sources.npz_arrays import dump_arrays
from cac_tf.data.sources.source import class_ids


def numbered(labels):
    """Images whose first pixel is their number, to follow each one."""
    labels = np.asarray(labels)
    images = np.full((len(labels), 2, 2, 1), 255, "float32")
    images[:, 0, 0, 0] = np.arange(len(labels))
    return Examples(images, labels)


def numbers(examples):
    return set(examples.images[:, 0, 0, 0].astype(int))


def test_many_classes_take_no_time_of_their_square():
    """20,000 classes: a quarter of a second, and an import."""
    names = [str(i) for i in range(20_000)]
    labels = np.repeat(np.arange(20_000), 3)
    source = Examples(np.zeros((60_000, 2, 2, 1), "uint8"), labels)
    start = time.process_time()
    ids = class_ids(names[::2], names, "made")
    dataset = make_open_set_dataset(
        "made",
        source,
        names,
        known_classes=ids,
        unknown_classes=range(1, 20_000, 2),
    )
    assert time.process_time() - start < 3
    assert dataset.class_names == tuple(names[::2])
    assert dataset.unknown_class_names == tuple(names[1::2])


def test_one_source_becomes_disjoint_parts():
    source = numbered(np.repeat([0, 1, 2, 3], [50, 100, 30, 20]))
    dataset = make_open_set_dataset(
        "made", source, ["a", "b", "c", "d"], known_classes=[3, 1]
    )
    assert dataset.class_names == ("d", "b")
    assert dataset.class_ids == (3, 1)
    assert dataset.unknown_class_names == ("a", "c")
    assert dataset.counts == {
        "train": 67,
        "validation": 17,
        "known_test": 36,
        "unknown_test": 80,
    }
    parts = [
        dataset.train,
        dataset.validation,
        dataset.known_test,
        dataset.unknown_test,
    ]
    assert set.union(*map(numbers, parts)) == set(range(200))
    # Every image carries the label of its own class.
    for part, ids in zip(parts, [(3, 1)] * 3 + [(0, 2)], strict=True):
        for image, label in zip(part.images, part.labels, strict=True):
            assert source.labels[int(image[0, 0, 0])] == ids[label]
    # Stratified: 20 and 100 images in the proportion 1 : 5.
    for part in parts[:3]:
        assert np.mean(part.labels == 0) == pytest.approx(1 / 6, abs=0.02)
    assert dataset.openness == pytest.approx(1 - np.sqrt(4 / 6))


def test_given_parts_are_used():
    train = numbered([0, 0, 1, 1, 2, 2])
    test = numbered([0, 1, 3, 3])
    dataset = make_open_set_dataset(
        "made", train, ["a", "b", "c", "d"], [0, 1], test, validation=train
    )
    assert dataset.counts == {
        "train": 4,
        "validation": 4,
        "known_test": 2,
        "unknown_test": 2,
    }
    # Class c is in the training part, but unknown: it is nowhere.
    assert dataset.unknown_class_names == ("d",)


def test_statistics_are_those_of_the_known_training_images(rng):
    images = rng.integers(0, 256, (90, 4, 4, 3)).astype("uint8")
    images[2::3] = 255  # the unknown class
    dataset = make_open_set_dataset(
        "made", Examples(images, np.arange(90) % 3), ["a", "b", "c"], [0, 1]
    )
    mean, std = dataset.channel_statistics
    unit = dataset.train.images / 255.0
    np.testing.assert_allclose(mean, unit.mean(axis=(0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(std, unit.std(axis=(0, 1, 2)), rtol=1e-9)
    assert max(mean) < 0.6


def test_digits_of_a_trial():
    dataset = data.load_open_set_dataset("digits", trial=1)
    assert dataset.class_names == ("0", "3", "5", "7", "8", "9")
    assert dataset.unknown_class_names == ("1", "2", "4", "6")
    assert sum(dataset.counts.values()) == 1797
    assert dataset.split_family == "neal"
    assert dataset.trial == 1
    assert dataset.image_shape == (8, 8, 1)


def test_closed_set_says_so():
    dataset = data.load_open_set_dataset(
        "digits", known_classes=[str(i) for i in range(10)]
    )
    assert dataset.unknown_test.size == 0
    assert dataset.openness == 0.0
    assert "closed-set" in dataset.notes[-1]


def test_classes_need_names_of_their_own():
    source = numbered(np.arange(60) % 3)
    make = make_open_set_dataset
    with pytest.raises(ValueError, match=r"made must be unique; .*: a\."):
        make("made", source, ["a", "b", "a"], [0, 1])
    with pytest.raises(ValueError, match=r"part of made must be unique.*: x\."):
        make(
            "made",
            source,
            ["a", "b", "c"],
            [0, 1],
            unknown=source,
            unknown_class_names=["x", "x", "y"],
        )
    with pytest.raises(ValueError, match=r"made must be UTF.*got 'b\\udcff'"):
        make("made", source, ["a", "b\udcff", "c"], [0, 1])
    with pytest.raises(ValueError, match="both known and unknown: a"):
        make(
            "made",
            source,
            ["a", "b", "c"],
            [0, 1],
            unknown=source,
            unknown_class_names=["x", "a", "y"],
        )
    with pytest.raises(ValueError, match="cannot be named 'unknown'"):
        make("made", source, ["a", "unknown", "c"], [0, 1])


def test_a_class_without_training_examples():
    """Also where nobody made the parts but the caller."""
    examples = numbered(np.arange(10) % 2)
    with pytest.raises(ValueError, match=r"by label: \[5, 5, 0\]; .*a, b, c"):
        data.OpenSetDataset(
            name="made",
            class_names=("a", "b", "c"),
            class_ids=(0, 1, 2),
            unknown_class_names=(),
            unknown_class_ids=(),
            train=examples,
            validation=examples,
            known_test=examples,
            unknown_test=examples.take([]),
        )


def test_labels_in_a_column():
    source = numbered([0, 1, 2] * 10)
    columns = source._replace(labels=source.labels[:, None])
    made = [
        make_open_set_dataset("made", one, ["a", "b", "c"], [0, 1])
        for one in (source, columns)
    ]
    assert made[0].counts == made[1].counts
    np.testing.assert_array_equal(made[0].train.labels, made[1].train.labels)


def test_ids_in_arrays(tmp_path):
    source = numbered(list(range(6)) * 4)
    made = [
        make_open_set_dataset(
            "made",
            source,
            list("abcdef"),
            kind([4, 1]),
            unknown_classes=kind([3, 0]),
            negative_classes=kind([2]),
        )
        for kind in (list, np.array)
    ]
    assert made[0].class_ids == made[1].class_ids == (4, 1)
    assert made[0].counts == made[1].counts
    path = tmp_path / "made.npz"
    dump_arrays(path, made[1])
    again = data.load_open_set_dataset(str(path))
    assert again.unknown_class_names == ("d", "a")


def test_dumped_arrays_need_their_suffix(tmp_path):
    dataset = data.load_open_set_dataset("digits")
    path = tmp_path / "digits"
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"must end in \.npz; got .*digits"):
        dump_arrays(path, dataset)
    assert [p.name for p in tmp_path.iterdir()] == ["digits"]
    assert path.read_text() == "mine"


def test_bad_input():
    source = numbered([0, 0, 0, 1, 1, 1, 2])
    names = ["a", "b", "c"]

    def make(known, **options):
        return make_open_set_dataset("made", source, names, known, **options)

    with pytest.raises(ValueError, match="At least two known classes"):
        make([0])
    many = [str(i) for i in range(100)]
    with pytest.raises(ValueError, match=r"18, 19 and 80 others\.$"):
        make_open_set_dataset("made", source, many, [0])
    with pytest.raises(ValueError, match="made has no class 9; its classes"):
        make([0, 9])
    with pytest.raises(ValueError, match="made has no class -1; its classes"):
        make([0, 1], negative_classes=[-1])
    for seed in (1.5, np.nan, np.inf, "1", -1):
        with pytest.raises(ValueError, match="split_seed must be .* got "):
            make([0, 1], split_seed=seed)
    for labels, message in (
        ([0, 1, -1], "The test part of made: Label -1 at position 2 is out"),
        ([0, 1, 3], "The test part of made: Label 3 at position 2 is out"),
        ([0, 1], "The test part of made has 2 labels for 3 examples"),
    ):
        test = data.Examples(source.images[:3], np.array(labels))
        with pytest.raises(ValueError, match=message):
            make([0, 1], test=test)
    with pytest.raises(ValueError, match="listed twice: a, a"):
        make([0, 0])
    with pytest.raises(ValueError, match="at least 3 .*have fewer: 'c'"):
        make([0, 2])
    with pytest.raises(ValueError, match="validation_fraction must be below 1"):
        make([0, 1], validation_fraction=1.0)
    few = numbered([0] * 20 + [1] * 2)
    for names_of, message in ((None, "classes: 1"), (["cat", "dog"], "'dog'")):
        with pytest.raises(
            ValueError, match=rf"leaves one part without .*{message}\."
        ):
            stratified_split(few, 0.8, 0, names_of)
    with pytest.raises(ValueError, match="no training examples: c"):
        make_open_set_dataset(
            "made", numbered([0, 1]), names, [0, 2], test=source
        )
    with pytest.raises(ValueError, match="no examples of a known class"):
        make_open_set_dataset(
            "made", source, names, [0, 1], test=numbered([2, 2])
        )
    with pytest.raises(ValueError, match="validation part of made has no"):
        make_open_set_dataset(
            "made", source, names, [0, 1], test=source, validation=numbered([2])
        )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"known_classes": ["0", "1"], "trial": 1}, "^trial has no effect"),
        (
            {"known_classes": ["0", "1"], "split_family": "neal"},
            "^split_family has no effect",
        ),
        ({"trial": 7}, "trial must be at most 4; got 7"),
        ({"known_classes": ["0", "11"]}, "no class '11'; did you mean '1'"),
        ({"known_classes": "01"}, "must be a list of strings; got '01'"),
        ({"split_seed": 2**40}, "split_seed must be at most 4294967295; got"),
        ({"test_fraction": 1.5}, "test_fraction must be below 1; got 1.5"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        data.load_open_set_dataset("digits", **options)
