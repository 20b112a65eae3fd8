# SPDX-License-Identifier: Apache-2.0
"""Arrays, tf.Examples and tables: the same answers as photos, and bad rows."""

import copy
import gzip
import json
import os
import tracemalloc

import keras
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import cac_tf
from cac_tf import batch
from cac_tf.batch import inputs as inputs_module
from cac_tf.batch.classifier import Answer
from cac_tf.batch.inputs import TFRecords
from tests.batch.classifier_test import png
from tests.conftest import small_classifier

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only TensorFlow exports"
)


@pytest.fixture(scope="module")
def images(trained_pictures, tmp_path_factory):
    """A classifier of images, 70 of them as files, and its answers."""
    model, pictures = trained_pictures
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    classifier = batch.Classifier.load(str(path))
    rows = np.arange(70) % len(pictures)
    files = [png(pictures[row]) for row in rows]
    return classifier, pictures[rows], files, classifier.classify(files)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A classifier of vectors, 50 of them, and its answers."""
    model = cac_tf.OpenSetClassifier(small_classifier(), list("abc"))
    model.set_threshold(1.0)
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    classifier = batch.Classifier.load(str(path))
    rows = np.random.default_rng(0).standard_normal((50, 5)).astype("float32")
    return classifier, rows, classifier.classify(rows)


def answers(classifier, path, **named):
    (block,) = batch.blocks_of([str(path)], **named)
    found = list(batch.answers_of(classifier, block))
    return [key for key, _ in found], [answer for _, answer in found]


def assert_same(found, expected):
    """Batches differ in size, and so do the last bits."""
    assert [one.label for one in found] == [one.label for one in expected]
    assert [one.error for one in found] == [one.error for one in expected]
    np.testing.assert_allclose(
        [one.unknown_score for one in found],
        [one.unknown_score for one in expected],
        rtol=1e-4,
        atol=1e-5,
    )


def test_arrays(images, vectors, tmp_path, monkeypatch):
    classifier, pictures, _, expected = images
    path = tmp_path / "a.npz"
    np.savez(path, images=pictures, labels=np.zeros(70))
    keys, found = answers(classifier, path)
    assert_same(found, expected)
    assert keys == [f"{path}#{row}" for row in range(70)]
    # One of several, in chunks of 16.
    monkeypatch.setattr("cac_tf.batch.chunks._ROWS", 16)
    classifier, rows, expected = vectors
    np.savez(path, x_train=rows[::-1], x_test=rows, x=rows[:3])
    keys, found = answers(classifier, f"{path}:x_test")
    assert_same(found, expected)
    assert keys[-1] == f"{path}#49"
    assert_same(answers(classifier, path)[1], expected[:3])


@pytest.mark.parametrize(
    ("arrays", "name", "message"),
    [
        (
            {"y": [0]},
            "",
            "must contain an array named images or x; it contains y. Name",
        ),
        (
            {"x": np.zeros(3), "images": [1]},
            "",
            "must contain an array named images",
        ),
        (
            {"x": np.zeros((2, 3))},
            "",
            r"rows of shape \(3,\); the model expects",
        ),
        (
            {"x": np.zeros((2, 5))},
            ":z",
            "must contain an array named z; it contains x",
        ),
    ],
)
def test_arrays_that_do_not_fit(vectors, tmp_path, arrays, name, message):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    keys, (found,) = answers(vectors[0], f"{path}{name}")
    assert keys == [str(path)]
    with pytest.raises(ValueError, match=message):
        raise ValueError(found.error)


def test_an_array_is_read_a_few_rows_at_a_time(vectors, tmp_path):
    classifier, rows, expected = vectors
    path = tmp_path / "a.npz"
    many = np.resize(rows, (400_000, 5))
    np.savez_compressed(path, x=many)
    (block,) = batch.blocks_of([str(path)])
    assert block.num_rows == 400_000
    tracemalloc.start()
    start = 0
    for chunk in block.chunks(classifier):
        end = start + len(chunk.keys)
        np.testing.assert_array_equal(chunk.values, many[start:end])
        start = end
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert start == len(many)
    assert peak < many.nbytes / 4
    # Columns first, as in the transpose of an array.
    np.savez(path, x=np.asfortranarray(rows))
    keys, found = answers(classifier, path)
    assert_same(found, expected)
    assert keys == [f"{path}#{row}" for row in range(50)]


def test_a_damaged_array(vectors, tmp_path):
    """What was read before is answered."""
    classifier, rows, expected = vectors
    path = tmp_path / "a.npz"
    np.savez(path, x=rows)
    content = path.read_bytes()
    for damaged in (content[:-400], b"", b"no file of this kind"):
        path.write_bytes(damaged)
        keys, (found,) = answers(classifier, path)
        assert keys == [str(path)] and "not a readable .npz" in found.error
    damaged = content.replace(b"(50, 5)", b"(99, 5)")
    path.write_bytes(damaged)
    keys, (found,) = answers(classifier, path)
    assert keys == [str(path)] and found.error
    for value, message in ((3.0, "without rows"), ([None] * 2, "Python obj")):
        np.savez(path, x=np.array(value))
        _, (found,) = answers(classifier, path)
        assert message in found.error


def example(**features):
    import tensorflow as tf

    def feature(value):
        if isinstance(value, bytes):
            kind = {"bytes_list": tf.train.BytesList(value=[value])}
        elif np.asarray(value).dtype.kind == "i":
            kind = {"int64_list": tf.train.Int64List(value=value)}
        else:
            kind = {"float_list": tf.train.FloatList(value=value)}
        return tf.train.Feature(**kind)

    features = {
        name.replace("__", "/"): feature(value)
        for name, value in features.items()
    }
    made = tf.train.Example(features=tf.train.Features(feature=features))
    return made.SerializeToString()


def write_records(path, records):
    import tensorflow as tf

    options = "GZIP" if str(path).endswith(".gz") else ""
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecords.gz"])
def test_records_of_images(images, tmp_path, name):
    """As TensorFlow Datasets and others write them; bad rows are errors."""
    classifier, _, files, expected = images
    path = tmp_path / name
    records = [
        example(image__encoded=file, name=f"photo {i}".encode())
        for i, file in enumerate(files)
    ]
    write_records(path, records)
    keys, found = answers(classifier, path)
    assert keys == [f"{path}#{i}" for i in range(70)]
    assert_same(found, expected)
    keys, found = answers(classifier, path, key="name")
    assert keys == [f"photo {i}" for i in range(70)]
    assert_same(found, expected)
    records[3] = example(image=files[3])
    records[5] = example(label=[1])
    records[6] = example(image__encoded=[1.0])
    records[7] = b"\xff\xff"
    records[8] = example(image__encoded=b"no image")
    write_records(path, records)
    _, found = answers(classifier, path)
    bad = {i: found[i].error for i in (5, 6, 7, 8)}
    assert bad[5] == "no feature image/encoded or image; found: label"
    wanted = "does not contain an image file"
    assert bad[6] == f"the feature image/encoded {wanted}"
    assert bad[7].startswith("not a tf.Example: ")
    assert bad[8] == "not a JPEG, PNG, WebP or BMP image"
    good = [i for i in range(70) if i not in bad]
    assert_same([found[i] for i in good], [expected[i] for i in good])
    # A key that is missing, and another name of the image.
    _, found = answers(classifier, path, image="image", key="name")
    assert found[3].error == "the feature name does not contain a single string"
    assert found[4].error == "no feature image; found: image/encoded, name"


def test_records_of_numbers(vectors, tmp_path):
    classifier, rows, expected = vectors
    path = tmp_path / "train.tfrecord-00000-of-00002"
    records = [example(features=row) for row in rows]
    records[1] = example(features=rows[1][:3])
    records[2] = example(features=[0, 1, 0, 0, 2])
    write_records(path, records)
    _, found = answers(classifier, path)
    assert "cannot reshape array of size 3" in found[1].error
    (whole,) = classifier.classify(np.float32([[0, 1, 0, 0, 2]]))
    assert_same([found[2]], [whole])
    assert_same([found[0], *found[3:]], [expected[0], *expected[3:]])


def test_records_of_numbers_are_parsed_at_once(vectors, tmp_path, monkeypatch):
    """By TensorFlow: in Python, parsing takes longer than all the rest."""
    classifier, rows, expected = vectors
    path = tmp_path / "a.tfrecord"

    def refuse(*arguments):
        raise AssertionError("parsed one by one")

    monkeypatch.setattr(TFRecords, "_chunk", refuse)
    names = [f"row {i}".encode() for i in range(49)] + [b"\xff"]
    records = [
        example(features=row, name=name)
        for row, name in zip(rows, names, strict=True)
    ]
    write_records(path, records)
    keys, found = answers(classifier, path)
    assert_same(found, expected)
    assert keys == [f"{path}#{i}" for i in range(50)]
    keys, found = answers(classifier, path, key="name")
    assert_same(found, expected)
    assert keys == [f"row {i}" for i in range(49)] + ["\\xff"]
    whole = np.arange(15).reshape(3, 5)
    write_records(path, [example(features=row) for row in whole])
    expected = classifier.classify(whole.astype("float32"))
    assert_same(answers(classifier, path)[1], expected)


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_the_number_of_records_is_estimated(tmp_path, name):
    path = tmp_path / name
    for count in (0, 1, 99, 100, 101, 1000):
        write_records(path, [bytes(50 + i % 10) for i in range(count)])
        (block,) = batch.blocks_of([str(path)])
        assert block.num_rows == count
    write_records(path, [bytes(i) for i in range(500)])
    assert 500 < block.num_rows < 2500
    for damaged in (b"", b"\x1f\x8b???????????", 20 * b"\xff"):
        path.write_bytes(damaged)
        assert block.num_rows in (0, 1, 100, None)
    path.unlink()
    assert block.num_rows is None


def test_records_that_end_too_soon(images, tmp_path):
    """What stands before is answered, and the file is named."""
    classifier, _, files, expected = images
    path = tmp_path / "a.tfrecord"
    write_records(path, [example(image=file) for file in files])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 5])
    keys, found = answers(classifier, path)
    assert 35 < len(found) < 50 and keys[-1] == str(path)
    assert_same(found[:-1], expected[: len(found) - 1])
    assert "is truncated: it should have" in found[-1].error
    path = tmp_path / "b.tfrecord.gz"
    path.write_bytes(gzip.compress(whole)[:-200])
    keys, found = answers(classifier, path)
    assert keys[-1] == str(path) and found[-1].error
    # A length for which there is no memory.
    path.write_bytes(
        gzip.compress(
            whole + (2**40).to_bytes(8, "little") + b"\x93\xd8\xba\xd0"
        )
    )
    keys, found = answers(classifier, path)
    assert_same(found[:-1], expected)
    assert "record 70 claims to have 1,099,511,627,776 b" in found[-1].error
    os.mkfifo(tmp_path / "pipe.tfrecord")
    keys, (found,) = answers(classifier, tmp_path / "pipe.tfrecord")
    assert "It is a pipe" in found.error
    keys, (found,) = answers(classifier, tmp_path / "none.tfrecord")
    assert "No such file" in found.error


def test_a_record_that_claims_more_than_there_is(images, tmp_path):
    """With a right checksum of its length, which TensorFlow would believe."""
    classifier, _, files, expected = images
    path = tmp_path / "a.tfrecord"
    write_records(path, [example(image=files[0])])
    claims = bytes.fromhex("0000000000010000 68e06f63") + b"abc"
    path.write_bytes(path.read_bytes() + claims)
    keys, (first, found) = answers(classifier, path)
    assert_same([first], expected[:1])
    assert keys == [f"{path}#0", str(path)]
    assert "1,099,511,627,776 bytes" in found.error


def test_a_reader_that_fails_in_any_way(images, tmp_path, monkeypatch):
    classifier, _, files, expected = images
    (tmp_path / "a.parquet").write_bytes(b"")
    (tmp_path / "b.png").write_bytes(files[0])

    def fail(*arguments, **named):
        raise NotImplementedError("Unsupported kind\nof column")

    monkeypatch.setattr(inputs_module.parquet, "ParquetFile", fail)
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.png")]
    (_, table), (_, photo) = batch.classify_files(classifier, paths)
    assert table == Answer(error="NotImplementedError: Unsupported kind")
    assert_same([photo], expected[:1])


@pytest.mark.parametrize("name", ["a.png", "a.npz", "a.tfrecord", "a.parquet"])
def test_a_pipe_is_no_file(images, tmp_path, name):
    """Nobody writes to it, and nobody waits for that."""
    os.mkfifo(tmp_path / name)
    keys, (found,) = answers(images[0], tmp_path / name)
    assert keys == [str(tmp_path / name)]
    assert found.error == "It is a pipe, not a file"


@pytest.mark.parametrize("kind", ["files", "records", "table"])
def test_few_bytes_are_in_memory_at_once(images, tmp_path, monkeypatch, kind):
    classifier, _, files, expected = images
    monkeypatch.setattr(inputs_module, "_BYTES", 3 * max(map(len, files)))
    path = tmp_path / {"records": "a.tfrecord"}.get(kind, "a.parquet")
    if kind == "files":
        paths = [tmp_path / f"{i:02}.png" for i in range(len(files))]
        for path, file in zip(paths, files, strict=True):
            path.write_bytes(file)
        (block,) = batch.blocks_of(map(str, paths))
    else:
        if kind == "records":
            write_records(path, [example(image=file) for file in files])
        else:
            # (Compressed, equal files would be one.)
            parquet.write_table(pa.table({"image": files}), path)
        (block,) = batch.blocks_of([str(path)])
    sizes = [len(one.keys) for one in block.chunks(classifier)]
    assert sum(sizes) == 70 and max(sizes) < 32
    if kind != "table":
        assert max(sizes) in (2, 3)
    assert_same(
        [one for _, one in batch.answers_of(classifier, block)], expected
    )


def test_a_table_of_images(images, tmp_path):
    """As bytes, or as pairs of bytes and path, as some libraries write them."""
    classifier, _, files, expected = images
    path = tmp_path / "a.parquet"
    names = [f"photo {i}" for i in range(70)]
    pairs = [{"bytes": file, "path": "x"} for file in files]
    for column in (files, pairs):
        table = pa.table({"image": column, "id": names, "n": range(70)})
        parquet.write_table(table, path, row_group_size=20)
        keys, found = answers(classifier, path, key="id")
        assert keys == names
        assert_same(found, expected)
        (block,) = batch.blocks_of([str(path)])
        assert block.num_rows == 70
    keys, _ = answers(classifier, path, key="n")
    assert keys == [str(i) for i in range(70)]
    broken = [*files[:3], None, b"no image"]
    parquet.write_table(pa.table({"photo": broken}), path)
    keys, found = answers(classifier, path, image="photo")
    assert keys == [f"{path}#{row}" for row in range(5)]
    assert_same(found[:3], expected[:3])
    assert found[3].error == "the column photo has no image file here"
    assert found[4].error.startswith("not a JPEG")
    _, (found,) = answers(classifier, path)
    assert "no column image and no text columns. Name" in found.error
    path.write_bytes(path.read_bytes()[:-9])
    keys, (found,) = answers(classifier, path)
    assert keys == [str(path)] and "Parquet" in found.error


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_of_paths_of_images(images, tmp_path, ending, monkeypatch):
    classifier, _, files, expected = images
    monkeypatch.setattr(inputs_module, "_FILES", 16)
    names = [f"{row}.png" for row in range(70)]
    for name, content in zip(names, files, strict=True):
        (tmp_path / name).write_bytes(content)
    names[3] = str(tmp_path / names[3])  # Not relative.
    path = tmp_path / f"photos.{ending}"

    def write(**columns):
        if ending == "parquet":
            parquet.write_table(pa.table(columns), path)
        else:
            write_csv(path, columns)

    write(n=range(70), photo=names)
    keys, found = answers(classifier, path)
    assert keys == names
    assert_same(found, expected)
    keys, found = answers(classifier, path, key="n")
    assert keys == [str(row) for row in range(70)]
    assert_same(found, expected)
    names[5], names[6] = "none.png", ""
    write(other=names, photo=names)
    (found,) = answers(classifier, path)[1]
    assert "no column image and 2 text columns: other, photo" in (found.error)
    for one, named in (
        (classifier, {"image": "photo"}),
        (with_columns(classifier, ("photo",)), {}),
    ):
        keys, found = answers(one, path, **named)
        assert keys == [*names[:6], f"{path}#6", *names[7:]]
        assert found[5].error == "No such file or directory"
        assert found[6].error == "No such file or directory"
        assert_same(found[:5] + found[7:], expected[:5] + expected[7:])


def test_a_table_of_numbers(vectors, tmp_path):
    classifier, rows, expected = vectors
    path = tmp_path / "a.parquet"
    values = [*rows.tolist(), [1.0], None]
    parquet.write_table(pa.table({"image": values}), path)
    _, found = answers(classifier, path)
    assert_same(found[:50], expected)
    assert "cannot reshape" in found[50].error
    assert found[51].error == "the column image has no numbers here"
    for values in ([[1.0, None, 1, 1, 1]] * 2, [["a"] * 5] * 2, ["text"] * 2):
        parquet.write_table(pa.table({"image": values}), path)
        _, found = answers(classifier, path)
        assert all(one.error for one in found)
    whole = np.arange(10).reshape(2, 5)
    expected = [*classifier.classify(whole.astype("float32"))]
    parquet.write_table(pa.table({"image": whole.tolist()}), path)
    assert_same(answers(classifier, path)[1], expected)


def test_lists_of_one_size_are_taken_at_once(vectors, tmp_path, monkeypatch):
    """As an array: lists of Python's numbers take longer than all the rest."""
    classifier, rows, expected = vectors
    path = tmp_path / "a.parquet"
    lists = pa.array(rows.tolist(), pa.list_(pa.float32()))
    fixed = pa.FixedSizeListArray.from_arrays(rows.ravel(), 5)

    def check(keys, values, *others):
        assert isinstance(values, np.ndarray)
        return chunk_of_rows(keys, values, *others)

    chunk_of_rows = batch.inputs.chunk_of_rows
    monkeypatch.setattr(batch.inputs, "chunk_of_rows", check)
    monkeypatch.setattr(batch.chunks, "_ROWS", 16)
    for column in (lists, fixed):
        table = pa.table({"image": column})
        parquet.write_table(table, path, row_group_size=20)
        assert_same(answers(classifier, path)[1], expected)


def write_csv(path, columns):
    lines = [",".join(columns)]
    rows = zip(*columns.values(), strict=True)
    lines += [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def test_columns_of_numbers(vectors, tmp_path):
    """As many as the model expects, where nothing says which."""
    classifier, rows, expected = vectors
    named = {name: rows[:, i].tolist() for i, name in enumerate("vwxyz")}
    named = {"name": ["n" + str(i) for i in range(50)], **named}
    table, path = tmp_path / "a.parquet", tmp_path / "a.csv"
    parquet.write_table(pa.table(named), table)
    write_csv(path, named)
    for one in (table, path):
        with pytest.warns(UserWarning, match=r"gets v, w, x, y, z, in this"):
            keys, found = answers(classifier, one)
        assert keys[49] == f"{one}#49"
        assert_same(found, expected)
        known = with_columns(classifier, tuple("vwxyz"))
        assert answers(known, one, key="name")[0][3] == "n3"
    named["w"][7], named["x"][8] = "tall", ""
    write_csv(path, named)
    keys, found = answers(classifier, path)
    assert [i for i, one in enumerate(found) if one.error] == [0]
    assert "4 numeric columns, but the model expects 5" in found[0].error
    found = answers(known, path)[1]
    assert found[7].error == "the column w has no number here"
    assert found[8].error == "the column x has no number here"
    assert_same(found[:7] + found[9:], expected[:7] + expected[9:])


def test_types_of_csv_columns_that_show_late(vectors, tmp_path):
    """Numbers are read as in training, and keys as they are written."""
    classifier, rows, _ = vectors
    rows = np.round(rows[:12])
    rows[-1, 0], rows[:, 1] = 0.5, rows[:, 1] > 0
    named = {name: rows[:, i].tolist() for i, name in enumerate("vwxyz")}
    # The reader looks at the first MiB.
    named["note"] = ["n" * 200_000] * 11 + ["n"]
    named["id"] = [f"{i:03}" for i in range(10)] + ["1.10", "a7"]
    named["v"][:11] = map(int, named["v"][:11])
    named["w"] = [str(bool(value)) for value in named["w"]]
    path = tmp_path / "late.csv"
    write_csv(path, named)
    one = with_columns(classifier, tuple("vwxyz"))
    keys, found = answers(one, path, key="id")
    assert keys == named["id"]
    assert_same(found, [*classifier.classify(rows)])


def with_columns(classifier, columns):
    made = copy.copy(classifier)
    made.input_columns = columns
    return made


def test_the_columns_that_a_model_was_trained_on(vectors, tmp_path):
    classifier, rows, expected = vectors
    path = tmp_path / "a.parquet"
    table = {"other": rows[::-1].tolist(), "mine": rows.tolist()}
    parquet.write_table(pa.table(table), path)
    mine = with_columns(classifier, ("mine",))
    assert_same(answers(mine, path)[1], expected)
    (found,) = answers(classifier, path)[1]
    assert "several columns of lists: other, mine" in found.error
    lost = with_columns(classifier, ("lost",))
    (found,) = answers(lost, path)[1]
    assert "no column lost; its columns are other, mine" in found.error
    # The usual name goes, too, as in the files of groups.
    table = {"other": rows[::-1].tolist(), "features": rows.tolist()}
    parquet.write_table(pa.table(table), path)
    assert_same(answers(lost, path)[1], expected)
    lines = tmp_path / "a.jsonl"
    lines.write_text(
        "".join(f"{json.dumps({'features': row})}\n" for row in rows.tolist())
    )
    assert_same(answers(lost, lines)[1], expected)
    # Fields of numbers are read as columns are.
    x = rows[:1].tolist()[0]
    texts = [str(x[0]), x[1], x[2], x[3], x[4]]
    damaged = (None, "tall", [1], 10**400)
    written = [x, texts, *([one, *x[1:]] for one in damaged)]
    lines.write_text(
        "".join(
            json.dumps({"id": None, **dict(zip("vwxyz", row, strict=True))})
            + "\n"
            for row in written
        )
    )
    five = with_columns(classifier, tuple("vwxyz"))
    keys, found = answers(five, lines, key="id")
    assert keys == [f"{lines}#{row}" for row in range(6)]
    assert_same(found[:2], [expected[0]] * 2)
    assert {one.error for one in found[2:]} == {
        "the field 'v' has no number here"
    }
    # The only column of lists needs no name.
    parquet.write_table(pa.table({"x": rows.tolist(), "id": range(50)}), path)
    assert_same(answers(classifier, path)[1], expected)


def test_an_array_in_a_file_of_its_own(vectors, tmp_path, monkeypatch):
    classifier, rows, expected = vectors
    monkeypatch.setattr(batch.chunks, "_ROWS", 16)
    path = tmp_path / "a.npy"
    np.save(path, rows)
    keys, found = answers(classifier, path)
    assert keys == [f"{path}#{i}" for i in range(50)]
    assert_same(found, expected)
    np.save(path, rows[:, :4])
    (found,) = answers(classifier, path)[1]
    assert "rows of shape (4,); the model expects (5,)" in found.error


def test_keys_of_any_kind(vectors, tmp_path):
    classifier, rows, _ = vectors
    path = tmp_path / "a.parquet"
    for keys, expected in (
        ([b"a", b"\xe9", None], ["a", "\\xe9", f"{path}#2"]),
        ([7, None, 9], ["7", f"{path}#1", "9"]),
    ):
        table = pa.table({"image": rows[:3].tolist(), "id": keys})
        parquet.write_table(table, path)
        assert answers(classifier, path, key="id")[0] == expected


def test_rows_of_any_size(tmp_path):
    inputs = keras.Input((None, 4))
    pooled = keras.layers.GlobalAveragePooling1D()(inputs)
    network = keras.Model(inputs, keras.layers.Dense(3)(pooled))
    model = cac_tf.OpenSetClassifier(network, list("abc"))
    model.set_threshold(1.0)
    model.save(tmp_path / "model.keras")
    classifier = batch.Classifier.load(str(tmp_path / "model.keras"))
    rows = np.random.default_rng(0).standard_normal((6, 5, 4)).astype("f")
    expected = classifier.classify(rows)
    for path in (tmp_path / "a.parquet", tmp_path / "a.tfrecord"):
        values = [row.ravel().tolist() for row in rows]
        for _ in range(2):
            if path.suffix == ".parquet":
                parquet.write_table(pa.table({"features": values}), path)
            else:
                write_records(path, [example(features=v) for v in values])
            _, found = answers(classifier, path, image="features")
            assert_same(found[:6], expected)
            values.append([0.0] * 8)
        assert found[6].error == (
            "its shape is (2, 4), but others read with it have shape (5, 4)"
        )
    table = pa.table({"features": pa.array([[], []], pa.list_(pa.float32()))})
    parquet.write_table(table, tmp_path / "a.parquet")
    _, found = answers(classifier, tmp_path / "a.parquet", image="features")
    assert [one.error for one in found] == ["it contains no numbers"] * 2


def test_images_of_any_size(tmp_path):
    """An axis of one channel may be left out; other shapes are no answers."""
    inputs = keras.Input((None, None, 1))
    convolved = keras.layers.Conv2D(4, 3, activation="relu")(inputs)
    pooled = keras.layers.GlobalAveragePooling2D()(convolved)
    network = keras.Model(inputs, keras.layers.Dense(3)(pooled))
    model = cac_tf.OpenSetClassifier(network, list("abc"))
    model.set_threshold(1.0)
    model.save(tmp_path / "model.keras")
    classifier = batch.Classifier.load(str(tmp_path / "model.keras"))
    rows = np.random.default_rng(0).standard_normal((4, 8, 6, 1)).astype("f")
    expected = classifier.classify(rows)
    path = tmp_path / "a.parquet"

    def answered(images):
        values = [image.tolist() for image in images]
        parquet.write_table(pa.table({"image": values}), path)
        return answers(classifier, path)[1]

    assert_same(answered(rows), expected)
    assert_same(answered(rows[..., 0]), expected)
    first, *found, last = answered(
        [np.zeros((8, 2, 3)), *rows, np.zeros((6, 8, 1))]
    )
    assert_same(found, expected)
    assert first.error == (
        "it has rows of shape (8, 2, 3); the model expects (None, None, 1)."
    )
    assert last.error == (
        "its shape is (6, 8, 1), but others read with it have shape (8, 6, 1)"
    )
    # None fits, and none becomes an image of 1x1.
    for shape in ((1,), (1, 1, 2)):
        found = answered(np.zeros((2, *shape)))
        assert {one.error for one in found} == {
            f"it has rows of shape {shape}; the model expects (None, None, 1)."
        }


def test_a_film_beside_photos(images, tmp_path, monkeypatch):
    classifier, _, files, expected = images
    for name, content in (("a.png", files[0]), ("b.mkv", b"0" * 10_000)):
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(inputs_module, "_LARGEST_FILE", 9_999)
    paths = [str(tmp_path / name) for name in ("a.png", "b.mkv")]
    (block,) = batch.blocks_of(paths)
    (_, photo), (_, film) = batch.answers_of(classifier, block)
    assert_same([photo], expected[:1])
    assert film.error == "the file is too large (10,000 bytes)"


@pytest.mark.parametrize(
    ("path", "file", "name"),
    [
        ("a.npz", "a.npz", ""),
        ("my.npz_files/a.npz", "my.npz_files/a.npz", ""),
        ("x.npz/arrays.npz:x", "x.npz/arrays.npz", "x"),
        ("d.npz:x-test", "d.npz", "x-test"),
        ("d.npz:a/b", "d.npz", "a/b"),
    ],
)
def test_names_of_arrays(path, file, name):
    assert batch.blocks_of([path]) == [inputs_module.NpzArray(file, name)]


def test_blocks_keep_the_order():
    paths = ["a.png", "b.npz:x", "c.jpg", "d.jpg", "e.parquet", "f.tfrecord"]
    paths += ["g.tfrecord-00003-of-00010", "h.tfrecords.gz", "i.npz.old"]
    found = [
        (type(block).__name__, *block.files)
        for block in batch.blocks_of(paths, 1)
    ]
    assert found == [
        ("Photos", "a.png"),
        ("NpzArray", "b.npz"),
        ("Photos", "c.jpg"),
        ("Photos", "d.jpg"),
        ("ParquetRows", "e.parquet"),
        ("TFRecords", "f.tfrecord"),
        ("TFRecords", "g.tfrecord-00003-of-00010"),
        ("TFRecords", "h.tfrecords.gz"),
        ("Photos", "i.npz.old"),
    ]
