# SPDX-License-Identifier: Apache-2.0
import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from cac_tf.data import load_open_set_dataset
from cac_tf.data.sources.npz_arrays import load_npz_arrays
from cac_tf.data.sources.npz_arrays import read_entries


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


@pytest.mark.parametrize("shape", [(6, 1), (1, 6)])
def test_grey_images_and_labels_in_two_axes(rng, tmp_path, shape):
    path = tmp_path / "data.npz"
    np.savez(
        path,
        x_train=rng.random((6, 8, 8)),
        y_train=np.array([0, 1] * 3, "uint8").reshape(shape),
    )
    arrays = load_npz_arrays(path)
    assert arrays.train.images.shape == (6, 8, 8, 1)
    assert arrays.train.labels.tolist() == [0, 1] * 3
    assert arrays.class_names == ("0", "1")
    assert arrays.test is None


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"y_train": None}, "must contain x_train and y_train"),
        ({"y_test": None}, "both x_test and y_test"),
        ({"y_train": np.arange(59) % 3}, r"one class id per input, \(60,\)"),
        ({"y_train": np.eye(3)[np.arange(60) % 3]}, "One-hot labels are not"),
        (
            {"y_train": np.full(60, 0.5)},
            "Label 0.5 at .* is not a whole number",
        ),
        ({"y_train": np.full(60, -1)}, "Label -1 at position 0 is out of"),
        ({"x_test": np.zeros((16, 9, 9, 3))}, "different shapes"),
        ({"x_train": np.zeros(60)}, r"\(n, height, width, channels\)"),
        ({"x_train": np.zeros((60, 0, 8, 3))}, "are empty"),
        ({"x_train": np.zeros((60, 8, 8), "complex64")}, "must be numbers"),
        ({"x_train": np.zeros((60, 8, 8), "U1")}, "must be numbers"),
        ({"x_train": np.float32(1)}, "must be numbers of shape"),
        ({"y_train": np.int64(1)}, r"indices of shape \(batch,\); got shape"),
        (
            {"y_train": np.full(60, "a")},
            "got strings such as a. To convert them",
        ),
        ({"y_train": np.full(60, np.inf)}, "Label inf at position 0 is out of"),
        ({"y_train": np.full(60, 2**64 - 1, "uint64")}, "Label 1844.* is out"),
        (
            {"class_names": ["a", "b", "a", "d"]},
            "must be unique; these are repeated: a",
        ),
        ({"class_names": "abcd"}, "class_names .* must be a list of strings"),
        ({"class_names": [["a", "b"]] * 2}, "must be a list of strings"),
        ({"known_classes": ["0", "5"]}, "no class '5'"),
        ({"class_names": ["a", "b\udcff", "c", "d"]}, "must be UTF-8 strings"),
        ({"white": "255"}, "white in .* must be one number"),
        ({"origin": "no JSON"}, "not written by dump_arrays"),
        ({"origin": '{"classes": 1}'}, "not written by dump_arrays"),
        ({"class_names": ["a", "b"]}, "2 class_names, but labels up to 3"),
    ],
)
def test_bad_entries(rng, tmp_path, changes, message):
    path = tmp_path / "data.npz"
    np.savez(path, **entries(rng, **changes))
    with pytest.raises(ValueError, match=message):
        load_npz_arrays(path)


def test_ids_that_are_far_apart(rng, tmp_path):
    """Only those that occur are classes, in the order of numbers."""
    ids = np.array([7, 10**8, 100, 10**15])
    arrays = entries(rng)
    for part in ("train", "test"):
        arrays[f"y_{part}"] = ids[arrays[f"y_{part}"]]
    np.savez(tmp_path / "data.npz", **arrays)
    path = str(tmp_path / "data.npz")
    dataset = load_open_set_dataset(path, known_classes=["100000000", "7"])
    assert dataset.class_names == ("100000000", "7")
    assert dataset.unknown_class_names == ("100", "1000000000000000")
    images = arrays["x_test"]
    for part, names in (
        (dataset.known_test, dataset.class_names),
        (dataset.unknown_test, dataset.unknown_class_names),
    ):
        for label, name in enumerate(names):
            np.testing.assert_array_equal(
                part.images[part.labels == label],
                images[arrays["y_test"] == int(name)],
            )


def test_names_as_bytes(rng, tmp_path):
    path = tmp_path / "data.npz"
    names = np.array(["a", "é", "c", "d"])
    np.savez(path, **entries(rng, class_names=np.char.encode(names, "utf-8")))
    assert load_npz_arrays(path).class_names == ("a", "é", "c", "d")


def test_entries_that_are_not_used(rng, tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, **entries(rng, x_val=np.zeros(3)))
    (note,) = load_npz_arrays(path).notes
    assert note.endswith("are not used: x_val")


def with_header(path, header, content):
    """An .npz file whose x_train has this header and these bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("x_train.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for block in content:
                member.write(block)
        labels = io.BytesIO()
        np.save(labels, np.arange(60) % 3)
        file.writestr("y_train.npy", labels.getvalue())


def test_arrays_that_memory_cannot_hold(tmp_path, monkeypatch):
    """A bomb: a small file that would expand to 64 MiB, or says so."""
    path = tmp_path / "bomb.npz"
    header = {"descr": "|u1", "fortran_order": False}
    header["shape"] = (64, 1024, 1024)
    with_header(path, header, [bytes(1 << 20)] * 64)
    assert path.stat().st_size < 1 << 20
    memory = type("Memory", (), {"available": 1 << 25})
    with monkeypatch.context() as patch:
        patch.setattr("psutil.virtual_memory", lambda: memory)
        with pytest.raises(ValueError, match="need 0.1 GiB of memory; 0.0"):
            load_npz_arrays(path)
        # Once to read them, and once for the parts of the data set.
        for available, copies in ((100, 1), (100, 2), (200, 2)):
            memory.available = available << 20
            if copies << 6 <= available:
                read_entries(path, {"x_train"}, copies)
            else:
                with pytest.raises(ValueError, match="need 0.1 GiB"):
                    read_entries(path, {"x_train"}, copies)
    header["shape"] = (10**9, 1024, 1024)
    with_header(path, header, [bytes(1000)])
    tracemalloc.start()
    with pytest.raises(
        ValueError, match="is damaged: x_train.npy should contain"
    ):
        load_npz_arrays(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


def test_members_that_claim_more_than_the_file_holds(tmp_path):
    """Before anything of them is read."""
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x_train=np.zeros((9, 8, 8)), y_train=[0] * 9)
    content = bytearray(path.read_bytes())
    # The size of the first member, in the directory at the end.
    place = content.index(b"PK\x01\x02") + 24
    content[place : place + 4] = (2**31 - 1).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ValueError, match="2,147,483,647 bytes, which is not"):
        load_npz_arrays(path)
    with zipfile.ZipFile(path, "w") as file:
        for i in range(10_001):
            file.writestr(f"x{i}.npy", b"")
    with pytest.raises(
        ValueError, match="contains 10,001 arrays; the limit is 10,000"
    ):
        load_npz_arrays(path)


def test_bad_files(tmp_path):
    with pytest.raises(ValueError, match="File not found"):
        load_npz_arrays(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match="not a readable"):
        load_npz_arrays(tmp_path / "text.npz")
    # An object array would run code when it is unpickled.
    np.savez(tmp_path / "object.npz", x_train=np.array([{}]), y_train=[0])
    with pytest.raises(ValueError, match="not a readable"):
        load_npz_arrays(tmp_path / "object.npz")
