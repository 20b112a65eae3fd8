# SPDX-License-Identifier: Apache-2.0
"""Images per second that the input pipelines deliver, without any training.

    CAC_TF_IMAGES_DIR=... python benchmarks/input_throughput.py

From memory: an epoch's shuffled copy and its batches. Streamed: JPEG files of
TinyImageNet (64x64) decoded as training decodes them, ahead of what is read.
Writes benchmarks/results/input_throughput.json.
"""

import os
import pathlib
import shutil
import tempfile
import time

import numpy as np

from cac_tf import atomic_files
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.environment import environment
from cac_tf.training.batches import Batches

RESULT = pathlib.Path(__file__).parent / "results" / "input_throughput.json"
BATCH, ROUNDS = 128, 5


def _from_memory(examples, seed):
    import tensorflow as tf

    order = np.random.default_rng(seed).permutation(examples.size)
    chosen = examples.take(order)
    # As Keras reads arrays: slices of tensors.
    dataset = tf.data.Dataset.from_tensor_slices(tuple(chosen)).batch(BATCH)
    return sum(len(labels) for _, labels in dataset)


def _streamed(examples, seed):
    batches = Batches(examples, BATCH, seed)
    count = sum(len(batches[i][1]) for i in range(batches.num_batches))
    batches.close()
    return count


def main():
    """Measures both pipelines in turns and writes the result."""
    archive = pathlib.Path(os.environ["CAC_TF_IMAGES_DIR"])
    archive /= "tiny-imagenet-200_trial0.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        manual = pathlib.Path(folder) / "downloads" / "manual"
        manual.mkdir(parents=True)
        shutil.unpack_archive(archive, manual)
        datasets = {
            kind: load_open_set_dataset(
                "tinyimagenet", data_dir=folder, stream=kind == "streamed"
            )
            for kind in ("memory", "streamed")
        }
        read = {"memory": _from_memory, "streamed": _streamed}
        rates = {kind: [] for kind in read}
        for seed in range(ROUNDS):
            for kind, dataset in datasets.items():
                started = time.perf_counter()
                count = read[kind](dataset.train, seed)
                rates[kind].append(count / (time.perf_counter() - started))
    medians = {kind: round(float(np.median(v))) for kind, v in rates.items()}
    atomic_files.write_json(
        RESULT,
        {
            "environment": environment(),
            "image_size": 64,
            "images_per_second": medians,
        },
    )
    print(medians)


if __name__ == "__main__":
    main()
