# SPDX-License-Identifier: Apache-2.0
"""Memory and time of cac-predict for 100,000 and 1,000,000 small rows.

    python benchmarks/predict_memory.py

Rows of 16 numbers in a Parquet file, a TFRecord file and an .npz file, a
SavedModel with one dense layer, answers in a Parquet file. Every command has
its own process, whose largest resident memory counts. Rows a second are those
that the second command has more, in the time that it takes longer. Writes
benchmarks/results/predict_memory.json.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import keras
import numpy as np
import pyarrow
import tensorflow as tf
from pyarrow import parquet

from cac_tf import OpenSetClassifier
from cac_tf import atomic_files
from cac_tf.experiments.environment import environment

RESULT = pathlib.Path(__file__).parent / "results" / "predict_memory.json"
_ROWS = (100_000, 1_000_000)
_WIDTH = 16


def write_parquet(path, rows):
    """The rows as lists in the column `image`."""
    width = rows.shape[1]
    values = pyarrow.FixedSizeListArray.from_arrays(rows.ravel(), width)
    parquet.write_table(pyarrow.table({"image": values}), path)


def write_records(path, rows):
    """The rows as `features` of tf.Examples."""
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            values = tf.train.FloatList(value=row)
            features = {"features": tf.train.Feature(float_list=values)}
            example = tf.train.Example(
                features=tf.train.Features(feature=features)
            )
            writer.write(example.SerializeToString())


def write_npz(path, rows):
    """The rows as the array `x`."""
    np.savez(path, x=rows)


KINDS = {
    "parquet": write_parquet,
    "tfrecord": write_records,
    "npz": write_npz,
}


def measure(model, path, output):
    """Seconds and bytes of one command."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "cac_tf.train.cac_predict"),
            *(f"--model={model}", f"--output={output}", path),
        ],
        stderr=subprocess.DEVNULL,
    )
    # Not from getrusage: there, a process starts with what its parent had.
    status = pathlib.Path(f"/proc/{process.pid}/status")
    peak = 0
    while process.poll() is None:
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = 1024 * int(line.split()[1])
        time.sleep(0.05)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"cac-predict {path} ended in an error.")
    return seconds, peak


def main():
    """Measures every kind of file."""
    rng = np.random.default_rng(0)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        network = keras.Sequential(
            [keras.Input([_WIDTH]), keras.layers.Dense(10)]
        )
        model = OpenSetClassifier(network, list("abcdefghij"))
        model.set_threshold(5.0)
        model.export(f"{folder}/saved")
        for kind, write in KINDS.items():
            seconds, peaks = [], []
            for count in _ROWS:
                path = f"{folder}/{count}.{kind}"
                write(path, rng.standard_normal((count, _WIDTH), "float32"))
                output = f"{folder}/answers.parquet"
                took, peak = measure(f"{folder}/saved", path, output)
                assert parquet.read_metadata(output).num_rows == count
                seconds.append(took)
                peaks.append(peak)
                os.unlink(path)
            found[kind] = {
                "peak bytes": dict(zip(_ROWS, peaks, strict=True)),
                "seconds": dict(zip(_ROWS, seconds, strict=True)),
                "rows per second": (_ROWS[1] - _ROWS[0])
                / (seconds[1] - seconds[0]),
            }
            print(kind, found[kind], flush=True)
    atomic_files.write_json(
        RESULT, {"width": _WIDTH, "kinds": found, "environment": environment()}
    )


if __name__ == "__main__":
    main()
