# SPDX-License-Identifier: Apache-2.0
import errno
import os
import shutil

import numpy as np
import PIL.Image
import pytest

from cac_tf.data import image_facts
from cac_tf.data import image_reading
from cac_tf.data import load_open_set_dataset
from cac_tf.data import unknown_data
from cac_tf.data.sources.image_folder import folder_classes
from cac_tf.data.sources.image_folder import load_image_folder
from cac_tf.data.unknown_data import load_unknown_images
from cac_tf.layers import ImagePreprocessing
from tests import image_files


def paint(path, color, mode="RGB", size=(10, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new(mode, size, color).save(path)


@pytest.fixture
def flat_folder(tmp_path):
    """One sub-folder a class: 20 red, 10 green, 5 blue images, all unlike."""
    for name, color, count in (
        ("red", (200, 0, 0), 20),
        ("green", (0, 200, 0), 10),
        ("blue", (0, 0, 200), 5),
    ):
        for i in range(count):
            shade = tuple(value and value + i for value in color)
            paint(tmp_path / name / f"{i:02}.png", shade)
    return tmp_path


def test_a_folder_a_class(flat_folder):
    folder = load_image_folder(flat_folder, image_size=10)
    assert folder.class_names == ("blue", "green", "red")
    assert np.bincount(folder.train.labels).tolist() == [5, 10, 20]
    assert folder.test is folder.validation is None
    assert folder.notes == ()
    # Channel 2, 1 or 0 is lit, by class.
    lit = folder.train.images.mean(axis=(1, 2)).argmax(axis=1)
    np.testing.assert_array_equal(lit, 2 - folder.train.labels)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_images_are_resampled_as_the_first_layer_does(
    interpolation, stream, tmp_path, rng
):
    """Smaller photos and larger ones; a served model sees the files as is."""
    photos = []
    for name in ("a", "b"):
        for i, size in enumerate((9, 12, 40, 60, 11, 30)):
            coarse = rng.integers(0, 256, (6, 6, 3)).astype("uint8")
            photo = PIL.Image.fromarray(coarse).resize((size, size))
            paint(tmp_path / name / f"{i}.png", 0)
            photo.save(tmp_path / name / f"{i}.png")
            photos.append(np.asarray(photo))
    parts = load_image_folder(
        tmp_path, 20, stream=stream, interpolation=interpolation
    )
    layer = ImagePreprocessing(20, 20, interpolation)
    for image, photo in zip(parts.train.images[:], photos, strict=True):
        expected = 255 * np.asarray(layer(photo[None]))[0]
        assert np.abs(image - expected).max() <= 1.5


@pytest.mark.parametrize("stream", [False, True])
def test_each_image_keeps_the_name_of_its_file(stream, tmp_path):
    """Through unreadable files, the split and the choice of classes."""
    for label, name in enumerate(("a", "b", "c")):
        for i in range(12):
            shade = 20 * i + label
            paint(tmp_path / name / f"{shade}.png", (shade,) * 3)
    (tmp_path / "a" / "0.png").write_bytes(b"no image")
    dataset = load_open_set_dataset(
        "folder",
        data_dir=str(tmp_path),
        known_classes=["b", "a"],
        stream=stream,
    )
    seen = set()
    for part in ("train", "validation", "known_test", "unknown_test"):
        examples = getattr(dataset, part)
        names = dataset.class_names
        if part == "unknown_test":
            names = dataset.unknown_class_names
        for name, image, label in zip(
            examples.names, examples.images[:], examples.labels, strict=True
        ):
            assert name == os.path.join(names[label], f"{image[0, 0, 0]}.png")
            seen.add(name)
    assert len(seen) == 35


def test_given_parts_with_a_class_in_test_alone(tmp_path):
    for part, classes in (
        ("train", ("a", "b")),
        ("validation", ("a", "b")),
        ("test", ("a", "b", "c")),
    ):
        for name in classes:
            for i in range(3):
                paint(tmp_path / part / name / f"{i}.png", (9, 9, 9))
    dataset = load_open_set_dataset(
        "folder", data_dir=str(tmp_path), known_classes=["a", "b"]
    )
    assert dataset.counts == {
        "train": 6,
        "validation": 6,
        "known_test": 6,
        "unknown_test": 3,
    }
    assert dataset.unknown_class_names == ("c",)
    with pytest.raises(ValueError, match="no training images: c"):
        load_open_set_dataset(
            "folder", data_dir=str(tmp_path), known_classes=["a", "c"]
        )


@pytest.mark.parametrize(
    "files",
    [
        # A part of another name, and classes called train and test.
        ["train/a/0.png", "train/b/0.png", "test/a/0.png", "val/a/0.png"],
        ["train/a/0.png", "train/b/0.png", "test/c/0.png", "val/c/0.png"],
        *(
            ["train/0.png", "test/0.png", f"val/0.{ending}"]
            for ending in ("png", "WEBP", "jfif")
        ),
    ],
)
def test_folders_beside_the_parts(tmp_path, files):
    """Whether they are parts or classes, they are not left out."""
    for name in files:
        paint((tmp_path / name).with_suffix(".png"), (9, 9, 9))
        (tmp_path / name).with_suffix(".png").rename(tmp_path / name)
    with pytest.raises(ValueError, match="train and test, but also val"):
        load_image_folder(tmp_path)


def test_other_folders_beside_the_parts(tmp_path):
    """Such as the runs of a user who is inside the folder."""
    for part in ("train", "test"):
        for name in "ab":
            paint(tmp_path / part / name / "0.png", (9, 9, 9))
    paint(tmp_path / "runs" / "folder" / "picture.png", (9, 9, 9))
    (tmp_path / "annotations").mkdir()
    for name in ("0.xml", "0.pdf", "0.svg", "0.h5"):
        (tmp_path / "annotations" / name).touch()
    images = load_image_folder(tmp_path)
    assert images.class_names == ("a", "b")
    assert images.train.size == images.test.size == 2
    assert images.notes[-1] == (
        "folders next to train and test are ignored: annotations, runs"
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("target", ["nowhere.png", "link.png"])
def test_a_link_that_leads_nowhere(flat_folder, target, stream):
    (flat_folder / "red" / "link.png").symlink_to(target)
    why = "No such file" if target == "nowhere.png" else "symbolic links"
    with pytest.raises(ValueError, match=rf"red/link\.png.*{why}"):
        load_image_folder(flat_folder, stream=stream)


def test_a_link_to_no_file(flat_folder):
    """Opening a pipe that nobody writes to would wait for ever."""
    os.mkfifo(flat_folder / "pipe")
    (flat_folder / "red" / "link.png").symlink_to(flat_folder / "pipe")
    before = load_image_folder(flat_folder).train.size
    (flat_folder / "red" / "link.png").unlink()
    assert load_image_folder(flat_folder).train.size == before


@pytest.mark.parametrize("stream", [False, True])
def test_linked_folders_are_read_once(flat_folder, tmp_path_factory, stream):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for i in range(3):
        paint(elsewhere / "more" / f"{i}.png", (0, 0, 100))
    blue = flat_folder / "blue"
    (blue / "a").symlink_to(elsewhere / "more")
    (blue / "b").symlink_to(elsewhere)  # Holds the same folder, and
    (elsewhere / "round").symlink_to(blue)  # this one.
    paint(blue / "own" / "0.png", (0, 0, 100))
    (blue / "before").symlink_to(blue / "own")
    part = load_image_folder(flat_folder, stream=stream).train
    assert np.bincount(part.labels).tolist() == [9, 10, 20]
    assert "blue/own/0.png" in part.names
    assert not any("before" in name for name in part.names)


def test_memory_that_is_short_is_no_fault_of_the_image(
    flat_folder, monkeypatch
):
    def short(*args):
        raise MemoryError

    monkeypatch.setattr(image_facts, "read_image", short)
    with pytest.raises(MemoryError):
        load_image_folder(flat_folder, stream=False)
    monkeypatch.setattr(unknown_data, "read_image", short)
    with pytest.raises(MemoryError):
        load_unknown_images(f"folder:{flat_folder}", (8, 8, 3))


def test_every_kind_of_image_is_converted_and_counted(tmp_path):
    paint(tmp_path / "a" / "rgb.png", (255, 128, 0))
    paint(tmp_path / "a" / "grey.png", 128, "L")
    paint(tmp_path / "a" / "alpha.png", (255, 128, 0, 99), "RGBA")
    paint(tmp_path / "a" / "wide.jpg", (255, 128, 0), size=(40, 20))
    paint(tmp_path / "a" / "bits16.png", 128 * 256, "I;16")
    red = PIL.Image.new("RGB", (10, 10), (200, 0, 0))
    red.quantize().save(tmp_path / "a" / "palette.bmp")
    folder = load_image_folder(tmp_path, image_size=10)
    assert folder.train.images.shape == (6, 10, 10, 3)
    by_name = dict(
        zip(
            ["alpha", "bits16", "grey", "palette", "rgb", "wide"],
            folder.train.images,
            strict=True,
        )
    )
    np.testing.assert_array_equal(by_name["alpha"][5, 5], [255, 128, 0])
    np.testing.assert_array_equal(by_name["bits16"][5, 5], [128, 128, 128])
    np.testing.assert_array_equal(by_name["grey"][5, 5], [128, 128, 128])
    np.testing.assert_array_equal(by_name["palette"][5, 5], [200, 0, 0])
    np.testing.assert_allclose(by_name["wide"][5, 5], [255, 128, 0], atol=3)
    notes = " / ".join(folder.notes)
    assert "2 images in grayscale" in notes
    assert "1 image with an alpha channel" in notes
    assert "1 image of another size" in notes
    assert "1 image of another color mode" in notes


@pytest.mark.parametrize("stream", [False, True])
def test_files_that_a_served_model_would_not_read(flat_folder, stream, rng):
    """Each is named, with the reason, before training."""
    pixels = rng.integers(0, 256, (20, 20, 3), "uint8")
    expected = {}
    for i, (said, file) in enumerate(image_files.not_read(pixels)):
        (flat_folder / "red" / f"bad_{i:02}").write_bytes(file)
        expected.setdefault(said, []).append(f"red/bad_{i:02}")
    # A chunk of a length that makes Pillow raise a SyntaxError.
    png = (flat_folder / "red" / "00.png").read_bytes()
    broken = png[:33] + b"\x00\x00\x00\x01IDA\x00" + png[41:]
    (flat_folder / "red" / "broken.png").write_bytes(broken)
    expected["a damaged PNG image"].append("red/broken.png")
    (flat_folder / "red" / ".DS_Store").write_bytes(b"hidden")
    folder = load_image_folder(flat_folder, stream=stream)
    assert folder.train.size == 35
    for said, names in expected.items():
        skipped = f"skipped ({said}): {', '.join(names)}"
        assert any(note.endswith(skipped) for note in folder.notes)
    with pytest.raises(
        ValueError, match=r"bad_00 cannot be read: it is an image in GIF format"
    ):
        load_image_folder(flat_folder, strict=True, stream=stream)


def test_a_class_of_which_nothing_is_read(flat_folder):
    for path in (flat_folder / "blue").iterdir():
        path.unlink()
    paint(flat_folder / "blue" / "1.tiff", (0, 0, 200))
    with pytest.raises(ValueError, match=r"examples: blue. .*TIFF.*1\.tiff"):
        load_open_set_dataset(
            "folder", data_dir=str(flat_folder), known_classes=["red", "blue"]
        )
    known = {"known_classes": ["red", "green"]}
    load_open_set_dataset("folder", data_dir=str(flat_folder), **known)


@pytest.mark.parametrize("stream", [False, True])
def test_a_photo_above_the_limit_of_pixels(flat_folder, stream, rng):
    """It is noted before training, with its size and the limit."""
    (flat_folder / "red" / "huge.png").write_bytes(
        image_files.png_that_claims(20_000, 10_000)
    )
    folder = load_image_folder(flat_folder, stream=stream)
    assert folder.train.size == 35
    assert folder.notes[-1] == (
        "1 file was skipped (an image of 20,000 x 10,000 pixels; the limit "
        "is 67,108,864, or max_image_pixels for an exported model): "
        "red/huge.png"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_images_that_are_there_twice(tmp_path, stream):
    """In two classes, in train and test, or in one class: noted once each."""
    for part, count in (("train", 6), ("test", 3)):
        for place, name in enumerate("ab"):
            for i in range(count):
                color = (i, place, len(part))
                paint(tmp_path / part / name / f"{i}.png", color)
    assert load_image_folder(tmp_path, stream=stream).notes[1:] == ()
    for source, target in (
        ("train/a/1.png", "train/b/copy.png"),
        ("train/a/2.png", "train/b/other.png"),
        ("train/a/1.png", "test/a/copy.png"),
        ("train/b/3.png", "train/b/again.png"),
    ):
        shutil.copy(tmp_path / source, tmp_path / target)
    folder = load_image_folder(tmp_path, stream=stream)
    assert folder.notes[1:] == (
        "2 images are in more than one class, such as train/a/1.png and "
        "train/b/copy.png",
        "1 image is in more than one part, such as train/b/copy.png and "
        "test/a/copy.png",
        "1 image is more than once in one class, such as train/b/3.png and "
        "train/b/again.png",
    )
    assert folder.train.size == 15


@pytest.mark.parametrize("stream", [False, True])
def test_a_part_without_images(tmp_path, stream):
    for name in ("red", "blue"):
        (tmp_path / "validation" / name).mkdir(parents=True)
        for part in ("train", "test"):
            paint(tmp_path / part / name / "1.png", 1)
    with pytest.raises(ValueError, match="validation part of folder has no e"):
        load_open_set_dataset(
            "folder",
            data_dir=str(tmp_path),
            known_classes=["red", "blue"],
            stream=stream,
        )


def test_the_spelling_of_a_folder_does_not_matter(flat_folder, monkeypatch):
    monkeypatch.chdir(flat_folder.parent)
    load_image_folder(flat_folder.name, stream=True)
    monkeypatch.setattr(
        image_facts, "read_image", None
    )  # It is not read again.
    for name in (f"./{flat_folder.name}", f"{flat_folder.name}/", flat_folder):
        load_image_folder(name, stream=True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_disk_that_fails_once(flat_folder, monkeypatch, stream):
    """Says nothing about the image, and so nothing is kept."""
    bad = str(flat_folder / "red" / "00.png")

    def failing(path):
        if str(path) == bad:
            raise OSError(errno.EIO, "Input/output error")
        return open(path, "rb")

    monkeypatch.setattr(image_facts, "opened", failing)
    with pytest.raises(ValueError, match=f"{bad} cannot be read: Input/outp"):
        load_image_folder(flat_folder, stream=stream)
    monkeypatch.undo()
    folder = load_image_folder(flat_folder, stream=stream, strict=True)
    assert folder.train.size == 35


def test_files_are_read_once(flat_folder, monkeypatch):
    """What was found is kept until a file is another one."""
    (flat_folder / "red" / "notes.txt").write_text("not an image")
    looked, look_at = [], image_facts.look_at

    def counting(paths, *arguments):
        looked.append(len(paths))
        return look_at(paths, *arguments)

    monkeypatch.setattr(image_reading, "look_at", counting)
    first = load_image_folder(flat_folder, stream=True)
    again = load_image_folder(flat_folder, stream=True)
    assert looked == [36]
    assert (flat_folder / ".cac_tf" / "train_32.npz").is_file()
    assert again.class_names == first.class_names == ("blue", "green", "red")
    assert again.notes == first.notes and "notes.txt" in again.notes[-1]
    for name, values in first.train.images.facts.arrays().items():
        kept = again.train.images.facts.arrays()[name]
        np.testing.assert_array_equal(kept, values)
    # Another content, one file less, another size.
    paint(flat_folder / "red" / "00.png", (1, 2, 3))
    changed = load_image_folder(flat_folder, stream=True)
    assert not np.array_equal(
        changed.train.images.facts.digests, first.train.images.facts.digests
    )
    (flat_folder / "red" / "01.png").unlink()
    assert load_image_folder(flat_folder, stream=True).train.size == 34
    load_image_folder(flat_folder, image_size=16, stream=True)
    assert looked == [36, 36, 35, 35]


def test_a_file_name_that_is_no_utf8(flat_folder):
    """It is read, or named by its escapes."""
    folder = os.fsencode(flat_folder / "red")
    shutil.copy(flat_folder / "red" / "00.png", folder + b"/copy\xff.png")
    with open(folder + b"/broken\xff.png", "wb") as file:
        file.write(b"not an image")
    images = load_image_folder(flat_folder)
    assert images.train.size == 36
    assert "broken\udcff.png" in images.notes[-1]


def test_a_class_name_that_is_no_utf8(flat_folder, monkeypatch):
    monkeypatch.setattr(image_facts, "read_image", None)
    os.mkdir(os.fsencode(flat_folder) + b"/gr\xfcn")
    with pytest.raises(
        ValueError, match=r"must be UTF-8 strings .*; got 'gr\\udcfcn'"
    ):
        load_open_set_dataset(
            "folder", data_dir=str(flat_folder), known_classes=["red", "green"]
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"known_classes": ["red", "geen"]}, "'geen'; did you mean 'green'"),
        ({"known_classes": ["red", "void"]}, "no training images: void"),
        ({"known_classes": None}, "needs known_classes"),
        ({"known_classes": ["red"]}, "At least two known classes"),
        ({"known_classes": ["red", "red"]}, "listed twice: red, red"),
        ({"unknown_classes": ["blu"]}, "did you mean 'blue'"),
        ({"unknown_classes": ["red"]}, "both known and unknown: red"),
        ({"negative_classes": ["void"]}, "no training images: void"),
        ({"image_size": 0}, "image_size must be at least 1; got 0"),
        ({"image_size": 16.5}, "image_size must be a whole number"),
        ({"validation_fraction": 0.0}, "validation_fraction must be above 0"),
        ({"split_seed": -1}, "split_seed must be"),
    ],
)
def test_found_before_an_image_is_decoded(
    flat_folder, monkeypatch, options, message
):
    monkeypatch.setattr(image_facts, "read_image", None)
    (flat_folder / "void").mkdir()
    options = {"known_classes": ["red", "green"], **options}
    with pytest.raises(ValueError, match=message):
        load_open_set_dataset("folder", data_dir=str(flat_folder), **options)


def test_bad_input(flat_folder, tmp_path):
    with pytest.raises(ValueError, match="Folder not found"):
        folder_classes(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no subfolder"):
        folder_classes(tmp_path / "empty")
    with pytest.raises(ValueError, match="dataset='folder' needs data_dir"):
        load_open_set_dataset("folder", known_classes=["a", "b"])
