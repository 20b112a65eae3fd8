# SPDX-License-Identifier: Apache-2.0
"""Inputs a second by cac-predict's loop, beside a bare loop.

    python benchmarks/predict_speed.py

Files: both read the same made PNG files of 32x32 pixels and ask the same
SavedModel in batches of 32: that of the paper's benchmark, and of a tiny one,
where the loop itself counts.

Rows: both read 200,000 rows of 64 numbers from an .npz, a TFRecord and a
Parquet file, and ask a SavedModel in batches of 4,096: of a network with three
layers of 512, and of a single layer, which takes no time. The bare loop parses
TFRecords by `tf.io.parse_example`.

The bare loop keeps the class ids alone. They take turns, and the medians
count. Writes benchmarks/results/predict_speed.json.
"""

import gc
import pathlib
import tempfile
import time

import keras
import numpy as np
import PIL.Image
import tensorflow as tf
from predict_memory import KINDS
from pyarrow import parquet

from cac_tf import OpenSetClassifier
from cac_tf import atomic_files
from cac_tf import batch
from cac_tf.experiments.environment import environment
from cac_tf.models import networks

RESULT = pathlib.Path(__file__).parent / "results" / "predict_speed.json"
_FILES, _BATCH, _TURNS = 1024, 32, 5
_SHAPE = (32, 32, 3)
_ROWS, _WIDTH, _ROWS_AT_ONCE = 200_000, 64, 4096


def tiny():
    """A network that takes no time."""
    return keras.Sequential(
        [keras.Input(_SHAPE), keras.layers.Flatten(), keras.layers.Dense(6)]
    )


def bare_loop(path, paths):
    """Class ids of files, by nothing but TensorFlow."""
    loaded = tf.saved_model.load(path)
    answer = loaded.signatures["encoded_images"]
    found = []
    for start in range(0, len(paths), _BATCH):
        files = []
        for name in paths[start : start + _BATCH]:
            with open(name, "rb") as file:
                files.append(file.read())
        found.append(answer(images=tf.constant(files))["class_id"].numpy())
        yield len(found[-1])


def _bare_batches(path):
    """Batches of rows of a file, by the library that is made for it."""
    if path.endswith(".npz"):
        rows = np.load(path)["x"]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield rows[start : start + _ROWS_AT_ONCE]
    elif path.endswith(".tfrecord"):
        wanted = {"features": tf.io.FixedLenFeature([_WIDTH], tf.float32)}
        for records in tf.data.TFRecordDataset(path).batch(_ROWS_AT_ONCE):
            yield tf.io.parse_example(records, wanted)["features"]
    else:
        with parquet.ParquetFile(path) as file:
            for rows in file.iter_batches(_ROWS_AT_ONCE):
                values = rows.column(0).flatten().to_numpy()
                yield values.reshape(len(rows), _WIDTH)


def bare_loop_over_rows(path, paths):
    """Class ids of rows."""
    answer = tf.saved_model.load(path).signatures["serving_default"]
    (name,) = answer.structured_input_signature[1]
    for rows in _bare_batches(paths[0]):
        found = answer(**{name: tf.constant(rows)})["class_id"].numpy()
        yield len(found)


def own_loop(path, paths):
    """The same by `classify_files`."""
    classifier = batch.Classifier.load(path)
    # As the command does.
    gc.collect()
    gc.freeze()
    for _ in batch.classify_files(classifier, paths):
        yield 1


def inputs_per_second(loop, path, paths, at_once=_BATCH):
    """From the first batch's end on: loading and tracing do not count."""
    steps = loop(path, paths)
    done = 0
    while done < at_once:
        done += next(steps)
    started, before = time.perf_counter(), done
    done += sum(steps)
    return (done - before) / (time.perf_counter() - started)


def in_turns(bare, path, paths, at_once=_BATCH):
    """Medians of both loops, and of their ratio."""
    rates = {"bare": [], "cac-predict": []}
    for _ in range(_TURNS):
        for kind, loop in (("bare", bare), ("cac-predict", own_loop)):
            rates[kind].append(inputs_per_second(loop, path, paths, at_once))
    ratios = np.divide(rates["cac-predict"], rates["bare"])
    return {
        "inputs per second": {k: float(np.median(v)) for k, v in rates.items()},
        "ratio": float(np.median(ratios)),
    }


def exported(backbone, shape, path):
    """Path of an export."""
    model = OpenSetClassifier(backbone, list("abcdef"))
    model.set_threshold(5.0)
    model.export(path)
    return path


def of_rows(rng, folder):
    """Both loops over rows of numbers."""
    layers = [keras.layers.Dense(512, "relu") for _ in range(3)]
    networks_of_rows = {"three layers of 512": layers, "one layer": []}
    rows = rng.standard_normal((_ROWS, _WIDTH), "float32")
    result = {}
    for kind, write in KINDS.items():
        path = f"{folder}/rows.{kind}"
        write(path, rows)
        for name, hidden in networks_of_rows.items():
            backbone = keras.Sequential(
                [keras.Input([_WIDTH]), *hidden, keras.layers.Dense(6)]
            )
            model = exported(backbone, (_WIDTH,), f"{folder}/{kind} {name}")
            found = in_turns(bare_loop_over_rows, model, [path], _ROWS_AT_ONCE)
            result.setdefault(name, {})[kind] = found
            print(name, kind, found, flush=True)
    return result


def main():
    """Measures both loops, in turns."""
    rng = np.random.default_rng(0)
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i in range(_FILES):
            paths.append(f"{folder}/{i}.png")
            pixels = rng.integers(0, 256, _SHAPE, "uint8")
            PIL.Image.fromarray(pixels).save(paths[-1])
        for name, backbone in (
            ("benchmark network", networks.find("openset_cnn")(6, _SHAPE)),
            ("tiny network", tiny()),
        ):
            path = exported(backbone, _SHAPE, f"{folder}/{name}")
            result[name] = in_turns(bare_loop, path, paths)
            print(name, result[name], flush=True)
        rows = of_rows(rng, folder)
    atomic_files.write_json(
        RESULT,
        {
            "files": _FILES,
            "networks": result,
            "rows": rows,
            "environment": environment(),
        },
    )


if __name__ == "__main__":
    main()
