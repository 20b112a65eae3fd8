# SPDX-License-Identifier: Apache-2.0
"""C2AE: its losses by their equations, its stages, its resume."""

import dataclasses

import keras
import numpy as np
import pytest

from cac_tf import experiments
from cac_tf import methods
from cac_tf.data import load_open_set_dataset
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
from tests.methods.killed_training import check_resume

pytestmark = pytest.mark.filterwarnings("ignore:These classes keep")

QUICK = {
    "epochs": 1,
    "dropout": 0.0,
    "decoder_epochs": 2,
    "decoder_width": 4,
}


@pytest.fixture(scope="module")
def digits():
    return load_open_set_dataset(
        "digits",
        known_classes=["0", "1", "2"],
        unknown_classes=["3", "4"],
        test_fraction=0.8,
    )


def trained(digits, folder, callbacks=None, **values):
    method = methods.get("c2ae")
    recipe = method.recipe(**{**method.preset("digits"), **QUICK, **values})
    run = TrainingRun(Runtime(seed=3), str(folder), callbacks=callbacks)
    return method.train(digits, recipe, run), run


@pytest.fixture(scope="module")
def finished(digits, tmp_path_factory):
    return trained(digits, tmp_path_factory.mktemp("run"))


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
    errors = reconstructions(parts, images)
    pixels = np.float64(images) / 255
    for row, label in enumerate(labels):
        wanted = np.abs(pixels[row] - errors[row][label]).mean()
        np.testing.assert_allclose(match[row], 0.7 * wanted, rtol=1e-4)
        # One of the images of other classes, as its class.
        allowed = [
            0.3 * np.abs(pixels[j] - errors[row][labels[j]]).mean()
            for j in range(6)
            if labels[j] != label
        ]
        assert np.isclose(other[row], allowed, rtol=1e-4).any()
    total = training.compute_loss(images, labels, outputs, training=False)
    assert np.isfinite(float(total))


def reconstructions(parts, images):
    """[row][class] -> (H, W, C), decoded one by one in evaluation mode."""
    encoder = parts.network.get_layer("encoder")
    layer = parts.network.get_layer("reconstruction")
    seen = parts.normalize(parts.prepare(images))
    latents = np.asarray(encoder(seen, training=False))
    found = []
    for z in latents:
        as_each = []
        for label in range(3):
            condition = -np.ones(3)
            condition[label] = 1
            gamma, beta = (
                condition @ np.float64(kernel) + np.float64(bias)
                for kernel, bias in (layer.scale_weights, layer.shift_weights)
            )
            modulated = np.float32(gamma * z + beta)[None]
            decoded = layer.decoder(modulated, training=False)
            as_each.append(np.float64(decoded)[0])
        found.append(as_each)
    return found


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


def test_the_decoder_leaves_the_classifier_as_it_is(digits, finished, tmp_path):
    classifier, run = finished
    assert [logs["training"] for logs in run.history] == [
        "classifier",
        "decoder",
        "decoder",
    ]
    assert run.history[-1]["loss"] < run.history[1]["loss"]
    # One more pass of the decoder changes errors, and no logits.
    other, _ = trained(digits, tmp_path, decoder_epochs=1)
    images = digits.known_test.images[:50]
    name = "reconstruction_errors"
    one, two = (m.predict_on_batch(images) for m in (classifier, other))
    np.testing.assert_array_equal(one["logits"], two["logits"])
    assert np.abs(one[name] - two[name]).max() > 1e-4
    # Whoever trains on has a classifier as before.
    network = classifier.get_layer("c2ae")
    assert network.get_layer("encoder").trainable
    assert not network.get_layer("reconstruction").trainable_variables


def test_what_was_frozen_stays_so(digits, tmp_path):
    method = methods.get("c2ae")
    recipe = method.recipe(**{**method.preset("digits"), **QUICK})
    run = TrainingRun(Runtime(seed=3), str(tmp_path))
    parts = method.parts(digits, recipe, run)
    encoder = parts.network.get_layer("encoder")
    frozen = encoder.layers[1]
    frozen.trainable = False
    trainable = [variable.path for variable in encoder.trainable_variables]
    assert trainable
    training = conditioned_training.DecoderTraining(parts)
    with training.learning():
        assert not encoder.trainable_variables
        assert training.reconstruction.trainable_variables
    assert trainable == [v.path for v in encoder.trainable_variables]
    assert encoder.trainable and not frozen.trainable
    assert not training.reconstruction.trainable_variables


def test_resumes_to_the_same_weights(digits, tmp_path):
    def train(folder, callbacks):
        return trained(digits, folder, callbacks, epochs=2, dropout=0.2)

    # Its second training, after one that has ended.
    check_resume(train, "decoder", 1, tmp_path)


def test_what_is_refused(parts):
    recipe = methods.get("c2ae").recipe
    for weight in (-0.1, 1.1):
        with pytest.raises(ValueError, match="match_weight must be at"):
            recipe(match_weight=weight)
        with pytest.raises(ValueError, match=r"match_weight must be in \[0, 1"):
            conditioned_training.DecoderTraining(parts, weight)
    with pytest.raises(ValueError, match="network must be one of"):
        recipe(network="vgg")


def test_a_loss_that_is_no_number_ends_the_training(digits, tmp_path):
    classifier, _ = trained(digits, tmp_path, decoder_epochs=1)
    training = conditioned_training.DecoderTraining(
        parts_of(classifier, "c2ae"), 0.9, seed=5
    )
    with training.learning():
        training.compile(keras.optimizers.Adam(1e-3))
        for weight in training.trainable_variables:
            weight.assign(np.nan * weight)
        with pytest.raises(
            FloatingPointError, match="became nan .*Lower decoder"
        ):
            training.fit(*digits.train, verbose=0)


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
        ((np.ones(9), np.ones(99)), "tail of 9 match errors has 0"),
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
    with pytest.raises(ValueError, match="so 50 validation images; there are"):
        method.train(few, recipe, run)
    assert not run.history


def test_which_threshold():
    data = {"dataset": "digits"}
    for recipe in ({"threshold": "extreme_values"}, {"preset": "paper"}):
        with pytest.raises(ValueError, match="true_positive_rate=0.9 has no"):
            experiments.ExperimentConfig(
                data, method="c2ae", recipe=recipe, true_positive_rate=0.9
            )
        with pytest.raises(ValueError, match="is for score=min_reconstruct"):
            experiments.ExperimentConfig(
                data, method="c2ae", recipe=recipe, score="max_softmax"
            )


def test_pictures_of_test_images_and_of_the_training(digits, tmp_path):
    method = methods.get("c2ae")
    recipe = method.recipe(**{**method.preset("digits"), **QUICK})
    (tmp_path / "run").mkdir()
    folder = RunFolder(str(tmp_path))
    run = TrainingRun(
        Runtime(seed=3), str(tmp_path / "run"), pictures=folder.file("pictures")
    )
    classifier = method.train(digits, recipe, run)
    model = open_set_classifier(classifier, digits, method.scores[0])
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
    (sheet,) = pictures.kept_pictures(folder)
    assert sheet.title == "From the training: decoder"
    names = [row.name for row in sheet.rows]
    assert names[0] == "training images"
    assert names[-1] == f"epoch {recipe.decoder_epochs}: reconstructed"
    np.testing.assert_array_equal(
        sheet.rows[0].images,
        np.rint(digits.train.evenly_spaced(12).images),
    )


def test_a_network_without_a_last_dense_layer():
    inputs = keras.Input([8, 8, 1])
    maps = keras.layers.Conv2D(3, 3)(inputs)
    logits = keras.layers.GlobalAveragePooling2D()(maps)
    with pytest.raises(ValueError, match="'pooled' no image .* dense layer"):
        image_networks.parts_of(keras.Model(inputs, logits, name="pooled"))
