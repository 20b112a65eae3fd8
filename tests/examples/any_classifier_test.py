# SPDX-License-Identifier: Apache-2.0
"""The example that gives trained classifiers a rejection score."""

import keras
import numpy as np
import pytest

import cac_tf
from tests.conftest import ROOT
from tests.conftest import load_script


@pytest.fixture(scope="module")
def example():
    return load_script(
        ROOT / "examples" / "any_classifier" / "add_rejection.py"
    )


def test_a_trained_classifier_rejects(example, tmp_path):
    import tensorflow as tf

    evaluation = example.main(
        ["--epochs=15", f"--output_dir={tmp_path / 'out'}"]
    )
    metrics = evaluation.metrics
    assert metrics["score"] == "knn"
    assert metrics["auroc"] > 0.9
    assert metrics["true_positive_rate"] > 0.8
    assert set(metrics["scores"]) == {
        "max_softmax",
        "energy",
        "knn",
    }
    assert "<h2>Scores</h2>" in (tmp_path / "out" / "report.html").read_text()
    model = cac_tf.load_model(tmp_path / "out" / "model.keras")
    images = cac_tf.data.load_open_set_dataset("digits").unknown_test.images
    serve = tf.saved_model.load(str(tmp_path / "out" / "serving" / "1"))
    answers = serve.signatures["serving_default"](
        tf.constant(images, tf.float32)
    )
    expected = model.predict_scores(images).unknown_score
    np.testing.assert_allclose(
        answers["unknown_score"], expected, rtol=1e-4, atol=1e-4
    )


def test_a_classifier_of_keras_applications(example, rng):
    """Its softmax is taken off, and its pooled features are found."""
    names = ["a", "b", "c"]
    classifier = example.mobilenet_classifier(len(names))
    x = rng.uniform(0, 255, (12, 8, 8, 1)).astype("float32")
    *_, before, network = classifier.layers
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    classifier(x, training=True)  # Those get averages: of this batch.
    y = np.arange(12) % 3
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier, (x, y), class_names=names, score="knn"
    )
    outputs = model.outputs_of(x, ["logits", "features"])
    probabilities = classifier(x, training=False)
    assert np.std(probabilities, axis=0).max() > 0.01
    np.testing.assert_allclose(
        keras.ops.softmax(outputs["logits"]), probabilities, atol=1e-5
    )
    images = keras.Model(classifier.input, before.output)(x)
    # Its name depends on how many there were before.
    pooling = keras.layers.GlobalAveragePooling2D
    (pooled,) = [one for one in network.layers if isinstance(one, pooling)]
    features = keras.Model(network.input, pooled.output)
    expected = features(images, training=False)
    assert expected.shape == (12, 1280)
    np.testing.assert_allclose(
        outputs["features"], expected, rtol=1e-3, atol=1e-4
    )
