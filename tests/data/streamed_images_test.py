# SPDX-License-Identifier: Apache-2.0
"""Streamed images are the same images, and train the same model."""

import threading

import numpy as np
import pytest

from cac_tf import data
from cac_tf import methods
from cac_tf.data import streamed_images
from cac_tf.data.sources.image_folder import load_image_folder
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.experiments.evaluation import evaluate
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.models import input_checks
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.training.batches import Batches
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

RECIPE = {"schedule": "two_stage", "epochs": 2, "second_stage_epochs": 1}


@pytest.fixture(scope="module")
def both(vehicles_folder):
    return [
        data.load_open_set_dataset(
            "folder",
            data_dir=str(vehicles_folder),
            known_classes=["train", "bus", "bicycle"],
            image_size=16,
            stream=stream,
        )
        for stream in (False, True)
    ]


def test_the_same_statistics(both):
    memory, streamed = both
    assert isinstance(streamed.train.images, StreamedImages)
    np.testing.assert_allclose(
        memory.channel_statistics, streamed.channel_statistics, rtol=1e-12
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:These classes keep")
def test_the_same_training_and_evaluation(both, tmp_path):
    """Bit for bit: streaming changes where pixels come from and no more."""
    results = []
    for index, dataset in enumerate(both):
        method = methods.get("cac")
        recipe = method.recipe(**RECIPE)
        run = TrainingRun(Runtime(0), str(tmp_path / str(index)))
        classifier = method.train(dataset, recipe, run)
        model = open_set_classifier(classifier, dataset, "gamma")
        results.append((model, run, evaluate(model, dataset)))
    (one, run, evaluation), (two, other_run, other) = results
    assert run.history == other_run.history
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_array_equal(evaluation.logits, other.logits)


def test_streamed_images_and_an_array_are_joined(both):
    memory, streamed = both
    as_floats = memory.validation.images.astype("float32") + 0.25
    joined = streamed.train.joined(memory.validation._replace(images=as_floats))
    expected = np.concatenate([memory.train.images, memory.validation.images])
    np.testing.assert_array_equal(joined.images[:], expected)
    assert joined.size == len(joined.images)


def test_batches_in_order(both):
    streamed = both[1].train
    batches = Batches(streamed, 100)
    images, labels = zip(
        *(batches[i] for i in range(batches.num_batches)), strict=True
    )
    batches.close()
    np.testing.assert_array_equal(np.concatenate(labels), streamed.labels)
    np.testing.assert_array_equal(np.concatenate(images), both[0].train.images)


def test_large_data_are_streamed_by_themselves(vehicles_folder, monkeypatch):
    monkeypatch.setattr(streamed_images, "MOST_BYTES_IN_MEMORY", 1 << 20)
    images = load_image_folder(vehicles_folder, 32)
    assert isinstance(images.train.images, StreamedImages)
    assert isinstance(
        load_image_folder(vehicles_folder, 32, stream=False).train.images,
        np.ndarray,
    )


def test_images_are_decoded_ahead_of_the_model(both, monkeypatch):
    """After the training, too: by threads of their own, in order."""
    memory, streamed = (dataset.known_test.images for dataset in both)
    threads, decode = set(), StreamedImages._decode

    def noting(self, source):
        threads.add(threading.get_ident())
        return decode(self, source)

    monkeypatch.setattr(StreamedImages, "_decode", noting)
    batches = input_checks.iterate_batches(streamed, batch_size=7)
    read = [images for images, _, _ in batches]
    assert {len(images) for images in read[:-1]} == {7}
    np.testing.assert_array_equal(np.concatenate(read), memory)
    assert threads and threading.get_ident() not in threads


def test_predictions_take_streamed_images(both, tmp_path):
    method = methods.get("cac")
    run = TrainingRun(Runtime(0), str(tmp_path))
    parts = method.parts(both[0], method.recipe(), run)
    model = OpenSetClassifier(parts.classifier(), both[0].class_names)
    one, two = (
        model.predict_scores(dataset.known_test.images) for dataset in both
    )
    np.testing.assert_array_equal(one.logits, two.logits)
