# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

import cac_tf
from cac_tf.training.frozen_backbone import classifier_on_frozen
from cac_tf.training.frozen_backbone import trained_head
from tests.execution import BACKEND
from tests.export.runtimes import load_saved_model


@pytest.fixture(scope="module")
def dataset():
    return cac_tf.data.load_open_set_dataset("digits")


@pytest.fixture(scope="module")
def backbone():
    keras.utils.set_random_seed(0)
    network = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(6, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
        ]
    )
    network.trainable = False
    return network


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.mark.parametrize(
    "loss, hidden, score",
    [("cac", 32, "gamma"), ("cross_entropy", 32, None), ("cac", None, "knn")],
)
def test_it_classifies_and_rejects_raw_pixels(
    backbone, dataset, kept, loss, hidden, score, tmp_path
):
    before = backbone.get_weights()
    model = classifier_on_frozen(
        backbone,
        dataset,
        kept,
        loss=loss,
        hidden=hidden,
        score=score,
        epochs=8,
    )
    for one, other in zip(before, backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    known, unknown = dataset.known_test, dataset.unknown_test
    x = np.concatenate([known.images, unknown.images])
    y = np.r_[known.labels, np.full(unknown.size, -1)]
    measures = model.evaluate(x, y)
    assert measures["accuracy"] > 0.85
    assert measures["auroc"] > 0.8
    # The threshold is that of the validation images, as from their pixels.
    scores = model.predict_scores(dataset.validation.images).unknown_score
    accepted = np.mean(scores <= model.threshold)
    assert accepted == pytest.approx(0.95, abs=0.02)
    # Pixels get the answer of a model that was made in the long way.
    longer = cac_tf.OpenSetClassifier.from_classifier(
        model.classifier,
        tuple(dataset.train),
        class_names=dataset.class_names,
        score=model.score,
        validation_data=tuple(dataset.validation),
    )
    one, other = (m.predict_open_set(x) for m in (model, longer))
    assert np.mean(one.class_id == other.class_id) > 0.99
    # Saved, it answers as before.
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras").predict_open_set(x)
    np.testing.assert_array_equal(again.class_id, one.class_id)
    if score == "gamma" and BACKEND == "tensorflow":
        # So does what is served, one graph.
        model.export(tmp_path / "served")
        served = load_saved_model(tmp_path / "served")(np.float32(x))
        np.testing.assert_array_equal(served["class_id"], one.class_id)


def test_the_head_is_the_seeds_own(dataset):
    features = dataset.train.images.reshape(-1, 64)[:200] / np.float32(255)

    def logits(seed):
        head = trained_head(
            features, dataset.train.labels[:200], 6, epochs=2, seed=seed
        )
        return head.predict(features, verbose=0)

    one = logits(3)
    keras.random.uniform((2,))  # The state of the process does not matter.
    np.testing.assert_array_equal(logits(3), one)
    assert np.abs(logits(4) - one).max() > 0.1


def test_an_unknown_loss_is_refused_before_anything_is_computed(
    backbone, dataset, tmp_path
):
    with pytest.raises(ValueError, match="loss must be one of cac, cross_ent"):
        classifier_on_frozen(backbone, dataset, tmp_path, loss="mse")
    assert not any(tmp_path.iterdir())
