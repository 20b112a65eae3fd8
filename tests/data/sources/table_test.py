# SPDX-License-Identifier: Apache-2.0
"""Tables and arrays of numbers: what is read, and what is refused."""

import csv

import numpy as np
import PIL.Image
import pyarrow
import pyarrow.parquet
import pytest

from cac_tf.data import DataOptions
from cac_tf.data import dump_arrays
from cac_tf.data import load_open_set_dataset
from cac_tf.data.number_rows import column_statistics
from cac_tf.experiments import ExperimentConfig

SPLITS = ("train", "train", "dev", "test")
NAMES = ("10", "9", "rose")


def columns(count=30, **changes):
    """Three classes; the rows tell who they are."""
    numbers = np.arange(count)
    made = {
        "width": numbers / 2,
        "length": 1000.0 - numbers,
        "label": [NAMES[i % 3] for i in range(count)],
        "split": [
            ("train", "train", "dev", "test")[i // 3 % 4] for i in numbers
        ],
        **changes,
    }
    return {name: values for name, values in made.items() if values is not None}


def write_csv(path, **changes):
    made = columns(**changes)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(made)
        writer.writerows(zip(*made.values(), strict=True))
    return str(path)


def write_parquet(path, **changes):
    pyarrow.parquet.write_table(pyarrow.table(columns(**changes)), path)
    return str(path)


@pytest.fixture(params=["csv", "parquet"])
def write(request, tmp_path):
    writer = {"csv": write_csv, "parquet": write_parquet}[request.param]
    return lambda **changes: writer(
        tmp_path / f"made.{request.param}", **changes
    )


def load(path, **options):
    return load_open_set_dataset(
        path, **{"known_classes": ["rose", "9"], **options}
    )


def test_rows_labels_and_parts(write):
    path = write()
    dataset = load(path)
    assert dataset.input_columns == ("width", "length")
    assert dataset.unknown_class_names == ("10",)
    assert dataset.counts == {
        "train": 12,
        "validation": 4,
        "known_test": 4,
        "unknown_test": 2,
    }
    for part, splits in (
        ("train", ("train",)),
        ("validation", ("dev",)),
        ("known_test", ("test",)),
    ):
        examples = getattr(dataset, part)
        for values, label, name in zip(*examples, examples.names, strict=True):
            row = int(name.removeprefix(f"{path}#"))
            assert values.tolist() == [row / 2, 1000 - row]
            assert dataset.class_names[label] == NAMES[row % 3]
            assert columns()["split"][row] in splits
    assert dataset.unknown_test.images[:, 0].tolist() == [4.5, 10.5]


def test_columns_by_name(write):
    path = write(
        intent=[NAMES[i % 3] for i in range(30)],
        label=None,
        split=None,
        text=["a text"] * 30,
    )
    dataset = load(path, label_column="intent", input_columns=["length"])
    assert dataset.input_columns == ("length",)
    assert dataset.image_shape == (1,)
    assert dataset.notes[0] == (
        f"these columns of {path} are not used: width, text"
    )
    assert dataset.counts["train"] + dataset.counts["validation"] == 14


def test_a_column_of_vectors(tmp_path):
    vectors = [[float(i), 0.5] for i in range(30)]
    path = write_parquet(tmp_path / "made.parquet", vector=vectors)
    dataset = load(path)
    assert dataset.input_columns == ("vector",)
    rows = [int(name.split("#")[1]) for name in dataset.train.names]
    np.testing.assert_array_equal(dataset.train.images[:, 0], rows)
    with pytest.raises(
        ValueError, match="of the same length; row 0 has 2 .*row 7"
    ):
        vectors[7] = [1.0]
        load(write_parquet(tmp_path / "made.parquet", vector=vectors))
    vectors[7] = [1.0, None]
    with pytest.raises(ValueError, match=r"vector of .*in 1 of 30 rows.*: 7\."):
        load(write_parquet(tmp_path / "made.parquet", vector=vectors))
    path = write_parquet(
        tmp_path / "made.parquet", vector=vectors, other=vectors
    )
    with pytest.raises(ValueError, match="Name .*: input_columns=vector"):
        load(path)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {},
            {"input_columns": ["depth"]},
            "no column depth; its columns are width",
        ),
        (
            {},
            {"split_column": "part"},
            "no column part; its columns are width, length",
        ),
        (
            {"label": None},
            {},
            r"label; its columns are width, length, split\. Name",
        ),
        (
            {"width": ["1"] * 7 + ["wide"] + ["2"] * 22},
            {},
            r"column width of .*row 7 .* 'wide'.*one column of texts",
        ),
        (
            {"width": [1.0] * 7 + [float("nan")] * 2 + [2.0] * 21},
            {},
            r"column width of .*made.*in 2 of 30 rows \(counted.*: 7, 8\.",
        ),
        ({"label": ["rose"] * 30}, {}, "no class '9'.* Its classes: rose"),
        (
            {"split": ["train"] * 29 + ["later"]},
            {},
            "parts of the data set, train, .*test; it contains later",
        ),
        ({"split": ["test"] * 30}, {}, "has no row with train"),
        ({}, {"image_size": 8}, "image_size has no effect"),
        ({}, {"split_seed": 1}, "split_seed has no effect"),
    ],
)
def test_what_is_refused(write, changes, options, message):
    path = write(**changes)
    with pytest.raises(ValueError, match=message):
        load(path, **options)


@pytest.fixture
def photos(tmp_path):
    """Names of files whose brightness is 4 times their row's number."""
    (tmp_path / "photos").mkdir()
    names = [f"photos/{row}.{'JPG' if row % 2 else 'png'}" for row in range(30)]
    for row, name in enumerate(names):
        image = PIL.Image.new("RGB", (12, 9), (4 * row,) * 3)
        image.save(tmp_path / name)
    return names


NO_NUMBERS = {"width": None, "length": None}


@pytest.mark.parametrize("stream", [False, True])
def test_a_column_of_paths_of_images(write, photos, tmp_path, stream):
    photos[8] = str(tmp_path / photos[8])  # Not relative.
    path = write(photo=photos)
    options = DataOptions(path, known_classes=("rose", "9"), image_size=8)
    config = ExperimentConfig(options)
    assert config.takes_images and config.recipe_in_force.flip == 0.5
    dataset = load(path, image_size=8, stream=stream)
    assert dataset.input_columns == ("photo",)
    assert dataset.image_shape == (8, 8, 3)
    assert dataset.counts["train"] == 12
    for part in ("train", "validation", "known_test"):
        examples = getattr(dataset, part)
        for image, label, name in zip(
            examples.images[:], examples.labels, examples.names, strict=True
        ):
            row = photos.index(name)
            assert (np.abs(image.astype(int) - 4 * row) <= 1).all()
            assert dataset.class_names[label] == NAMES[row % 3]
    assert dataset.notes[-1].endswith("not used: width, length")
    # By name, where there are several.
    path = write(photo=photos, other=photos[::-1])
    with pytest.raises(ValueError, match=r"paths of images: photo, other\. N"):
        load(path)
    assert (
        load(path, input_columns=["other"], image_size=8).train.names[0]
        == (photos[::-1][1])
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_row_whose_file_is_no_image(write, photos, tmp_path, stream):
    (tmp_path / photos[4]).write_bytes(b"no image")
    path = write(photo=photos, **NO_NUMBERS)
    dataset = load(path, stream=stream)
    assert (
        "1 file was skipped (not a JPEG, PNG, WebP or BMP image): "
        f"{photos[4]} (row 4)"
    ) in dataset.notes
    assert photos[4] not in dataset.train.names
    assert dataset.counts["train"] == 11
    with pytest.raises(ValueError, match=rf"{photos[4]} \(row 4\) cannot be "):
        load(path, strict=True, stream=stream)


@pytest.mark.parametrize(
    ("row", "value", "message"),
    [
        (7, "photos/none.jpg", r"files that do not exist \(looked for in "),
        (7, "photos/\0.jpg", r"files that do not exist \(looked for in "),
        (7, "a sentence.", "names files that are not images in 1 rows"),
        (0, "photos", "names files that are not images in 1 rows"),
    ],
)
def test_a_row_without_a_file(write, photos, row, value, message):
    photos[row] = value
    with pytest.raises(ValueError, match=message) as caught:
        load(write(photo=photos, **NO_NUMBERS))
    said = str(caught.value)
    assert said.startswith("The column photo of ")
    assert said.endswith(f"row {row} (counted from 0): {value!r}.")


def test_an_empty_column_is_none_of_paths(write):
    path = write(photo=[None] * 30, **NO_NUMBERS)
    with pytest.raises(ValueError, match="photo of .* empty in 30 rows, .*w 0"):
        load(path)
    # Texts that name an image now and then are texts.
    texts = ["a sentence"] * 20 + ["see 1.jpg"] * 10
    dataset = load(write(text=texts))
    assert dataset.kind_of_inputs == "texts"


def test_files_that_are_none(tmp_path):
    for ending in ("csv", "parquet", "npy"):
        path = tmp_path / f"none.{ending}"
        with pytest.raises(ValueError, match="File not found"):
            load(str(path))
    for ending in ("csv", "parquet", "npy"):
        path = tmp_path / f"empty.{ending}"
        path.write_bytes(b"")
        with pytest.raises(ValueError, match="cannot be read|not a readable"):
            load(str(path), **({"labels": "y.npy"} if ending == "npy" else {}))


def test_vectors_with_labels_in_a_table(tmp_path):
    vectors = np.arange(60, dtype="float16").reshape(30, 2)
    np.save(tmp_path / "x.npy", vectors)
    path = str(tmp_path / "x.npy")
    labels = write_csv(tmp_path / "y.csv")
    dataset = load(path, labels=labels)
    assert dataset.counts["train"] == 12
    rows = [int(name.removeprefix(f"{path}#")) for name in dataset.train.names]
    np.testing.assert_array_equal(dataset.train.images, vectors[rows])
    with pytest.raises(ValueError, match="missing: give labels=FILE"):
        load(path)
    np.save(tmp_path / "y.npy", np.arange(29))
    with pytest.raises(ValueError, match="29 labels for the 30 vectors"):
        load(path, labels=str(tmp_path / "y.npy"))
    with pytest.raises(ValueError, match="split_column=s has no effect"):
        load(path, labels=str(tmp_path / "y.npy"), split_column="s")
    vectors[3, 1] = np.inf
    np.save(tmp_path / "x.npy", vectors)
    with pytest.raises(ValueError, match=r"x\.npy: .*in 1 of 30 rows.*: 3\."):
        load(path, labels=labels)


def test_vectors_in_an_npz(tmp_path):
    path = str(tmp_path / "made.npz")
    vectors = np.random.default_rng(0).normal(0, 300, (30, 4))
    np.savez(path, x_train=vectors, y_train=np.arange(30) % 3)
    dataset = load(path, known_classes=["2", "0"])
    assert not dataset.holds_images
    # Their scale stays, negative numbers too.
    rows = {tuple(row) for row in np.float32(vectors).tolist()}
    assert {tuple(row) for row in dataset.train.images.tolist()} <= rows
    again = str(tmp_path / "again.npz")
    dump_arrays(again, dataset)
    assert load_open_set_dataset(again).digests == dataset.digests
    vectors[5, 0] = np.nan
    np.savez(path, x_train=vectors, y_train=np.arange(30) % 3)
    with pytest.raises(ValueError, match=r"x_train in .*made\.npz: .*: 5\."):
        load(path, known_classes=["2", "0"])


def test_columns_that_are_dumped_stay_columns(tmp_path):
    dataset = load(write_csv(tmp_path / "a.csv"))
    again = str(tmp_path / "again.npz")
    dump_arrays(again, dataset)
    for options in ({}, {"known_classes": ["9", "rose"]}):
        found = load_open_set_dataset(again, **options)
        assert found.input_columns == ("width", "length")
    assert load_open_set_dataset(again).channel_statistics == (
        dataset.channel_statistics
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["007", "7", "042"], ("007", "042", "7")),
        (["True", "False", "False"], ("False", "True")),
        (["10", "-3", "7"], ("-3", "7", "10")),
    ],
)
def test_labels_in_csv_are_as_they_are_written(tmp_path, labels, expected):
    path = write_csv(tmp_path / "a.csv", label=labels * 10)
    found = load_open_set_dataset(path, known_classes=list(expected))
    assert found.class_names == expected
    rows = found.train.images[:, 0] * 2
    assert [found.class_names[i] for i in found.train.labels] == [
        (labels * 10)[int(row)] for row in rows
    ]


def test_csv_that_is_not_utf_8_says_so(tmp_path):
    path = write_csv(tmp_path / "a.csv", text=["grün"] * 30)
    with open(path, encoding="utf-8") as file:
        content = file.read()
    with open(path, "w", encoding="cp1252") as file:
        file.write(content)
    with pytest.raises(ValueError, match="column text of .*UTF-8: save the"):
        load_open_set_dataset(path)


def test_empty_texts_are_refused(tmp_path):
    texts = ["a text"] * 30
    texts[4] = texts[7] = ""
    path = write_csv(tmp_path / "a.csv", text=texts)
    with pytest.raises(ValueError, match="text of .*empty in 2 rows.*row 4 "):
        load_open_set_dataset(path)
    labels = ["a", "", "b"] * 10
    path = write_csv(tmp_path / "a.csv", label=labels)
    with pytest.raises(ValueError, match="label of .*empty in 10 .*row 1 "):
        load_open_set_dataset(path)


def test_columns_are_scaled_each_and_vectors_as_one():
    values = np.random.default_rng(0).normal([5, -2], [1, 3], (50, 2))
    mean, std = column_statistics(values, are_columns=True)
    scaled = (values - mean) / std
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), 1)
    mean, std = column_statistics(values)
    scaled = (values - mean) / std
    np.testing.assert_allclose(np.mean(scaled**2), 1 / 2)
    np.testing.assert_allclose(scaled / values, 1 / std[0])
    # Euros beside shares are columns, whatever is said.
    mean, std = column_statistics(values * [1, 1e4])
    assert std[1] > 1e3 * std[0]
