# SPDX-License-Identifier: Apache-2.0
"""Pixels of any source get one scale, or are refused."""

import io

import numpy as np
import PIL.Image
import pytest

from cac_tf import data
from cac_tf.data import Examples
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.data.pixel_scale import on_one_scale
from cac_tf.data.sources.npz_arrays import dump_arrays
from cac_tf.data.streamed_images import StreamedImages

LABELS = np.arange(60) % 3


def pixels(rng):
    """Images with values 0...255, black and white among them."""
    images = rng.integers(0, 256, (60, 4, 4, 3)).astype("uint8")
    images[:, 0, 0] = 0
    images[:, 0, 1] = 255
    return images


def load(tmp_path, **entries):
    """The data of an .npz file with these entries."""
    path = tmp_path / "made.npz"
    np.savez(path, **{"y_train": LABELS, **entries})
    return data.load_open_set_dataset(str(path), known_classes=["0", "2"])


def all_images(dataset):
    parts = (getattr(dataset, name).images for name in dataset.counts)
    return np.concatenate(list(parts))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda x: x, None),
        (lambda x: x.astype("int64"), None),
        (lambda x: x.astype("float64"), None),
        (lambda x: x.astype("float16"), None),
        (lambda x: np.float32(x / 255.0), "0...1 were scaled"),
        (lambda x: x / 255.0, "0...1 were scaled"),
        # Of a computation that rounds.
        (lambda x: np.float32(x / 254.99), "0...1 were scaled"),
        (lambda x: x.astype("uint16") * 257, "0...65535 were scaled"),
        (lambda x: x.astype("int32") * 257, "0...65535 were scaled"),
    ],
)
def test_the_same_images_on_any_scale(rng, tmp_path, change, note):
    images = pixels(rng)
    expected = load(tmp_path, x_train=images)
    found = load(tmp_path, x_train=change(images))
    tolerance = 0.03
    for part in expected.counts:
        one, two = getattr(expected, part), getattr(found, part)
        np.testing.assert_array_equal(one.labels, two.labels)
        np.testing.assert_allclose(one.images, two.images, atol=tolerance)
    assert len(found.notes) == (note is not None)
    assert note is None or note in found.notes[0]
    if note:
        assert all_images(found).dtype == np.float32


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64"])
def test_black_and_white(rng, tmp_path, dtype):
    images = rng.integers(0, 2, (60, 4, 4)).astype(dtype)
    found = all_images(load(tmp_path, x_train=images))
    assert found.dtype == np.uint8
    assert set(np.unique(found)) == {0, 255}
    assert np.mean(found == 255) == images.mean()


def test_what_white_is_can_be_said(rng, tmp_path):
    """For a camera of 12 bits, for dark images, for labels of segments."""
    images = pixels(rng)
    twelve = np.uint16(np.round(images * (4095 / 255)))
    found = load(tmp_path, x_train=twelve, white=4095)
    assert "0...4095 were scaled to 0...255" in found.notes[0]
    expected = load(tmp_path, x_train=images)
    np.testing.assert_allclose(
        all_images(found), all_images(expected), atol=0.04
    )
    # Without a word it would be taken for 16 bits: dark, with a note.
    dark = load(tmp_path, x_train=twelve)
    assert "train is 4095, and 65535 is assumed to be white" in dark.notes[1]
    ones = rng.integers(0, 2, (60, 4, 4)).astype("uint8")
    found = load(tmp_path, x_train=ones, white=255)
    assert found.notes == ()
    assert set(np.unique(all_images(found))) == {0, 1}


def test_images_that_are_all_black_or_dark(tmp_path):
    dark = np.full((60, 4, 4), 16, "uint8")
    found = load(tmp_path, x_train=dark)
    assert "largest pixel value in train is 16, and 255" in found.notes[0]
    assert set(np.unique(all_images(found))) == {16}
    found = load(tmp_path, x_train=np.zeros((60, 4, 4)))
    assert "largest pixel value in train is 0, and 255" in found.notes[0]


def one_pixel(value, dtype="float32"):
    images = np.zeros((60, 4, 4), dtype)
    images[:, 0] = 200
    images[7, 1, 2] = value
    return images


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (one_pixel(np.nan), r"train contain NaN or infinity, in rows \[7\]"),
        (one_pixel(-np.inf), r"NaN or infinity, in rows \[7\]"),
        (one_pixel(-1), "go down to -1, below 0.*without normalization"),
        (one_pixel(-1, "int16"), "go down to -1, below 0"),
        (one_pixel(1e30), r"go up to 1e\+30. They must be"),
        (one_pixel(256), "go up to 256. They must be"),
        (one_pixel(65536, "int32"), "go up to 65536. They must be"),
        (one_pixel(0) / 160, "go up to 1.25, which is neither 0...1 nor"),
        (one_pixel(0) / 100 - 1, "go down to -1, below 0"),
        (one_pixel(0) / 100 - 3, "go down to -3, below 0"),
        (one_pixel(0, "complex64"), "must be numbers"),
        (one_pixel(0).astype(str), "must be numbers"),
    ],
)
def test_what_cannot_be_pixels(tmp_path, images, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, x_train=images)


def test_all_parts_have_the_scale_of_the_training_images(rng, tmp_path):
    images = pixels(rng)
    unit = np.float32(images / 255.0)
    test = {"y_test": LABELS}
    found = load(tmp_path, x_train=unit, x_test=unit * 0.3, **test)
    assert found.known_test.images.max() == pytest.approx(0.3 * 255)
    for one, two, message in (
        (images, unit, "255 in train, 1 in test"),
        (unit, images, "1 in train, 255 in test"),
        (np.uint16(images) * 257, images, "65535 in train, 255 in test"),
        (images, unit * 1.5, "test go up to 1.5, which is neither"),
        (images, unit - 0.5, "test go down to -0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            load(tmp_path, x_train=one, x_test=two, **test)
    with pytest.raises(ValueError, match="255 in train, 1 in negatives"):
        load(tmp_path, x_train=images, x_negatives=unit)
    # If it is said, nothing is guessed.
    found = load(tmp_path, x_train=images, x_test=unit, white=255, **test)
    assert found.known_test.images.max() == 1
    with pytest.raises(
        ValueError, match="test go up to 255, above the value of white"
    ):
        load(tmp_path, x_train=unit, x_test=images, white=1, **test)


def test_images_from_files_have_255(rng):
    file = io.BytesIO()
    PIL.Image.new("L", (8, 8), 1).save(file, "png")
    streamed = StreamedImages([file.getvalue()] * 4, 8, channels=1)
    parts, notes = on_one_scale({"train": streamed, "test": None})
    assert parts == {"train": streamed, "test": None}
    assert notes == ()
    unit = rng.random((5, 8, 8, 1))
    with pytest.raises(ValueError, match="255 in train, 1 in test"):
        on_one_scale({"train": streamed, "test": unit})
    with pytest.raises(ValueError, match="1 in train, 255 in test"):
        on_one_scale({"train": unit, "test": streamed})
    with pytest.raises(ValueError, match="white must be a number above 0"):
        on_one_scale({"train": unit}, white=float("nan"))


def test_data_made_in_python_and_dumped(rng, tmp_path):
    unit = np.float32(pixels(rng) / 255.0)
    found = make_open_set_dataset(
        "made", Examples(unit, LABELS), ["a", "b", "c"], [0, 1]
    )
    assert found.train.images.max() == 255
    assert "0...1 were scaled" in found.notes[0]
    # What was dumped is not scaled again.
    dark = np.uint8(pixels(rng) > 127)
    made = make_open_set_dataset(
        "made", Examples(dark, LABELS), ["a", "b", "c"], [0, 1], white=255
    )
    dump_arrays(tmp_path / "dump.npz", made)
    again = data.load_open_set_dataset(str(tmp_path / "dump.npz"))
    np.testing.assert_array_equal(all_images(again), all_images(made))
    assert again.digests == made.digests
