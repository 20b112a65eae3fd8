# SPDX-License-Identifier: Apache-2.0
"""Whether this checkout is as fast as an older commit, on one machine.

    python benchmarks/between_commits.py 3df03ef

Both commits are checked out beside each other, their fused operations are
built, and a process of each waits while the other works; rounds alternate, and
so does who begins. Of each piece of work the median of the rounds' ratios is
kept, with the quartiles, in benchmarks/results/between_commits.json.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "between_commits.json"
ROUNDS, REPEATS = 15, 3


def _model(batch, network="benchmark"):
    """What is trained, compiled, and a batch of images for it."""
    import keras

    import cac_tf
    from cac_tf.models import openset_cnn

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch, 32, 32, 3)).astype("float32")
    labels = rng.integers(0, 6, batch)
    if network == "benchmark":
        backbone = openset_cnn(6)
    else:
        backbone = keras.Sequential(
            [
                keras.Input([32, 32, 3]),
                keras.layers.AveragePooling2D(8),
                keras.layers.Flatten(),
                keras.layers.Dense(6),
            ]
        )
    layers = cac_tf.layers
    if hasattr(layers, "ChannelNormalization"):
        trained = keras.Sequential(
            [
                keras.Input([32, 32, 3]),
                layers.ImagePreprocessing(32, 32),
                layers.ChannelNormalization([0.5] * 3, [0.25] * 3),
                backbone,
            ]
        )
    else:  # Of commits in which one model was trained and asked.
        trained = cac_tf.OpenSetClassifier(
            backbone,
            list("abcdef"),
            preprocessing=layers.ImagePreprocessing(32, 32, 0.5, 0.25),
        )
    trained.compile(
        keras.optimizers.SGD(0.001, momentum=0.9),
        cac_tf.losses.CACLoss(),
        metrics=["accuracy"],
    )
    return trained, images, labels


def _training():
    model, images, labels = _model(128)
    return lambda: model.train_on_batch(images, labels)


def _fit_of_a_small_network():
    """64 steps, in which everything but the network takes the time."""
    model, images, labels = _model(128 * 64, "small")
    return lambda: model.fit(images, labels, batch_size=128, verbose=0)


def _calibrated(batch, network="benchmark"):
    import cac_tf

    model, images, labels = _model(batch, network)
    model.train_on_batch(images, labels)
    if not isinstance(model, cac_tf.OpenSetClassifier):
        model = cac_tf.OpenSetClassifier(model, list("abcdef"))
    model.calibrate(images, true_positive_rate=0.9)
    return model, images


def _prediction(batch, network="benchmark"):
    model, images = _calibrated(max(batch, 32), network)
    return lambda: model.predict_open_set(images[:batch])


def _serving(batch):
    import tensorflow as tf

    model, images = _calibrated(max(batch, 32))
    folder = os.path.join(tempfile.mkdtemp(), "model")
    model.export(folder)
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    images = tf.constant(images[:batch])
    return lambda: serve(images=images)


def _fused_loss():
    import tensorflow as tf

    from cac_tf.losses import cac_loss_from_logits

    rng = np.random.default_rng(0)
    logits = tf.constant(rng.normal(0, 5, (1024, 1000)).astype("float32"))
    labels = tf.constant(rng.integers(0, 1000, 1024))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = tf.reduce_mean(cac_loss_from_logits(labels, logits))
        return tape.gradient(loss, logits)

    return step


WORK = {
    "training step, batch 128": _training,
    "fit of a small network, 64 steps": _fit_of_a_small_network,
    "predict_open_set, 1 image": lambda: _prediction(1),
    "predict_open_set, 256 images": lambda: _prediction(256),
    "predict_open_set, small network, 1 image": lambda: _prediction(1, "small"),
    "SavedModel, batch 1": lambda: _serving(1),
    "SavedModel, batch 32": lambda: _serving(32),
    "fused loss and gradient, 1024x1000": _fused_loss,
}


def worker():
    """Does the work that is asked for, and answers with its seconds."""
    import keras

    keras.utils.set_random_seed(0)
    steps = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in steps:
            steps[name] = WORK[name]()
            for _ in range(REPEATS):
                steps[name]()
        seconds = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            steps[name]()
            seconds.append(time.perf_counter() - started)
        print(json.dumps(min(seconds)), flush=True)


def _checkout(commit, folder):
    """The files of a commit in a folder, with its fused operations."""
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
    )
    folder.mkdir()
    subprocess.run(["tar", "-x"], input=archive.stdout, cwd=folder, check=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    subprocess.run(
        [sys.executable, "-m", "cac_tf.ops.build", "--if_possible"],
        cwd=folder,
        env=environment,
        check=True,
    )
    return subprocess.Popen(
        [sys.executable, __file__, "--worker"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _seconds(process, name):
    process.stdin.write(f"{name}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def main(older):
    """Measures, prints, writes."""
    from cac_tf import atomic_files
    from cac_tf.experiments.environment import environment

    commits = [
        subprocess.run(
            ["git", "rev-parse", "--short", name],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for name in (older, "HEAD")
    ]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            _checkout(commit, pathlib.Path(folder) / commit)
            for commit in commits
        ]
        for name in WORK:
            for process in workers:
                _seconds(process, name)
            ratios, medians = [], [[], []]
            for number in range(ROUNDS):
                taken = [0.0, 0.0]
                for i in (0, 1) if number % 2 else (1, 0):
                    taken[i] = _seconds(workers[i], name)
                    medians[i].append(taken[i])
                ratios.append(taken[1] / taken[0])
            quartiles = np.quantile(ratios, [0.25, 0.5, 0.75]).round(3)
            found[name] = {
                "milliseconds": {
                    commit: round(1e3 * float(np.median(values)), 3)
                    for commit, values in zip(commits, medians, strict=True)
                },
                "new_by_old_quartiles": quartiles.tolist(),
            }
            print(name, found[name], flush=True)
        for process in workers:
            process.stdin.close()
            process.wait()
    atomic_files.write_json(
        RESULT, {"environment": environment(), "work": found}
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker()
    elif len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    else:
        main(sys.argv[1])
