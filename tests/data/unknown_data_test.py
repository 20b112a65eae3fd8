# SPDX-License-Identifier: Apache-2.0
"""Unknown test images from elsewhere, in the form that a model takes."""

import os
import tracemalloc

import numpy as np
import PIL.Image
import pytest

from cac_tf.data.image_file import read_image
from cac_tf.data.unknown_data import load_unknown_images


@pytest.fixture
def photos(tmp_path, rng):
    """Two images in folders of any depth, and a file that is none."""
    folder = tmp_path / "photos"
    (folder / "a" / "b").mkdir(parents=True)
    for path, shape in (
        (folder / "1.png", (9, 7, 3)),
        (folder / "a/b/2.png", (8, 8)),
    ):
        pixels = rng.integers(0, 256, shape, "uint8")
        PIL.Image.fromarray(pixels).save(path)
    (folder / "a" / "notes.txt").write_text("none")
    return folder


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder(photos, channels):
    images, notes = load_unknown_images(f"folder:{photos}", (8, 8, channels))
    assert images.dtype == np.uint8
    expected = [
        read_image(photos / name, 8, channels)[0]
        for name in ("1.png", "a/b/2.png")
    ]
    np.testing.assert_array_equal(images, expected)
    assert "1 image of another size was converted" in notes
    assert notes[-1] == (
        "1 file was skipped (not a JPEG, PNG, WebP or BMP image): a/notes.txt"
    )


@pytest.mark.parametrize(
    ("scale", "dtype"), [(1, "uint8"), (1 / 255, "float32"), (257, "uint16")]
)
@pytest.mark.parametrize("shape", [(5, 8, 8), (5, 8, 8, 1), (5, 8, 8, 3)])
def test_arrays_of_any_scale(tmp_path, rng, scale, dtype, shape):
    pixels = rng.integers(0, 256, shape)
    pixels.flat[0] = 255
    path = tmp_path / "made.npz"
    images = (pixels * scale).astype(dtype)
    if shape == (5, 8, 8):  # Among other arrays, or the only one.
        np.savez(path, x_train=np.zeros((9, 8, 8)), x_test=images)
    else:
        np.savez(path, images)
    channels = shape[3] if len(shape) == 4 else 1
    images, notes = load_unknown_images(f"npz:{path}", (8, 8, channels))
    np.testing.assert_array_equal(images, pixels.reshape(5, 8, 8, channels))
    assert bool(notes) == (scale != 1)


@pytest.mark.parametrize(
    ("dtype", "white"), [("uint16", 4095), ("float32", 1.5), ("uint8", 1)]
)
@pytest.mark.parametrize("name", ["x_test", "x"])
def test_white_is_said(tmp_path, dtype, white, name):
    values = np.array([0, 0.2 if white > 1 else 0, 1]) * white
    path = tmp_path / "made.npz"
    images = values.astype(dtype).reshape(3, 1, 1)
    np.savez(path, **{name: images, "white": white})
    pixels, notes = load_unknown_images(f"npz:{path}", (1, 1, 1))
    expected = np.rint(images.ravel() * (255.0 / white))
    np.testing.assert_array_equal(pixels.ravel(), expected)
    assert f"of 0...{white} were scaled" in notes[0]
    np.savez(path, **{name: images * 2, "white": white})
    with pytest.raises(ValueError, match=f"Pixel values of {name} go up"):
        load_unknown_images(f"npz:{path}", (1, 1, 1))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": np.zeros((3, 8, 8)), "b": np.zeros(3)}, "or as its only array"),
        ({"a": np.zeros((3, 8))}, r"of shape \(3, 8\)"),
        ({"a": np.zeros((3, 8, 8, 2))}, "1 or 3 channels"),
        ({"a": np.full((3, 8, 8), np.nan)}, "NaN"),
        ({"a": np.full((3, 8, 8), -1.0)}, "below 0|-1"),
        ({"a": np.zeros((0, 8, 8))}, "contains no images"),
    ],
)
def test_files_that_hold_no_images(tmp_path, entries, message):
    path = tmp_path / "made.npz"
    np.savez(path, **entries)
    with pytest.raises(ValueError, match=message):
        load_unknown_images(f"npz:{path}", (8, 8, 1))


@pytest.mark.parametrize("name", ["x_test", "made"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_memory_is_known_before_it_is_needed(
    tmp_path, monkeypatch, name, dtype
):
    """That is, the array as it is and as the pixels of a model."""
    path = tmp_path / "made.npz"
    images = np.ones((200, 64, 64, 3), dtype)
    np.savez(path, **{name: images})
    tracemalloc.start()
    load_unknown_images(f"npz:{path}", (64, 64, 3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.1 * images.nbytes
    memory = type("Memory", (), {"available": 1.9 * images.nbytes})
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    with pytest.raises(ValueError, match="GiB of memory"):
        load_unknown_images(f"npz:{path}", (64, 64, 3))


@pytest.mark.parametrize(
    ("source", "shape", "message"),
    [
        ("mnist", (8, 8, 1), "must be given as folder:.*got 'mnist'"),
        ("tfds:", (8, 8, 1), "got 'tfds:'"),
        ("folder:no/such", (8, 8, 1), "Folder not found: no/such"),
        ("npz:no/such.npz", (8, 8, 1), "File not found: no/such.npz"),
        ("npz:a.npz", (8, 9, 1), r"the model expects \(8, 9, 1\)"),
        ("npz:a.npz", (8, 8, 2), r"the model expects \(8, 8, 2\)"),
    ],
)
def test_sources_that_there_are_not(source, shape, message):
    with pytest.raises(ValueError, match=message):
        load_unknown_images(source, shape)


def test_an_empty_folder_and_a_damaged_file(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="contains no images"):
        load_unknown_images(f"folder:{tmp_path / 'folder'}", (8, 8, 1))
    path = tmp_path / "a.npz"
    path.write_bytes(b"PK no zip")
    with pytest.raises(ValueError, match="not a readable .npz file"):
        load_unknown_images(f"npz:{path}", (8, 8, 1))


@pytest.mark.skipif(
    not os.environ.get("TFDS_DATA_DIR"),
    reason="TFDS_DATA_DIR is not set: no prepared data sets here",
)
def test_a_set_of_tfds():
    """CIFAR100's test images, in grey, for a model of digits."""
    images, notes = load_unknown_images("tfds:cifar100", (8, 8, 1))
    assert images.shape == (10_000, 8, 8, 1)
    assert images.dtype == np.uint8
    assert notes == ()
    assert 100 < images.mean() < 140
