# SPDX-License-Identifier: Apache-2.0
"""How time grows with classes, examples, width of features, and devices.

    python benchmarks/growth.py

Medians over repeated calls, and the exponent p of size^p between the two
largest sizes, beside that of the mathematics. The devices are virtual ones of
one CPU: they show what dividing a batch costs, not what devices gain. Writes
benchmarks/results/growth.json and growth.png.
"""

import functools
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import keras
import numpy as np
from matplotlib.figure import Figure

from cac_tf import atomic_files
from cac_tf import data
from cac_tf import decision
from cac_tf import layers
from cac_tf import losses
from cac_tf import metrics
from cac_tf import scores
from cac_tf.data.open_set_dataset import stratified_split
from cac_tf.experiments.environment import environment
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.scores.fitting import Fitting
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import LastLayer
from cac_tf.scores.statistics import ClassMoments

RESULT = pathlib.Path(__file__).parent / "results" / "growth.json"
_SECONDS, _MOST = 1.0, 200
BATCH = 128


def median_time(call):
    """Median seconds of a call, after one that does not count."""
    call()
    times, began = [], time.perf_counter()
    while len(times) < 3 or (
        time.perf_counter() - began < _SECONDS and len(times) < _MOST
    ):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _compiled(function):
    import tensorflow as tf

    return tf.function(function)


def loss_and_gradient(rng, classes):
    """The CAC loss of a batch around anchors, and its gradient."""
    import tensorflow as tf

    logits = tf.constant(rng.standard_normal((BATCH, classes), "float32"))
    labels = tf.constant(rng.integers(0, classes, BATCH), tf.int32)

    @_compiled
    def step():
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = losses.cac_loss_from_logits(labels, logits, validate=False)
        return tape.gradient(loss, logits)

    return step


def distances_to_means(rng, classes):
    """Distances of a batch to class means, which are any centers."""
    logits = rng.standard_normal((BATCH, classes), "float32")
    means = rng.standard_normal((classes, classes), "float32")
    logits, means = map(keras.ops.convert_to_tensor, (logits, means))
    return _compiled(lambda: dense_distances(logits, means))


def adding_to_class_means(rng, classes):
    """A batch added to the class means."""
    logits = rng.standard_normal((BATCH, classes), "float32")
    labels = rng.integers(0, classes, BATCH)
    moments = ClassMoments(classes)
    return lambda: moments.add(logits, labels)


def rejection(rng, classes):
    """Rejection scores and decisions of a batch, from distances."""
    distances = keras.ops.convert_to_tensor(
        rng.random((BATCH, classes), "float32")
    )
    gamma, decide = layers.RejectionScore(), layers.OpenSetDecision(1.0)
    decide.build((None, classes))
    return _compiled(lambda: decide(gamma(distances)))


def curves(rng, count):
    """AUROC and OSCR of as many known as unknown images."""
    known, unknown = rng.random(count), rng.random(count)
    is_right = rng.random(count) < 0.9

    def call():
        metrics.auroc(known, unknown)
        metrics.oscr(known, is_right, unknown)

    return call


def intervals(rng, count):
    """Bootstrap intervals of AUROC and others; 10 resamples, not 1,000."""
    known, unknown = rng.random(count), rng.random(count)
    return lambda: metrics.bootstrap_intervals(known, unknown, resamples=10)


def calibration(rng, count):
    """The threshold for a rate of known images."""
    known = rng.random(count)
    return lambda: decision.threshold_for_true_positive_rate(known, 0.95)


def split(rng, count):
    """A stratified split of labels of ten classes."""
    examples = data.Examples(
        np.zeros((count, 1), "uint8"), rng.integers(0, 10, count)
    )
    return lambda: stratified_split(examples, 0.2, seed=0)


def _fitting(name, rng, width, rows=2048, classes=10):
    def outputs():
        return {
            "features": rng.standard_normal((rows, width), "float32"),
            "logits": rng.standard_normal((rows, classes), "float32"),
            "distances": rng.random((rows, classes), "float32"),
        }

    found = outputs()
    labels = rng.integers(0, classes, rows)
    inputs = rng.standard_normal((rows, 4), "float32")
    last = LastLayer(
        rng.standard_normal((width, classes), "float32"),
        np.zeros(classes, "float32"),
    )

    def call():
        fitting = Fitting(
            [scores.get(name)], Context(tuple("abcdefghij"), last)
        )
        fitting.add(KnownBatch(labels, inputs, found))
        fitting.finish()
        if fitting.problems:
            raise fitting.problems[name]

    return call


def _sort(size):
    return size * math.log(size)


# By what grows: sizes, and for each operation a function that makes it and how
# the mathematics grows.
STUDIES = {
    "classes": (
        (10, 100, 1000, 3000, 10_000),
        {
            "CAC loss and gradient": (loss_and_gradient, lambda n: n),
            "distances to class means": (distances_to_means, lambda n: n * n),
            "adding to class means": (adding_to_class_means, lambda n: n),
            "rejection": (rejection, lambda n: n),
        },
    ),
    "examples": (
        (1000, 10_000, 100_000, 1_000_000),
        {
            "AUROC and OSCR": (curves, _sort),
            "bootstrap intervals, 10 resamples": (intervals, _sort),
            "calibration": (calibration, _sort),
            "stratified split": (split, _sort),
        },
    ),
    "features": (
        (64, 256, 1024, 2048, 4096),
        {
            name: (functools.partial(_fitting, name), growth)
            for name, growth in (
                ("knn", lambda d: d),
                ("mahalanobis", lambda d: d**3),
                ("vim", lambda d: d**3),
            )
        },
    ),
}

_EPOCH = """
import sys, time
import numpy as np, keras
from cac_tf import OpenSetClassifier, losses
from cac_tf.training.runtime import Runtime
devices = int(sys.argv[1])
rng = np.random.default_rng(0)
x = rng.standard_normal((64 * 128, 256)).astype("float32")
y = rng.integers(0, 10, len(x))
with Runtime(seed=0, devices=devices).scope():
    network = keras.Sequential([keras.Input([256]),
        keras.layers.Dense(2048, "relu"), keras.layers.Dense(10)])
    network.compile("sgd", losses.CACLoss())
    times = []
    for _ in range(6):
        start = time.perf_counter()
        network.fit(x, y, batch_size=128, verbose=0)
        times.append(time.perf_counter() - start)
print("SECONDS", np.median(times[1:]))
"""


def seconds_of_an_epoch(devices):
    """64 steps of a small network, on JAX, in a process of its own."""
    output = subprocess.run(
        [sys.executable, "-c", _EPOCH, str(devices)],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return float(output.split("SECONDS")[1])


def draw(found):
    """Curves of all studies, with both axes in powers of ten."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, (what, study) in zip(
        figure.subplots(1, len(found)), found.items(), strict=True
    ):
        for name, times in study["seconds"].items():
            axes.plot(study["sizes"], times, marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel=what, ylabel="seconds")
        axes.legend(fontsize="small")
    figure.savefig(RESULT.with_suffix(".png"), dpi=100)


def main():
    """Measures all studies."""
    rng = np.random.default_rng(0)
    found = {}
    for what, (sizes, operations) in STUDIES.items():
        found[what] = study = {
            "sizes": sizes,
            "seconds": {},
            "exponent": {},
            "exponent of the mathematics": {},
        }
        last, largest = sizes[-2:]
        ratio = math.log(largest / last)
        for name, (make, growth) in operations.items():
            times = [median_time(make(rng, size)) for size in sizes]
            study["seconds"][name] = times
            study["exponent"][name] = math.log(times[-1] / times[-2]) / ratio
            study["exponent of the mathematics"][name] = (
                math.log(growth(largest) / growth(last)) / ratio
            )
            print(what, name, times, study["exponent"][name], flush=True)
    draw(found)
    devices = {n: seconds_of_an_epoch(n) for n in (1, 2, 4)}
    print("devices", json.dumps(devices))
    atomic_files.write_json(
        RESULT,
        {
            "studies": found,
            "seconds of 64 steps by devices": devices,
            "environment": environment(),
        },
    )


if __name__ == "__main__":
    main()
