# SPDX-License-Identifier: Apache-2.0
"""What is no file is refused by name, and nobody waits for it."""

import os

import numpy as np
import pytest

from cac_tf.data.image_facts import content_of
from cac_tf.data.image_file import read_image
from cac_tf.data.record_files import whole_records
from cac_tf.data.sources import npz_arrays
from cac_tf.data.sources import record_folder
from cac_tf.data.unknown_data import load_unknown_images

WAYS = {
    "image.png": read_image,
    "photo.png": content_of,
    "array.npz": npz_arrays.load_npz_arrays,
    "x_test.npz": lambda path: load_unknown_images(f"npz:{path}", (8, 8, 1)),
    "a.tfrecord": whole_records,
    "train.tfrecord": lambda path: record_folder.load_record_folder(
        path.parent
    ),
    "train.parquet": lambda path: record_folder.load_record_folder(path.parent),
}


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
@pytest.mark.parametrize("name", list(WAYS))
def test_no_file(tmp_path, name, kind):
    path = tmp_path / name
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises((OSError, ValueError), match=f"{kind}, not a file") as e:
        WAYS[name](path)
    assert str(path) in str(e.value)


def test_what_is_kept_is_computed_if_a_pipe_is_in_its_place(tmp_path):
    from cac_tf.data.kept_beside import kept_beside

    (tmp_path / ".cac_tf").mkdir()
    os.mkfifo(tmp_path / ".cac_tf" / "x.npz")
    for _ in range(2):
        kept = kept_beside(tmp_path, "x", [], lambda: {"x": np.arange(3)})
        np.testing.assert_array_equal(kept["x"], range(3))
    assert (tmp_path / ".cac_tf" / "x.npz").is_file()
