# SPDX-License-Identifier: Apache-2.0
"""Time and memory of starting to train on many images.

    python benchmarks/large_data.py

1,000,000 JPEGs of 64x64 in TFRecords, and 100,000 as files in folders, made
here of smooth noise (10,000 different ones; each gets a number of its own after
its end, so that its bytes differ). Ten classes, of which six are known. A
process does what `cac-train` does up to the end of the first training step:
imports, loading, checksums and statistics, the network, a step in float32 with
a batch of the size that `cac-train` takes for such data (32). It does so twice,
the first time without what is kept beside the data. Then it reads 200 batches
of 128, beside as many images decoded by Pillow from memory, in as many threads
as there are cores. Writes benchmarks/results/large_data.json.

What is installed counts: TensorFlow and Keras import JAX and pandas where they
find them, which takes 0.15 GB. The result is of the packages of `make demo`.
"""

import concurrent.futures
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import PIL.Image

from cac_tf import atomic_files
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.experiments.environment import environment

RESULT = pathlib.Path(__file__).parent / "results" / "large_data.json"
_COUNTS = {"records": 1_000_000, "folder": 100_000}
_DIFFERENT, _SHARDS, _CLASSES = 10_000, 16, 10
_BATCH, _BATCHES = 128, 200


def photos():
    """Different JPEGs, as bytes."""
    rng = np.random.default_rng(0)
    for _ in range(_DIFFERENT):
        small = rng.integers(0, 256, (8, 8, 3), "uint8")
        image = PIL.Image.fromarray(small).resize((64, 64))
        file = io.BytesIO()
        image.save(file, "jpeg", quality=85)
        yield file.getvalue()


def numbered(count):
    """Contents of files and their labels."""
    different = list(photos())
    for i in range(count):
        content = different[i % _DIFFERENT] + i.to_bytes(8, "big")
        yield i, content, f"class{i % _CLASSES}"


def write_records(folder, count):
    """TFRecord files of tf.Examples."""
    import tensorflow as tf

    def feature(value):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    writers = [
        tf.io.TFRecordWriter(f"{folder}/train.tfrecord-{i:05}-of-{_SHARDS:05}")
        for i in range(_SHARDS)
    ]
    for i, content, label in numbered(count):
        features = {"image": feature(content), "label": feature(label.encode())}
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writers[i * _SHARDS // count].write(example.SerializeToString())
    for writer in writers:
        writer.close()


def write_folder(folder, count):
    """One file for each image."""
    for i in range(_CLASSES):
        (pathlib.Path(folder) / f"class{i}").mkdir()
    for i, content, label in numbered(count):
        (pathlib.Path(folder) / label / f"{i}.jpg").write_bytes(content)


WRITE = {"records": write_records, "folder": write_folder}


def start(kind, folder):
    """In a process of its own: up to the first step, then some batches."""
    started = time.perf_counter()
    from cac_tf import data
    from cac_tf import methods
    from cac_tf.cores import usable_cores
    from cac_tf.experiments.run_folder import data_summary
    from cac_tf.training.batches import Batches
    from cac_tf.training.run import TrainingRun
    from cac_tf.training.runtime import Runtime

    dataset = data.load_open_set_dataset(
        kind,
        data_dir=folder,
        known_classes=[f"class{i}" for i in range(6)],
        image_size=64,
    )
    loaded = time.perf_counter() - started
    data_summary(dataset)
    method = methods.get("cac")
    recipe = method.recipe()
    with tempfile.TemporaryDirectory() as run:
        parts = method.parts(dataset, recipe, TrainingRun(Runtime(0), run))
    classifier = parts.classifier()
    training = method.training(classifier, dataset, recipe)
    batches = Batches(dataset.train, recipe.batch_size, seed=0)
    first = batches[0]
    before_the_step = _peak_bytes()
    training.train_on_batch(*first)
    batches.close()
    first_step, peak = time.perf_counter() - started, _peak_bytes()

    batches = Batches(dataset.train, _BATCH, seed=0)
    batches[0]  # Its threads have started.
    began = time.perf_counter()
    for i in range(1, 1 + _BATCHES):
        batches[i]
    rate = _BATCHES * _BATCH / (time.perf_counter() - began)
    batches.close()
    images = dataset.train.images
    rows = range(_BATCHES * _BATCH)
    contents = [images.sources[row] for row in rows]
    if not isinstance(contents[0], bytes):
        contents = [pathlib.Path(path).read_bytes() for path in contents]

    def decode(content):
        return np.asarray(PIL.Image.open(io.BytesIO(content)).convert("RGB"))

    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        for _ in pool.map(decode, contents, chunksize=_BATCH):
            pass
    bare = len(contents) / (time.perf_counter() - began)
    return {
        "images": sum(dataset.counts.values()),
        "is streamed": isinstance(images, StreamedImages),
        "seconds to load": loaded,
        "seconds to the first step": first_step,
        "peak bytes before the step": before_the_step,
        "peak bytes": peak,
        "images per second": rate,
        "images per second by Pillow from memory": bare,
    }


def _peak_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    return next(
        1024 * int(line.split()[1])
        for line in status.splitlines()
        if line.startswith("VmHWM:")
    )


def main():
    """Measures both kinds; a child process measures one start."""
    if len(sys.argv) > 1:
        print(json.dumps(start(*sys.argv[1:])))
        return
    found = {}
    for kind, count in _COUNTS.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            WRITE[kind](folder, count)
            print(f"{kind} in {time.perf_counter() - began:.0f} s", flush=True)
            found[kind] = {}
            for which in ("first", "again"):
                command = [sys.executable, __file__, kind, folder]
                output = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=True
                ).stdout
                found[kind][which] = json.loads(output.splitlines()[-1])
                print(kind, which, found[kind][which], flush=True)
    atomic_files.write_json(
        RESULT, {"kinds": found, "environment": environment()}
    )


if __name__ == "__main__":
    main()
