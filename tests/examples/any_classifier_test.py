# SPDX-License-Identifier: Apache-2.0
"""The example that gives trained classifiers a rejection score."""

import numpy as np
import pytest

import cac_tf
from tests.conftest import ROOT
from tests.conftest import load_script


@pytest.mark.parametrize(
    ("network", "epochs", "auroc"),
    [("functional", 15, 0.9)],
)
def test_a_trained_classifier_rejects(network, epochs, auroc, tmp_path):
    import tensorflow as tf

    path = ROOT / "examples" / "any_classifier" / "add_rejection.py"
    evaluation = load_script(path).main(
        [
            f"--network={network}",
            f"--epochs={epochs}",
            f"--output_dir={tmp_path / 'out'}",
        ]
    )
    metrics = evaluation.metrics
    assert metrics["score"] == "deep_nearest_neighbours"
    assert metrics["auroc"] > auroc
    assert metrics["true_positive_rate"] > 0.8
    assert set(metrics["scores"]) == {
        "max_softmax",
        "energy",
        "deep_nearest_neighbours",
    }
    assert "<h2>Scores</h2>" in (tmp_path / "out" / "report.html").read_text()
    model = cac_tf.load_model(tmp_path / "out" / "model.keras")
    images = cac_tf.data.load_open_set_dataset("digits").unknown_test.images
    serve = tf.saved_model.load(str(tmp_path / "out" / "serving" / "1"))
    answers = serve.signatures["serving_default"](
        images=tf.constant(images, tf.float32)
    )
    expected = model.predict_scores(images).unknown_score
    np.testing.assert_allclose(
        answers["unknown_score"], expected, rtol=1e-4, atol=1e-4
    )
