# SPDX-License-Identifier: Apache-2.0
"""C2AE: its losses by their equations, its stages, its resume."""

import dataclasses

import keras
import numpy as np
import pytest

from cac_tf import experiments
from cac_tf import methods
from cac_tf.experiments import pictures
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.methods.c2ae import conditioned_training
from cac_tf.methods.c2ae.extreme_values import errors_of
from cac_tf.methods.c2ae.extreme_values import extreme_value_threshold
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.methods.reconstruction import image_networks
from cac_tf.scores.min_reconstruction_error import MinReconstructionError
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime
from tests.methods.conftest import parts_of
from tests.methods.conftest import train
from tests.methods.killed_training import check_resume

pytestmark = pytest.mark.filterwarnings("ignore:These classes keep")

QUICK = {
    "network": "small_network",
    "epochs": 1,
    "dropout": 0.0,
    "decoder_epochs": 2,
    "decoder_width": 4,
}


@pytest.fixture(scope="module")
def trained(digits, network):
    def train_in(folder, callbacks=None, **values):
        options = {"callbacks": callbacks, "pictures": str(folder / "pictures")}
        folder.mkdir(exist_ok=True)
        return train(
            "c2ae", digits, folder / "kept", {**QUICK, **values}, **options
        )

    return train_in


@pytest.fixture(scope="module")
def finished(trained, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def parts(finished):
    return parts_of(finished[0], "c2ae")


@pytest.fixture
def model(finished, digits):
    score = methods.get("c2ae").scores[0]
    return open_set_classifier(finished[0], digits, score)


def test_the_loss_is_that_of_the_equations(parts, rng):
    training = conditioned_training.DecoderTraining(parts, 0.7, seed=5)
    images = np.float32(rng.integers(0, 256, (6, 8, 8, 1)))
    labels = np.array([0, 0, 1, 2, 1, 0])
    outputs = training(images, training=False)
    (match, ones), (other, there) = training.losses_of(
        images, labels, outputs, training=False
    )
    assert np.asarray(ones).tolist() == np.asarray(there).tolist() == [1.0] * 6
    # (tests/layers has the reconstructions themselves.)
    encoder = parts.network.get_layer("encoder")
    latents = encoder(parts.normalize(parts.prepare(images)), training=False)
    decoded = [
        np.float64(training.learns.as_classes(latents, np.full(6, label)))
        for label in range(3)
    ]
    pixels = np.float64(images) / 255
    for row, label in enumerate(labels):
        wanted = np.abs(pixels[row] - decoded[label][row]).mean()
        np.testing.assert_allclose(match[row], 0.7 * wanted, rtol=1e-4)
        # One of the images of other classes, as its class.
        allowed = [
            0.3 * np.abs(pixels[j] - decoded[labels[j]][row]).mean()
            for j in range(6)
            if labels[j] != label
        ]
        assert np.isclose(other[row], allowed, rtol=1e-4).any()
    total = training.compute_loss(images, labels, outputs, training=False)
    assert np.isfinite(float(total))


def test_images_of_other_classes(rng):
    labels = rng.integers(0, 3, 40)
    noise = np.float32(rng.uniform(size=(40, 40)))
    rows, there = map(
        np.asarray, conditioned_training.rows_of_other_classes(labels, noise)
    )
    assert (labels[rows] != labels).all() and there.all()
    for row, chosen in enumerate(rows):
        allowed = labels != labels[row]
        assert noise[row, chosen] == noise[row][allowed].max()
    _, there = conditioned_training.rows_of_other_classes(
        np.zeros(4, int), noise[:4, :4]
    )
    assert not np.asarray(there).any()


def test_a_batch_of_one_class_has_matches_only(parts):
    training = conditioned_training.DecoderTraining(parts, 0.9, seed=5)
    images = np.full((3, 8, 8, 1), 100, "float32")
    labels = np.zeros(3, int)
    outputs = training(images, training=False)
    loss = training.compute_loss(images, labels, outputs, training=False)
    (match, _), _ = training.losses_of(images, labels, outputs, False)
    np.testing.assert_allclose(loss, np.mean(match), rtol=1e-6)


def test_score_against_numpy(rng):
    errors = np.float32(rng.uniform(size=(7, 4)))
    score = MinReconstructionError()
    np.testing.assert_array_equal(score(errors), errors.min(axis=1))
    # The class is the classifier's.
    logits = np.float32(rng.normal(size=(7, 4)))
    predicted = score.predicted_class({"logits": logits, "distances": logits})
    np.testing.assert_array_equal(predicted, logits.argmax(axis=1))


def test_the_decoder_leaves_the_classifier_as_it_is(
    digits, finished, trained, tmp_path
):
    classifier, run = finished
    assert [logs["training"] for logs in run.history] == [
        "classifier",
        "decoder",
        "decoder",
    ]
    assert run.history[-1]["loss"] < run.history[1]["loss"]
    # One more pass of the decoder changes errors, and no logits.
    other, _ = trained(tmp_path, decoder_epochs=1)
    images = digits.known_test.images[:50]
    name = "reconstruction_errors"
    one, two = (m.predict_on_batch(images) for m in (classifier, other))
    np.testing.assert_array_equal(one["logits"], two["logits"])
    assert np.abs(one[name] - two[name]).max() > 1e-4
    # Whoever trains on has a classifier as before.
    network = classifier.get_layer("c2ae")
    assert network.get_layer("encoder").trainable
    assert not network.get_layer("reconstruction").trainable_variables
    training = conditioned_training.DecoderTraining(
        parts_of(classifier, "c2ae")
    )
    with training.learning():
        learns = {id(v) for v in training.trainable_variables}
    assert learns and not learns & {
        id(v) for v in network.get_layer("encoder").variables
    }


def test_resumes_to_the_same_weights(trained, tmp_path):
    """In its second training, after one that has ended."""

    def train_in(folder, callbacks):
        return trained(folder, callbacks, dropout=0.2)

    check_resume(train_in, "decoder", 1, tmp_path)


def test_a_loss_that_is_no_number_ends_the_training(parts, digits):
    training = conditioned_training.DecoderTraining(parts, 0.9, seed=5)
    before = training.get_weights()
    with training.learning():
        training.compile(keras.optimizers.Adam(1e-3))
        for weight in training.trainable_variables:
            weight.assign(np.nan * weight)
        with pytest.raises(
            FloatingPointError, match="became nan .*Lower decoder"
        ):
            training.fit(*digits.train, verbose=0)
    training.set_weights(before)


def test_threshold_from_the_tails_is_the_best_one(rng):
    """Of exponential errors, which are Pareto with the shape 0, in NumPy."""
    match = rng.exponential(0.1, 20_000)
    non_match = 1.0 - rng.exponential(0.1, 20_000)
    for share in (0.5, 0.9):
        # Where the weighted densities of the two are equal.
        wanted = 0.5 + 0.05 * np.log((1 - share) / share)
        threshold = extreme_value_threshold(match, non_match, share)
        assert threshold == pytest.approx(wanted, abs=0.03)


def test_threshold_of_a_model(model, digits, monkeypatch):
    match, other = errors_of(model, digits.validation)
    assert len(other) == 2 * len(match) == 2 * digits.validation.size
    threshold = extreme_value_threshold(match, other, tail_share=0.3)
    # A tenth of these few images is no tail.
    monkeypatch.setattr(extreme_value_threshold, "__defaults__", (0.5, 0.3))
    method = methods.get("c2ae")
    recipe = method.recipe(threshold="extreme_values")
    method.calibrate(model, digits, recipe, 0.95)
    assert model.threshold == pytest.approx(threshold)
    method.calibrate(model, digits, method.recipe(), 0.95)
    assert model.threshold != pytest.approx(threshold)
    model.threshold = threshold
    prediction = model.predict_open_set(digits.known_test.images)
    np.testing.assert_array_equal(
        prediction.is_unknown, prediction.unknown_score > np.float32(threshold)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(9), np.ones(99)), "tail of 9 match errors contains only 0"),
        ((np.ones(99), np.full(99, np.nan)), "non_match must be finite"),
        ((np.ones(99), np.ones(99), 0.0), "unknown_share must be in"),
        ((np.ones(99), np.ones(99), 0.5, 1.0), "tail_share must be in"),
    ],
)
def test_thresholds_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        extreme_value_threshold(*arguments)


def test_too_few_images_for_the_tails_are_found_first(digits, tmp_path):
    method = methods.get("c2ae")
    few = dataclasses.replace(
        digits, validation=digits.validation.evenly_spaced(49)
    )
    run = TrainingRun(Runtime(seed=0), str(tmp_path))
    recipe = method.recipe(threshold="extreme_values")
    with pytest.raises(
        ValueError, match="that is 50 validation images; there are"
    ):
        method.train(few, recipe, run)
    assert not run.history


def test_which_threshold():
    data = {"dataset": "digits"}
    for recipe in ({"threshold": "extreme_values"}, {"preset": "paper"}):
        with pytest.raises(ValueError, match="true_positive_rate=0.9 has no"):
            experiments.ExperimentConfig(
                data, method="c2ae", recipe=recipe, true_positive_rate=0.9
            )
        with pytest.raises(ValueError, match="only with score=min_reconstruct"):
            experiments.ExperimentConfig(
                data, method="c2ae", recipe=recipe, score="max_softmax"
            )


def test_a_network_without_a_last_dense_layer():
    inputs = keras.Input([8, 8, 1])
    maps = keras.layers.Conv2D(3, 3)(inputs)
    logits = keras.layers.GlobalAveragePooling2D()(maps)
    with pytest.raises(ValueError, match="'pooled': it must .* dense layer"):
        image_networks.parts_of(keras.Model(inputs, logits, name="pooled"))


def test_pictures_of_test_images_and_of_the_training(finished, digits):
    model = open_set_classifier(finished[0], digits, "max_logit")
    (sheet,) = pictures.reconstructions(model, digits)
    known, made, unknown, _ = sheet.rows
    assert known.name == "known" and unknown.name == "unknown"
    errors = np.abs(made.images - known.images).mean(axis=(1, 2, 3)) / 255
    assert made.captions == tuple(f"{error:.3f}" for error in errors)
    # The output is the best of the reconstructions.
    ((outputs, *_),) = model.iterate_outputs(
        known.images, names=["reconstruction_errors"]
    )
    np.testing.assert_allclose(
        outputs["reconstruction_errors"].min(axis=1), errors, atol=1e-5
    )
    (sheet,) = pictures.kept_pictures(RunFolder(finished[1].pictures + "/.."))
    assert sheet.title == "From training: decoder"
    first, *_, last = sheet.rows
    assert first.name == "training images"
    assert last.name == "epoch 2: reconstructed"
    shown = digits.train.evenly_spaced(12).images
    np.testing.assert_array_equal(first.images, np.rint(shown))
    drawn = finished[0].predict_on_batch(shown)["reconstruction"]
    np.testing.assert_allclose(last.images, 255 * drawn, atol=0.6)
