# SPDX-License-Identifier: Apache-2.0
"""GFROR: its loss by its equation, what its classifier sees, its resume."""

import numpy as np
import pytest

from cac_tf import methods
from cac_tf.data import load_open_set_dataset
from cac_tf.losses.symmetry import SymmetryLoss
from cac_tf.methods.gfror import augmented_inputs
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime
from tests.methods.conftest import parts_of
from tests.methods.conftest import train
from tests.methods.killed_training import check_resume

pytestmark = pytest.mark.filterwarnings("ignore:These classes keep")

QUICK = {
    "epochs": 2,
    "auto_encoder_epochs": 2,
    "auto_encoder_width": 4,
    "auto_encoder_latents": 8,
}


@pytest.fixture(scope="module")
def trained(digits, network):
    def train_in(folder, callbacks=None, **values):
        values = {**QUICK, "network": network, **values}
        return train("gfror", digits, folder, values, callbacks=callbacks)

    return train_in


@pytest.fixture(scope="module")
def finished(trained, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run"))


def log_softmax(logits):
    logits = np.float64(logits)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_loss_against_numpy(rng):
    labels, which = np.arange(6) % 3, np.int32([0, 7, 3, 1, 4, 5])
    outputs = {
        "logits": np.float32(rng.normal(size=(6, 3))),
        "symmetry_logits": np.float32(rng.normal(size=(6, 8))),
        "symmetry": which,
    }
    of_class = -log_softmax(outputs["logits"])[range(6), labels]
    of_symmetry = -log_softmax(outputs["symmetry_logits"])[range(6), which]
    for weight in (0.0, 0.2, 1.0):
        loss = SymmetryLoss(weight)
        wanted = (1 - weight) * of_class + weight * of_symmetry
        np.testing.assert_allclose(
            loss.call(labels, outputs), wanted, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            loss(labels, outputs), wanted.mean(), rtol=1e-5
        )


def test_the_classifier_sees_image_and_reconstruction(finished, digits):
    classifier, run = finished
    model = open_set_classifier(classifier, digits, "max_logit")
    network = classifier.get_layer("gfror")
    names = [logs["training"] for logs in run.history]
    assert names == ["auto_encoder"] * 2 + ["classifier"] * 2
    images = digits.known_test.images[:20]
    outputs = next(
        model.iterate_outputs(images, names=["reconstruction", "logits"])
    )[0]
    auto_encoder = network.get_layer("auto_encoder")
    pixels = np.float32(images) / 255
    reconstruction = np.asarray(auto_encoder(pixels, training=False))
    np.testing.assert_allclose(
        outputs["reconstruction"], reconstruction, rtol=1e-4, atol=1e-5
    )
    mean, std = digits.channel_statistics
    both = np.concatenate([pixels, reconstruction], axis=-1)
    both = (both - mean[0]) / std[0]
    features = network.get_layer("encoder")(both, training=False)
    layer = model.network.last_layer
    np.testing.assert_allclose(
        outputs["logits"],
        np.asarray(features) @ layer.kernel + layer.bias,
        rtol=1e-3,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        model.predict_scores(images).unknown_score,
        -outputs["logits"].max(axis=1),
        rtol=1e-5,
    )


def test_the_auto_encoder_is_frozen_while_the_classifier_learns(
    finished, trained, tmp_path
):
    longer, _ = trained(tmp_path, epochs=3)
    one, other = (
        m.get_layer("gfror").get_layer("auto_encoder")
        for m in (finished[0], longer)
    )
    assert not one.trainable_variables
    one, other = one.get_weights(), other.get_weights()
    for mine, its in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_the_loss_of_the_auto_encoder_against_numpy(finished, rng):
    training = augmented_inputs.AutoEncoderTraining(
        parts_of(finished[0], "gfror")
    )
    images = np.float32(rng.integers(0, 256, (5, 8, 8, 1)))
    outputs = training(images, training=False)
    loss = training.compute_loss(images, None, outputs, training=False)
    pixels = np.float64(images) / 255
    made = np.float64(training.learns(pixels, training=False))
    np.testing.assert_allclose(loss, np.square(made - pixels).mean(), rtol=1e-5)


def test_resumes_to_the_same_weights(trained, tmp_path):
    """In its second training, after one that has ended."""
    check_resume(trained, "classifier", 1, tmp_path)


def test_images_that_cannot_be_turned(network, tmp_path):
    """Rows and columns change places only in squares."""
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "wide.npz",
        x_train=rng.integers(0, 256, (60, 8, 12, 1), "uint8"),
        y_train=np.arange(60) % 3,
    )
    wide = load_open_set_dataset(
        str(tmp_path / "wide.npz"), known_classes=["0", "1"]
    )
    method = methods.get("gfror")
    run = TrainingRun(Runtime(seed=3), str(tmp_path))
    recipe = method.recipe(**QUICK, network=network)
    with pytest.raises(ValueError, match="square"):
        method.train(wide, recipe, run)
