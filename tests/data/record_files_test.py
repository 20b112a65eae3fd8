# SPDX-License-Identifier: Apache-2.0
"""Images that stay in TFRecord and Parquet files."""

import io
import os
import pathlib
import tracemalloc

import numpy as np
import PIL.Image
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from cac_tf import data
from cac_tf.data import image_facts
from cac_tf.data import kept_beside
from cac_tf.data import record_files
from cac_tf.data import streamed_images
from cac_tf.data.sources.record_folder import load_record_folder
from cac_tf.data.streamed_images import StreamedImages

SIZE = 6


@pytest.fixture
def photos(rng):
    """Files of images, some of them converted when they are read."""
    files = []
    for i in range(40):
        pixels = rng.integers(0, 256, (SIZE + (i % 3 == 0), SIZE, 3), "uint8")
        image = PIL.Image.fromarray(pixels)
        file = io.BytesIO()
        (image.convert("L") if i % 5 == 0 else image).save(file, "png")
        files.append(file.getvalue())
    return files


def example(image, label, image_name="image", label_name="label"):
    def feature(value):
        if isinstance(value, int):
            values = tf.train.Int64List(value=[value])
            return tf.train.Feature(int64_list=values)
        value = value.encode() if isinstance(value, str) else value
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    features = {image_name: feature(image), label_name: feature(label)}
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


def write_records(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def write_tfrecords(folder, photos, labels):
    for part, rows in (("train", range(30)), ("test", range(30, 40))):
        for shard in range(2):
            write_records(
                folder / f"{part}.tfrecord-0000{shard}-of-00002",
                [example(photos[i], labels[i]) for i in rows[shard::2]],
            )


def write_parquet(folder, photos, labels):
    for part, rows in (("train", range(30)), ("test", range(30, 40))):
        for shard in range(2):
            chosen = list(rows)[shard::2]
            table = pyarrow.table(
                {
                    "image": [{"bytes": photos[i]} for i in chosen],
                    "label": [labels[i] for i in chosen],
                }
            )
            path = folder / f"{part}-{shard}.parquet"
            pyarrow.parquet.write_table(table, path)


LABELS = {
    "numbers": [(7, 3, 11)[i % 3] for i in range(40)],
    "texts": [("ü", "a", "b")[i % 3] for i in range(40)],
}


@pytest.mark.parametrize("kind", list(LABELS))
@pytest.mark.parametrize("write", [write_tfrecords, write_parquet])
def test_streamed_and_in_memory_are_the_same(tmp_path, photos, write, kind):
    labels = LABELS[kind]
    write(tmp_path, photos, labels)
    memory, streamed = [
        load_record_folder(tmp_path, SIZE, stream) for stream in (False, True)
    ]
    assert memory.notes == streamed.notes
    assert memory.notes[0] == "8 images in grayscale were converted to RGB, 6x6"
    names = ("3", "7", "11") if kind == "numbers" else ("a", "b", "ü")
    assert memory.class_names == streamed.class_names == names
    order = [*range(0, 30, 2), *range(1, 30, 2)]
    own = [names.index(str(labels[i])) for i in order]
    np.testing.assert_array_equal(streamed.train.labels, own)
    for part in ("train", "test"):
        one, two = getattr(memory, part), getattr(streamed, part)
        assert isinstance(two.images, StreamedImages)
        np.testing.assert_array_equal(one.images, two.images[:])
        np.testing.assert_array_equal(one.labels, two.labels)
    expected = image_facts.read_image(photos[order[4]], SIZE)[0]
    np.testing.assert_array_equal(streamed.train.images[4], expected)


def test_facts_agree_with_numpy(photos):
    facts = image_facts.look_at([*photos, b"no image"], SIZE, 3, "test")
    images = [image_facts.read_image(one, SIZE)[0] for one in photos]
    pixels = np.array(images, "float64")
    np.testing.assert_array_equal(facts.sums[:-1], pixels.sum((1, 2)))
    squares = np.square(pixels).sum((1, 2))
    np.testing.assert_array_equal(facts.squares[:-1], squares)
    assert facts.is_readable.tolist() == [True] * 40 + [False]
    streamed = StreamedImages(photos, SIZE)
    total, of_squares, count = streamed.channel_sums()
    assert count == 40 * SIZE**2
    np.testing.assert_array_equal(total, pixels.sum((0, 1, 2)))
    np.testing.assert_array_equal(of_squares, squares.sum(0))
    rows = np.array([3, 0])
    chosen, both = streamed.subset(rows), streamed.joined(streamed.subset(rows))
    np.testing.assert_array_equal(chosen.facts.sums, facts.sums[rows])
    np.testing.assert_array_equal(both[40:], streamed[rows])
    np.testing.assert_array_equal(both[[41, 2]], streamed[[0, 2]])
    np.testing.assert_array_equal(both.subset([1, 41])[1], streamed[0])
    np.testing.assert_array_equal(both.facts.digests[41], facts.digests[0])


def test_files_are_looked_at_once(tmp_path, photos, monkeypatch):
    write_tfrecords(tmp_path, photos, LABELS["numbers"])
    calls = []
    real = image_facts.look_at

    def look_at(*arguments, **options):
        calls.append(arguments[-1])
        return real(*arguments, **options)

    monkeypatch.setattr("cac_tf.data.record_files.look_at", look_at)
    first = load_record_folder(tmp_path, SIZE, stream=True)
    again = load_record_folder(tmp_path, SIZE, stream=True)
    assert calls == ["train", "test"]
    np.testing.assert_array_equal(first.train.labels, again.train.labels)
    np.testing.assert_array_equal(
        first.train.images.facts.sums, again.train.images.facts.sums
    )
    # Another size, then a file that was touched.
    load_record_folder(tmp_path, SIZE + 1, stream=True)
    assert calls[2:] == ["train", "test"]
    os.utime(tmp_path / "test.tfrecord-00000-of-00002", (1, 1))
    load_record_folder(tmp_path, SIZE, stream=True)
    assert calls[4:] == ["test"]
    # What is damaged is computed again.
    kept = tmp_path / ".cac_tf" / f"train_{SIZE}x3.npz"
    kept.write_bytes(kept.read_bytes()[:500])
    load_record_folder(tmp_path, SIZE, stream=True)
    assert calls[5:] == ["train"]


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError("read-only")

    monkeypatch.setattr(kept_beside.os, "makedirs", refuse)
    calls = []

    def compute():
        calls.append(1)
        return {"x": np.arange(3)}

    for _ in range(2):
        kept = kept_beside.kept_beside(tmp_path, "x", [], compute)
        np.testing.assert_array_equal(kept["x"], range(3))
    assert len(calls) == 2 and not list(tmp_path.iterdir())


def test_parquet_that_cannot_be_copied(tmp_path, photos):
    write_parquet(tmp_path, photos, LABELS["numbers"])
    (tmp_path / ".cac_tf").write_text("in the way")
    with pytest.raises(ValueError, match="have to be copied.*convert them"):
        load_record_folder(tmp_path, SIZE)


def test_parquet_is_copied_once(tmp_path, photos):
    write_parquet(tmp_path, photos, LABELS["numbers"])
    copies = tmp_path / ".cac_tf"
    copies.mkdir()
    # A killed copy of other Parquet files than those that are there now.
    (copies / ".train_0123456789abcdef.tfrecord").write_bytes(b"half")

    def copied():
        load_record_folder(tmp_path, SIZE, stream=True)
        (path,) = copies.glob("train_*.tfrecord")
        return path, path.stat().st_mtime_ns

    first = copied()
    assert copied() == first
    # That of another file takes its place.
    os.utime(tmp_path / "train-0.parquet", (1, 1))
    assert copied()[0] != first[0]
    assert not list(copies.glob(".*"))
    suffixes = sorted(path.suffix for path in copies.iterdir())
    assert suffixes == 4 * [".npz"] + 2 * [".tfrecord"]


def test_places_of_records_take_little_memory(tmp_path):
    """While they are looked for, too."""
    path, count = str(tmp_path / "train.tfrecord"), 20_000
    write_records(path, [example(b"x", "label")] * count)
    tracemalloc.start()
    found = record_files._index([path], ["image"], ["label"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["places"].shape == (count, 3)
    assert set(found["labels"]) == {"label"}
    # Three numbers of 8 bytes, twice, a pointer to the label and its letters.
    assert peak / count < 120


def test_a_file_that_is_replaced(tmp_path, photos):
    """By another one of the same name, as `rsync` does it."""
    path = tmp_path / "train.tfrecord"
    write_records(path, [example(photos[i], i % 2) for i in range(4)])
    old = load_record_folder(tmp_path, SIZE, stream=True).train.images
    pixels = old[:]
    write_records(
        tmp_path / "new", [example(photos[i], i % 2) for i in range(9, 4, -1)]
    )
    os.rename(tmp_path / "new", path)
    new = load_record_folder(tmp_path, SIZE, stream=True).train.images
    expected = [
        image_facts.read_image(photos[i], SIZE)[0] for i in range(9, 4, -1)
    ]
    np.testing.assert_array_equal(new[:], expected)
    # The old file is still open.
    np.testing.assert_array_equal(old[:], pixels)
    record_files._opened.cache_clear()
    with pytest.raises(ValueError, match="was replaced while it was in use"):
        old[0]
    np.testing.assert_array_equal(new[:], expected)


@pytest.mark.parametrize(
    "name", ["train-1.tfrecord.gz", "train.tfrecord.gz-00000-of-00001"]
)
def test_compressed_files_are_not_left_out(tmp_path, photos, name):
    # (The folder may be called like one.)
    tmp_path = tmp_path / "all.parquet.gz"
    tmp_path.mkdir()
    write_tfrecords(tmp_path, photos, LABELS["numbers"])
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "train.tfrecord.idx").write_bytes(b"of another library")
    with pytest.raises(ValueError, match=f"{name} is compressed"):
        load_record_folder(tmp_path, SIZE)
    (tmp_path / name).unlink()
    assert load_record_folder(tmp_path, SIZE).train.size == 30


@pytest.mark.parametrize("length", [2**40, 2**64 - 1, 2**20])
def test_a_record_that_claims_more_than_there_is(tmp_path, photos, length):
    """TensorFlow would make room for it, and end the process."""
    path = tmp_path / "train.tfrecord"
    write_records(path, [example(photo, 1) for photo in photos[:3]])
    assert record_files.whole_records(path) == (3, "")
    with open(path, "ab") as file:
        file.write(length.to_bytes(8, "little") + b"1234" + bytes(99))
    count, problem = record_files.whole_records(path)
    assert count == 3
    assert f"{length:,} bytes" in problem
    with pytest.raises(ValueError, match=f"truncated or damaged: {problem}"):
        load_record_folder(tmp_path, SIZE)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([b"\xff\xff"], "Record 0, in .*, is not a tf.Example"),
        ([example(b"", 1, image_name="x")], "has no image.*it has label, x"),
        ([example(b"", 1, label_name="x")], "has no label.*it has image, x"),
        (
            [example(b"a", 1), example(b"a", "b")],
            "do not all store images and labels the same way",
        ),
        ([example(b"a", b"caf\xe9")], "has a label that is not valid UTF-8"),
        (
            [example(b"junk", 1)],
            "1 image of train cannot be read; .* record 0.*not a JPEG, PNG",
        ),
    ],
)
def test_bad_records(tmp_path, records, message):
    write_records(tmp_path / "train.tfrecord", records)
    with pytest.raises(ValueError, match=message):
        load_record_folder(tmp_path, SIZE)


@pytest.mark.parametrize("kind", list(LABELS))
@pytest.mark.parametrize("stream", [False, True])
def test_a_part_without_records(tmp_path, photos, kind, stream):
    write_parquet(tmp_path, photos, LABELS[kind])
    for path in tmp_path.glob("test*"):
        path.unlink()
    table = pyarrow.table({"image": [photos[0]], "label": LABELS[kind][:1]})
    pyarrow.parquet.write_table(table[:0], tmp_path / "test.parquet")
    parts = load_record_folder(tmp_path, SIZE, stream)
    assert parts.test.images.shape == (0, SIZE, SIZE, 3)
    assert parts.class_names == tuple(map(str, sorted(set(LABELS[kind]))))
    for path in tmp_path.glob("train*"):
        path.unlink()
    pyarrow.parquet.write_table(table[:0], tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="contain no records"):
        load_record_folder(tmp_path, SIZE, stream)


def test_damaged_tables(tmp_path, photos):
    write_parquet(tmp_path, photos, LABELS["numbers"])
    damaged = tmp_path / "train-0.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"train-0\.parquet cannot be read"):
        load_record_folder(tmp_path, SIZE)
    damaged.unlink()
    damaged.mkdir()
    with pytest.raises(ValueError, match=r"train-0\.parquet cannot be read"):
        load_record_folder(tmp_path, SIZE)


def test_bad_folders(tmp_path, photos):
    with pytest.raises(ValueError, match="needs data_dir"):
        data.load_open_set_dataset("records", known_classes=["a", "b"])
    with pytest.raises(ValueError, match="Folder not found"):
        load_record_folder(tmp_path / "x")
    with pytest.raises(ValueError, match="no file whose name begins with trai"):
        load_record_folder(tmp_path)
    write_tfrecords(tmp_path, photos, LABELS["numbers"])
    # The test part is there: nothing may set it apart.
    with pytest.raises(ValueError, match="test_fraction has no effect"):
        data.load_open_set_dataset(
            "records",
            data_dir=str(tmp_path),
            known_classes=["3", "7"],
            test_fraction=0.2,
        )
    damaged = tmp_path / "train.tfrecord-00001-of-00002"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-3])
    with pytest.raises(ValueError, match="00001.* is truncated or damaged"):
        load_record_folder(tmp_path, SIZE)
    damaged.write_bytes(content[:99] + b"?" + content[100:])
    with pytest.raises(ValueError, match="00001.* is truncated or damaged"):
        load_record_folder(tmp_path, SIZE)
    damaged.write_bytes(content)
    table = pyarrow.table({"image": [photos[0]], "label": ["cat"]})
    pyarrow.parquet.write_table(table, tmp_path / "validation.parquet")
    with pytest.raises(ValueError, match="integers in some files and strings"):
        load_record_folder(tmp_path, SIZE)
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="two formats, TFRecord and Parquet"):
        load_record_folder(tmp_path, SIZE)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"label": ["a"]},
            "no column image/encoded or image; its columns are label",
        ),
        ({"image": [b""]}, "no column label or image/class/label"),
        (
            {"image": ["x"], "label": ["a"]},
            "Row 0 of .* must have an image as bytes",
        ),
        ({"image": [b"x"], "label": [0.5]}, "a label that is an integer"),
    ],
)
def test_bad_tables(tmp_path, columns, message):
    path = tmp_path / "train.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(ValueError, match=message):
        load_record_folder(tmp_path, SIZE)
    assert not list((tmp_path / ".cac_tf").glob("*.tfrecord"))


def test_tfds_shards_are_read_where_they_are(tmp_path, photos, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    names = ["cat", "dog", "hen"]

    class Photos(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(None, None, 3)),
                "label": tfds.features.ClassLabel(names=names),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, photo in enumerate(photos):
                yield i, {"image": io.BytesIO(photo), "label": names[i % 3]}

    builder = Photos(data_dir=str(tmp_path))
    builder.download_and_prepare()
    from cac_tf.data import tfds_images

    for classes in (None, [0, 2]):
        memory, streamed = [
            tfds_images.read_split(builder, "train", classes, SIZE, stream)
            for stream in (False, True)
        ]
        assert not isinstance(streamed.images.sources[0:2], np.ndarray)
        np.testing.assert_array_equal(memory.images, streamed.images[:])
        np.testing.assert_array_equal(memory.labels, streamed.labels)
    kept = pathlib.Path(builder.data_dir) / ".cac_tf"
    assert {path.name for path in kept.iterdir()} == {
        "train_records.npz",
        f"train_{SIZE}x3.npz",
    }
    # Large ones by themselves; of few classes not.
    limit = 30 * SIZE**2 * 3
    monkeypatch.setattr(streamed_images, "MOST_BYTES_IN_MEMORY", limit)
    many = tfds_images.read_split(builder, "train", None, SIZE)
    few = tfds_images.read_split(builder, "train", [0], SIZE)
    assert isinstance(many.images, StreamedImages)
    assert isinstance(few.images, np.ndarray)
    np.testing.assert_array_equal(few.images, many.images[many.labels == 0])
