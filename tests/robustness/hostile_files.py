# SPDX-License-Identifier: Apache-2.0
"""Files of arrays and images that are damaged, absurd or malicious.

Loading them gives a ValueError with a message, or data that a model can be
trained on: pixels of 0...255, labels of classes, names that differ. It takes
neither long nor much memory.
"""

import contextlib
import io
import os
import time
import tracemalloc
import warnings
import zipfile

import numpy as np
import PIL.Image

from cac_tf.data import load_open_set_dataset
from tests import image_files
from tests.robustness.damage import damaged

_SECONDS = 5
_BYTES = 1 << 28
_NAMES = ("cat", "dog", "cow", "hen")


def prepare(folder):
    # What is imported takes time once.
    import tensorflow  # noqa: F401

    load_open_set_dataset("digits")


def case(rng, folder, prepared):
    make = _MAKERS[rng.integers(len(_MAKERS))]
    what, options = make(rng, folder)
    started = time.monotonic()
    tracemalloc.start()
    try:
        with (
            warnings.catch_warnings(),
            # Of the progress of reading.
            contextlib.redirect_stderr(io.StringIO()),
        ):
            # Pillow warns of large images.
            warnings.simplefilter("ignore")
            dataset = load_open_set_dataset(**options)
        _check(dataset)
    except ValueError as error:
        assert str(error) and len(str(error)) < 2000, what
        assert "Traceback" not in str(error)
        result = "refused"
    except Exception as error:
        raise AssertionError(what) from error
    else:
        result = "loaded"
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert time.monotonic() - started < _SECONDS, what
    assert most < _BYTES, (what, most)
    return f"{what}: {result}"


def _check(dataset):
    names = (*dataset.class_names, *dataset.unknown_class_names)
    assert len(set(names)) == len(names)
    for part in dataset.counts:
        images, labels = getattr(dataset, part)
        images = np.asarray(images[:])
        assert images.dtype.kind in "uif"
        assert images.ndim == 4 and len(images) == len(labels)
        assert np.isfinite(images).all()
        if images.size:
            assert images.min() >= -0.5 and images.max() < 256
        count = len(
            dataset.unknown_class_names
            if part == "unknown_test"
            else dataset.class_names
        )
        lowest = -1 if part == "negatives" else 0
        assert np.all((labels >= lowest) & (labels < count))
    assert np.isfinite(dataset.channel_statistics).all()
    assert len(dataset.digests) == len(dataset.counts)


def _arrays(rng):
    size = int(rng.integers(1, 9))
    entries = {}
    for part in ("train", "validation", "test"):
        count = int(rng.integers(24, 60))
        shape = (count, size, size, int(rng.choice([1, 3])))
        entries[f"x_{part}"] = rng.integers(0, 256, shape).astype("uint8")
        entries[f"y_{part}"] = np.arange(count) % len(_NAMES)
    for part in ("validation", "test"):
        entries[f"x_{part}"] = np.resize(
            entries[f"x_{part}"],
            (len(entries[f"y_{part}"]), *entries["x_train"].shape[1:]),
        )
    entries["class_names"] = np.array(_NAMES)
    return entries


def _other_dtype(rng, array):
    dtypes = ("bool", "int8", "uint16", "int64", "float16", "float64")
    dtypes += ("complex64", "S4", "U4", "datetime64[s]", "i4,f4", "V3")
    return array.astype(str(rng.choice(dtypes)))


def _other_shape(rng, array):
    kind = rng.integers(6)
    if kind == 0:
        return array.reshape(-1)
    if kind == 1:
        return array[:0]
    if kind == 2:
        return array.reshape(-1)[0]
    if kind == 3:
        return array[None]
    if kind == 4:
        return array[: len(array) // 2]
    return array[..., :0]


def _other_values(rng, array):
    array = array.astype("float64")
    with np.errstate(all="ignore"):
        kind = rng.integers(6)
        if kind == 0:
            return array / 255.0
        if kind == 1:
            return array * 10.0 ** rng.integers(-40, 40)
        if kind == 2:
            return array - 128.0
        if kind == 3:
            return (array * 257).astype("uint16")
        values = [np.nan, np.inf, -np.inf, -1, 1e30, 1e8, 2.0**63, 0.5]
        flat = array.reshape(-1)
        if flat.size:
            flat[rng.integers(flat.size)] = rng.choice(values)
    return array


def _other_names(rng, array):
    names = ["cat", "", "a\nb", "a\udcff", "unknown", "x" * 10_000, "©"]
    count = int(rng.integers(0, 7))
    return np.array([str(rng.choice(names)) for _ in range(count)], str)


def _far_ids(rng, array):
    far = np.array([3, 10**8, 10**12, 2**62])
    return far[np.resize(np.arange(4), np.shape(array))]


_CHANGES = (_other_dtype, _other_shape, _other_values, _other_values)


def _absurd_arrays(rng, folder):
    entries = _arrays(rng)
    done = []
    for _ in range(rng.integers(0, 4)):
        name = str(rng.choice(sorted(entries)))
        change = _CHANGES[rng.integers(len(_CHANGES))]
        if rng.random() < 0.15:
            change = lambda rng, array: None  # noqa: E731
        elif name == "class_names":
            change = _other_names
        elif name.startswith("y_") and rng.random() < 0.4:
            change = _far_ids
        try:
            changed = change(rng, entries[name])
        except (ValueError, TypeError, IndexError):
            continue
        done.append(name[:2].replace("cl", "class_names"))
        if changed is None:
            del entries[name]
        else:
            entries[name] = changed
        if not entries:
            break
    path = folder / "made.npz"
    np.savez(path, **entries)
    known = ["cat", "dog"] if "class_names" in entries else ["0", "1"]
    what = " and ".join(sorted(set(done))) or "nothing"
    return f"arrays, changed: {what}", {
        "dataset": str(path),
        "known_classes": known,
    }


def _damaged_npz(rng, folder):
    path = folder / "made.npz"
    save = np.savez if rng.random() < 0.5 else np.savez_compressed
    save(path, **_arrays(rng))
    content, kind = damaged(rng, path.read_bytes())
    path.write_bytes(content)
    options = {"dataset": str(path), "known_classes": ["cat", "dog"]}
    return f".npz, {kind}", options


def _bomb(rng, folder):
    """Headers that promise anything, and zeros that expand."""
    path = folder / "bomb.npz"
    shape = tuple(int(10 ** rng.uniform(0, 9)) for _ in range(4))
    header = io.BytesIO()
    np.lib.format.write_array_header_2_0(
        header,
        {
            "descr": str(rng.choice(["|u1", "<f8", "|O", "<U9999"])),
            "fortran_order": bool(rng.random() < 0.5),
            "shape": shape,
        },
    )
    labels = io.BytesIO()
    np.save(labels, np.arange(20) % 2)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        zeros = bytes(int(rng.integers(0, 1 << 20)))
        file.writestr("x_train.npy", header.getvalue() + zeros)
        file.writestr("y_train.npy", labels.getvalue())
    options = {"dataset": str(path), "known_classes": ["0", "1"]}
    return ".npz, a header that lies", options


def _saved(rng, formats):
    file = io.BytesIO()
    pixels = rng.integers(0, 256, (9, 11, 3)).astype("uint8")
    PIL.Image.fromarray(pixels).save(file, str(rng.choice(formats)))
    return file.getvalue()


def _picture(rng):
    return _saved(rng, ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])


def _huge_picture(rng):
    """A PNG of a few bytes that says that it is up to 2^31 pixels wide."""
    width, height = (int(2 ** rng.uniform(10, 31)) for _ in range(2))
    return image_files.png_that_claims(width, height)


def _strange_entry(rng, folder):
    """Something in a class folder that is no image, or not only one."""
    kind = rng.integers(6)
    raw = os.fsencode(folder)
    if kind == 0:
        os.mkfifo(folder / "pipe.png")
        return "a pipe"
    if kind == 1:
        (folder / "round.png").symlink_to(folder)
        return "a link to its folder"
    if kind == 2:
        (folder / "nowhere.png").symlink_to("nowhere")
        return "a link to nothing"
    if kind == 3:
        with open(os.path.join(raw, b"\xff\xfe\n.png"), "wb") as file:
            file.write(_picture(rng))
        return "a name of any bytes"
    if kind == 4:
        (folder / "huge.png").write_bytes(_huge_picture(rng))
        return "a huge picture"
    content, how = damaged(rng, _picture(rng))
    (folder / "damaged.png").write_bytes(content)
    return f"a picture, {how}"


def _image_folder(rng, folder):
    data = folder / "photos"
    for name in _NAMES:
        (data / name).mkdir(parents=True)
        for i in range(6):
            (data / name / f"{i}.png").write_bytes(_picture(rng))
    what = _strange_entry(rng, data / str(rng.choice(_NAMES)))
    options = {
        "dataset": "folder",
        "data_dir": str(data),
        "known_classes": ["cat", "dog"],
        "image_size": 8,
        "stream": bool(rng.random() < 0.5),
        "strict": bool(rng.random() < 0.3),
    }
    return f"folder, {what}", options


def _record_folder(rng, folder):
    import tensorflow as tf

    from cac_tf.data.sources.record_folder import example_of

    path = folder / "train.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i in range(40):
            name = _NAMES[i % len(_NAMES)]
            writer.write(example_of(_saved(rng, ["PNG", "JPEG"]), name))
    content, kind = path.read_bytes(), "a record that lies"
    if rng.random() < 0.3:
        length = int(2 ** rng.uniform(8, 64)).to_bytes(8, "little")
        content += length + rng.bytes(rng.integers(100))
    else:
        content, kind = damaged(rng, content)
    path.write_bytes(content)
    options = {
        "dataset": "records",
        "data_dir": str(folder),
        "known_classes": ["cat", "dog"],
        "image_size": 8,
    }
    return f"records, {kind}", options


_MAKERS = (
    _absurd_arrays,
    _absurd_arrays,
    _damaged_npz,
    _bomb,
    _image_folder,
    _record_folder,
)
