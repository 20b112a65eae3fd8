# SPDX-License-Identifier: Apache-2.0
"""Files a second by cac-predict's loop, beside a bare loop.

    python benchmarks/predict_speed.py

Both read the same made PNG files of 32x32 pixels and ask the same SavedModel in
batches of 32: that of the paper's benchmark, and of a tiny one, where the loop
itself counts. The bare loop keeps the class ids alone. They take turns, and the
medians count. Writes benchmarks/results/predict_speed.json.
"""

import pathlib
import tempfile
import time

import keras
import numpy as np
import PIL.Image
import tensorflow as tf

from cac_tf import OpenSetClassifier
from cac_tf import atomic_files
from cac_tf import batch
from cac_tf.experiments import environment
from cac_tf.models import networks

RESULT = pathlib.Path(__file__).parent / "results" / "predict_speed.json"
_FILES, _BATCH, _TURNS = 1024, 32, 5
_SHAPE = (32, 32, 3)


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


def own_loop(path, paths):
    """The same by `answers_of`."""
    classifier = batch.Classifier.load(path)
    for block in batch.blocks_of(paths):
        for _ in batch.answers_of(classifier, block):
            yield 1


def files_per_second(loop, path, paths):
    """From the first batch's end on: loading and tracing do not count."""
    steps = loop(path, paths)
    done = 0
    while done < _BATCH:
        done += next(steps)
    started, before = time.perf_counter(), done
    done += sum(steps)
    return (done - before) / (time.perf_counter() - started)


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
            model = OpenSetClassifier(backbone, list("abcdef"))
            model.build((None, *_SHAPE))
            model.set_threshold(5.0)
            path = f"{folder}/{name}"
            model.export(path)
            rates = {"bare": [], "cac-predict": []}
            for _ in range(_TURNS):
                for kind, loop in (
                    ("bare", bare_loop),
                    ("cac-predict", own_loop),
                ):
                    rates[kind].append(files_per_second(loop, path, paths))
            medians = {k: float(np.median(v)) for k, v in rates.items()}
            ratios = np.divide(rates["cac-predict"], rates["bare"])
            result[name] = {
                "files per second": medians,
                "ratio": float(np.median(ratios)),
            }
            print(name, result[name], flush=True)
    atomic_files.write_json(
        RESULT,
        {"files": _FILES, "networks": result, "environment": environment()},
    )


if __name__ == "__main__":
    main()
