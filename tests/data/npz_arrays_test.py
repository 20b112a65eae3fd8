# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from cac_tf.data import load_npz_arrays
from cac_tf.data import load_open_set_dataset


def entries(rng, **changes):
    arrays = {
        "x_train": rng.integers(0, 256, (60, 8, 8, 3)).astype("uint8"),
        "y_train": np.arange(60) % 3,
        "x_test": rng.integers(0, 256, (16, 8, 8, 3)).astype("uint8"),
        "y_test": np.arange(16) % 4,
    }
    arrays.update(changes)
    return {k: v for k, v in arrays.items() if v is not None}


def test_parts_and_names(rng, tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, **entries(rng, class_names=["a", "b", "c", "d"]))
    dataset = load_open_set_dataset(str(path), known_classes=["c", "a"])
    assert dataset.class_names == ("c", "a")
    assert dataset.counts == {
        "train": 32,
        "validation": 8,
        "known_test": 8,
        "unknown_test": 8,
    }
    assert dataset.unknown_class_names == ("b", "d")


def test_grey_images_and_column_labels(rng, tmp_path):
    path = tmp_path / "data.npz"
    np.savez(
        path,
        x_train=rng.random((6, 8, 8)),
        y_train=np.array([[0], [1]] * 3, "uint8"),
    )
    arrays = load_npz_arrays(path)
    assert arrays.train.images.shape == (6, 8, 8, 1)
    assert arrays.train.labels.tolist() == [0, 1] * 3
    assert arrays.class_names == ("0", "1")
    assert arrays.test is None


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"y_train": None}, "must hold x_train and y_train"),
        ({"y_test": None}, "both x_test and y_test"),
        ({"y_train": np.arange(59) % 3}, r"one class id per image, \(60,\)"),
        ({"y_train": np.eye(3)[np.arange(60) % 3]}, "one class id per image"),
        ({"y_train": np.full(60, 0.5)}, "whole numbers"),
        ({"y_train": np.full(60, -1)}, "class id below 0"),
        ({"x_test": np.zeros((16, 9, 9, 3))}, "differ in shape"),
        ({"x_train": np.zeros((60, 8))}, r"\(n, height, width, channels\)"),
        ({"x_train": np.full((60, 8, 8, 3), np.nan)}, r"NaN.*\[0, 1, 2"),
        ({"class_names": ["a", "b"]}, "2 class_names but labels up to 3"),
    ],
)
def test_bad_entries(rng, tmp_path, changes, message):
    path = tmp_path / "data.npz"
    np.savez(path, **entries(rng, **changes))
    with pytest.raises(ValueError, match=message):
        load_npz_arrays(path)


def test_bad_files(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        load_npz_arrays(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match="no readable"):
        load_npz_arrays(tmp_path / "text.npz")
    # An object array would run code when it is unpickled.
    np.savez(tmp_path / "object.npz", x_train=np.array([{}]), y_train=[0])
    with pytest.raises(ValueError, match="no readable"):
        load_npz_arrays(tmp_path / "object.npz")
