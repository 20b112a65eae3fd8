# SPDX-License-Identifier: Apache-2.0
"""Trains runs of training_queue.py on a machine with a GPU and no TensorFlow.

Where the data sets are (TFDS_DATA_DIR), pack them into small files:

    python benchmarks/device_training.py pack FOLDER mnist cifar10 tiny_imagenet

On the machine with JAX, Keras and the GPU, from a copy of the checkout and of
FOLDER, train runs by their names; each is a process of its own:

    KERAS_BACKEND=jax python benchmarks/device_training.py train FOLDER NAME

Runs can be interrupted and resume by the same command. Copy `runs/training`
back, and keep the numbers of those that ended:

    python benchmarks/device_training.py keep FOLDER NAME ...

In the same way, those of better_trials.py, whose numbers go to
`benchmarks/results/better_trials` at once:

    KERAS_BACKEND=jax python benchmarks/device_training.py better FOLDER NAME
    python benchmarks/device_training.py keep_better FOLDER NAME ...

The images, their order and the settings are those of training_queue.py; each
run's `config.json` has their SHA-256.
"""

import io
import json
import pathlib
import sys
import time

import better_trials
import keras
import numpy as np
import PIL.Image
import training_queue

from cac_tf import atomic_files
from cac_tf import data
from cac_tf import experiments
from cac_tf.data import tfds_images
from cac_tf.data.image_file import as_pixels
from cac_tf.data.image_file import read_image
from cac_tf.experiments.environment import environment
from cac_tf.hyperparameters import INTERPOLATIONS

# Images of one size are stored as columns of so many, which take less space.
COLUMN = 100
IMAGES_PER_FILE = 10000
ABOUT = "about.json"


def as_columns(images):
    """Images of one size as lossless WebP files, `COLUMN` of them in each."""
    files = []
    for first in range(0, len(images), COLUMN):
        column = images[first : first + COLUMN].reshape(-1, *images.shape[2:])
        if column.shape[-1] == 1:
            column = np.repeat(column, 3, axis=-1)
        file = io.BytesIO()
        PIL.Image.fromarray(column).save(
            file, "WEBP", lossless=True, exact=True, method=4
        )
        files.append(file.getvalue())
    return files


def write_split(folder, name, split, files, labels):
    """Writes image files as bytes, and the labels of what they hold."""
    per_file = max(1, IMAGES_PER_FILE * len(files) // len(labels))
    for part, first in enumerate(range(0, len(files), per_file)):
        held = files[first : first + per_file]
        np.savez_compressed(
            folder / f"{name}_{split}_{part:03}.npz",
            bytes=np.frombuffer(b"".join(held), "uint8"),
            sizes=[len(file) for file in held],
            labels=labels,
        )


def pack(folder, *names):
    """Writes the data sets and what is known of them."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = {"commit": environment()["commit"]}
    for name in names:
        builder = tfds_images.prepared_builder(name)
        test = tfds_images.test_split(builder)
        height, _, channels = builder.info.features["image"].shape
        about[name] = {
            "class_names": tfds_images.class_names(builder),
            "channels": channels,
            "test_split": test,
        }
        for split in ("train", test):
            files, labels = tfds_images.read_encoded(builder, split)
            # Those of several sizes are JPEG, which is small already.
            if height is not None:
                images = [read_image(file, None, channels)[0] for file in files]
                files = as_columns(np.stack(images))
            write_split(folder, name, split, files, labels)
    atomic_files.write_json(folder / ABOUT, about)


class Packed:
    """A packed data set, in place of a TFDS builder."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.about = json.loads((folder / ABOUT).read_text())[name]

    def read(self, split):
        """All images of a split and their labels."""
        paths = sorted(self.folder.glob(f"{self.name}_{split}_*.npz"))
        decoded = []
        for path in paths:
            with np.load(path) as file:
                content, labels = file["bytes"].tobytes(), file["labels"]
                ends = np.cumsum(file["sizes"])
                begins = ends - file["sizes"]
            for begin, end in zip(begins, ends, strict=True):
                pixels, _ = read_image(
                    content[begin:end], None, self.about["channels"]
                )
                # Images are square.
                size = pixels.shape[1]
                decoded.append(pixels.reshape(-1, size, *pixels.shape[1:]))
        images = np.concatenate(decoded)
        if len(images) != len(labels):
            raise ValueError(f"Files of {self.name}, {split}, are missing.")
        return images, labels


def read_packed(folder):
    """From now on, data sets of TFDS are read from a folder of `pack`."""
    folder = pathlib.Path(folder)

    def read_split(
        builder,
        split,
        classes=None,
        image_size=None,
        stream=None,
        channels=None,
        interpolation=INTERPOLATIONS[0],
    ):
        images, labels = builder.read(split)
        if classes is not None:
            rows = np.flatnonzero(np.isin(labels, list(classes)))
            images, labels = images[rows], labels[rows]
        if image_size not in (None, images.shape[1]):
            images = np.stack(
                [
                    as_pixels(
                        image, image_size, images.shape[-1], interpolation
                    )[0]
                    for image in images
                ]
            )
        return data.Examples(images, labels)

    tfds_images.prepared_builder = lambda name, data_dir=None: Packed(
        folder, name
    )
    tfds_images.class_names = lambda builder: tuple(
        builder.about["class_names"]
    )
    tfds_images.test_split = lambda builder: builder.about["test_split"]
    tfds_images.read_split = read_split


class _Epochs(keras.callbacks.Callback):
    """Prints how far a training is."""

    def __init__(self, name):
        super().__init__()
        self._name, self._begin = name, time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.monotonic() - self._begin
        print(self._name, "epoch", epoch + 1, f"{seconds:.0f} s", flush=True)


def train(folder, name):
    """Trains one run of the queue, or goes on with it."""
    read_packed(folder)
    run, config = training_queue.reported()[name]

    def tell(kind, *values):
        if kind == "callbacks":
            return [_Epochs(values[0])]
        return print(kind, *values, flush=True)

    experiments.train(config, run.path, tell=tell)
    print("ended", flush=True)


def train_better(folder, name):
    """Trains one run of better_trials.py, or goes on with it."""
    read_packed(folder)
    better_trials.main(name)


def add_commit(folder, path):
    """What was sent to the machine need not have had its repository."""
    about = json.loads((pathlib.Path(folder) / ABOUT).read_text())
    kept = json.loads(path.read_text())
    kept["environment"]["commit"] = about["commit"]
    atomic_files.write_json(path, kept)


def keep(folder, *names):
    """Keeps the numbers of finished runs that were copied back."""
    runs = training_queue.reported()
    for name in names:
        run, _ = runs[name]
        training_queue.keep(run.path, name, training_queue.KEPT)
        add_commit(folder, training_queue.KEPT / f"{name}.json")


def keep_better(folder, *names):
    """Adds the commit to results that were copied back."""
    for name in names:
        add_commit(folder, better_trials.KEPT / f"{name}.json")


COMMANDS = {
    "pack": pack,
    "train": train,
    "keep": keep,
    "better": train_better,
    "keep_better": keep_better,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
