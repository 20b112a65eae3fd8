# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests."""

import functools
import gc
import importlib.util
import os
import pathlib
import shutil
import sys

import keras
import numpy as np
import pytest
import sklearn.datasets

import cac_tf
from tests import execution

ROOT = pathlib.Path(__file__).parent.parent
# Importing it registers a method, which only its own processes should know.
collect_ignore = ["conformance/plugin"]


@pytest.fixture(params=execution.MODES)
def mode(request):
    """Every way in which this backend can run a function."""
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _fixed_seed():
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def _no_garbage():
    """Collects what a test leaves, while it is little and young.

    An iterator of tf.data that was not read to its end, as of a training that
    failed, stops its threads only after up to a minute. The longer it has
    been there, the longer it takes. What is still in use is left out of later
    collections, which would take a second each.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def mixed_bfloat16():
    """Layers that are made in the test compute in bfloat16."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy("float32")


# Loaded twice, a script would define its flags twice.
@functools.cache
def load_benchmark(name):
    """A script in benchmarks/ as a module."""
    return load_script(ROOT / "benchmarks" / f"{name}.py")


def load_script(path):
    """A script that is in no package as a module, with those beside it."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(
        f"{path.parent.name}_{path.stem}", path
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blobs(rng, num_classes=3, rows=240, width=5):
    """Well separated Gaussian clusters: float32 inputs and labels."""
    places = 3.0 * np.eye(num_classes, width)
    labels = np.arange(rows) % num_classes
    inputs = places[labels] + 0.3 * rng.standard_normal((rows, width))
    return inputs.astype("float32"), labels


def small_classifier(num_classes=3, width=5, network=None):
    """A compiled Keras classifier on vectors that trains in a second."""
    classifier = network or keras.Sequential(
        [keras.Input([width]), keras.layers.Dense(num_classes)]
    )
    classifier.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        cac_tf.losses.CACLoss(),
        metrics=["accuracy"],
    )
    return classifier


def class_names(num_classes):
    """Names of classes, as of the shared models."""
    return [f"class {index}" for index in range(num_classes)]


@pytest.fixture(scope="session")
def trained_blobs():
    """A calibrated model with class means and `gamma`, inputs and labels.

    Shared by tests that change nothing.
    """
    keras.utils.set_random_seed(0)
    x, y = blobs(np.random.default_rng(0))
    classifier = small_classifier()
    classifier.fit(x, y, epochs=20, verbose=0)
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier, (x, y), class_names=class_names(3), score="gamma"
    )
    model.calibrate(x, true_positive_rate=0.9)
    return model, x, y


@pytest.fixture(scope="session")
def trained_pictures():
    """A calibrated model on color pictures of 12 x 10 pixels, and pictures.

    Known: the digits 0, 1 and 2, each on a ground of its own color. The
    pictures are uint8, half of them of the unknown digit 3.
    """
    keras.utils.set_random_seed(0)
    digits = sklearn.datasets.load_digits(n_class=4)
    grey = digits.images[:, :, :, None] * (255 / 16)
    grey = np.asarray(keras.ops.image.resize(grey, (12, 10)))
    ground = np.float32([[60, 0, 0], [0, 60, 0], [0, 0, 60], [60, 60, 0]])
    pictures = np.maximum(grey, ground[digits.target][:, None, None])
    pictures, labels = np.uint8(pictures.round()), digits.target
    known = labels < 3
    classifier = keras.Sequential(
        [
            keras.Input([None, None, 3]),
            cac_tf.layers.ImagePreprocessing(12, 10),
            cac_tf.layers.ChannelNormalization([0.2] * 3, [0.3] * 3),
            keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    classifier.compile(
        keras.optimizers.SGD(0.05, momentum=0.9), cac_tf.losses.CACLoss()
    )
    classifier.fit(pictures[known], labels[known], epochs=5, verbose=0)
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (pictures[known], labels[known]),
        class_names=["zero", "one", "zwei ©"],
        score="gamma",
    )
    model.calibrate(pictures[known], true_positive_rate=0.9)
    places = np.concatenate(
        [np.flatnonzero(known)[:24], np.flatnonzero(~known)[:24]]
    )
    return model, pictures[places]


@pytest.fixture(scope="session")
def served_pictures(trained_pictures, tmp_path_factory):
    """`trained_pictures` as version 3 in a server's folder; read only."""
    folder = tmp_path_factory.mktemp("served") / "digits"
    cac_tf.export.write_model_folder(
        trained_pictures[0], folder, 3, batch_sizes=(1, 4)
    )
    return folder


def unpack_images(archive, folder):
    """Unpacks an archive of real images, or skips where there are none."""
    images = os.environ.get("CAC_TF_IMAGES_DIR")
    if not images:
        pytest.skip("CAC_TF_IMAGES_DIR is not set: no real images here")
    shutil.unpack_archive(pathlib.Path(images) / archive, folder)


@pytest.fixture(scope="session")
def vehicles_folder(tmp_path_factory):
    """Photographs of vehicles and animals, unpacked."""
    folder = tmp_path_factory.mktemp("vehicles_animals")
    unpack_images("cifar100_vehicles_animals.tar", folder)
    return folder
