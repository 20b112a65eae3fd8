# SPDX-License-Identifier: Apache-2.0
"""What little things cost: starting, importing, one input, many small rows.

    python benchmarks/small_calls.py

Writes benchmarks/results/small_calls.json: CPU seconds of `cac-train --help`
and of imports, each in processes of their own that take turns; the time of
`predict_open_set` of one image beside that of the compiled network alone; that
of 60,000 rows of numbers by batch size; and that of bootstrap intervals of
10,000 scores.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import keras
import numpy as np

import cac_tf
from cac_tf import atomic_files
from cac_tf.experiments.environment import environment

RESULT = pathlib.Path(__file__).parent / "results" / "small_calls.json"
ROUNDS = 7
PROCESSES = {
    "cac-train --help": ["-m", "cac_tf.train.cac_train", "--help"],
    "import keras": ["-c", "import keras"],
    "import keras, cac_tf": ["-c", "import keras, cac_tf"],
}


def cpu_seconds():
    """Median CPU seconds of each of `PROCESSES`."""
    taken = {name: [] for name in PROCESSES}
    for _ in range(ROUNDS):
        for name, arguments in PROCESSES.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, *arguments],
                check=True,
                capture_output=True,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken[name].append(
                after.ru_utime
                - before.ru_utime
                + after.ru_stime
                - before.ru_stime
            )
    return {n: round(statistics.median(v), 2) for n, v in taken.items()}


def _median_ms(*calls, repeats=50):
    """Median milliseconds of functions that take turns."""
    taken = [[] for _ in calls]
    for number in range(repeats + 5):
        for call, own in zip(calls, taken, strict=True):
            started = time.perf_counter()
            call()
            if number >= 5:
                own.append(time.perf_counter() - started)
    return [round(1e3 * statistics.median(own), 3) for own in taken]


def one_image(backbone, size):
    """Milliseconds of one image: the whole answer, and the network alone."""
    import tensorflow as tf

    classifier = keras.Sequential(
        [
            keras.Input([size, size, 3]),
            cac_tf.layers.ImagePreprocessing(size, size),
            backbone,
        ]
    )
    model = cac_tf.OpenSetClassifier(classifier, list("abcdef"))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (32, size, size, 3)).astype("float32")
    model.predict_scores(images)
    model.calibrate(images, true_positive_rate=0.9)
    network = tf.function(lambda x: model.network(x))
    network = network.get_concrete_function(
        tf.TensorSpec((None, size, size, 3), "float32")
    )
    one = images[:1]
    whole, alone = _median_ms(
        lambda: model.predict_open_set(one),
        lambda: network(tf.constant(one))["logits"].numpy(),
    )
    return {"predict_open_set": whole, "network alone": alone}


def many_rows():
    """Milliseconds of 60,000 rows of 20 numbers, by batch size."""
    backbone = keras.Sequential([keras.Input([20]), keras.layers.Dense(6)])
    model = cac_tf.OpenSetClassifier(backbone, list("abcdef"))
    rows = np.random.default_rng(0).normal(size=(60_000, 20)).astype("float32")
    sizes = (None, 4096, 128)
    taken = _median_ms(
        *(lambda s=s: model.predict_scores(rows, batch_size=s) for s in sizes),
        repeats=5,
    )
    return dict(zip(map(str, sizes), taken, strict=True))


def intervals():
    """Milliseconds of `metrics.bootstrap_intervals` of 10,000 scores."""
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(0, 1, 5000), rng.normal(1, 1, 5000)
    call = cac_tf.metrics.bootstrap_intervals
    (taken,) = _median_ms(lambda: call(known, unknown), repeats=10)
    return taken


def main():
    """Measures and writes."""
    small = keras.Sequential(
        [
            keras.Input([32, 32, 3]),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(6),
        ]
    )
    result = {
        "environment": environment(),
        "cpu_seconds": cpu_seconds(),
        "one_image_ms": {
            "a small network": one_image(small, 32),
            "the benchmark network": one_image(
                cac_tf.models.openset_cnn(6), 32
            ),
        },
        "rows_60000_ms": many_rows(),
        "intervals_of_10000_scores_ms": intervals(),
    }
    atomic_files.write_json(RESULT, result)
    print({k: v for k, v in result.items() if k != "environment"})


if __name__ == "__main__":
    main()
