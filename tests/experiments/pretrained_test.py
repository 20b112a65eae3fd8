# SPDX-License-Identifier: Apache-2.0
"""From a folder of photos and somebody's network to a served model."""

import csv
import dataclasses
import json
import math
import os

import keras
import numpy as np
import PIL.Image
import pytest
import sklearn.datasets

import cac_tf
from cac_tf import batch
from cac_tf import experiments
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments import EvaluationConfig
from cac_tf.experiments import ExperimentConfig
from cac_tf.experiments import cross_fitting
from cac_tf.experiments.config import is_frozen
from cac_tf.experiments.run_folder import read_config
from cac_tf.layers.affine_augmentation import AffineView
from cac_tf.models import pretrained_backbone
from cac_tf.models.image_classifier import of_raw_images
from tests.export.runtimes import load_saved_model

KNOWN = ("0", "1", "4", "6")
UNKNOWN = ("2", "7")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Digits as colored files, larger than the network takes."""
    folder = tmp_path_factory.mktemp("photos")
    bunch = sklearn.datasets.load_digits()
    for name in (*KNOWN, *UNKNOWN):
        (folder / name).mkdir()
        for row in np.flatnonzero(bunch.target == int(name))[:50]:
            pixels = np.kron(15 * bunch.images[row], np.ones((2, 2)))
            image = PIL.Image.fromarray(pixels.astype("uint8")).convert("RGB")
            image.save(folder / name / f"{row}.png")
    return folder


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network of 8x8 pixels with batch normalization, and its file."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input([8, 8, 3]),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(12, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(7),
        ]
    )
    norm = model.layers[2]
    rng = np.random.default_rng(0)
    norm.set_weights([rng.uniform(0.5, 1.5, w.shape) for w in norm.weights])
    path = str(tmp_path_factory.mktemp("network") / "somebodys.keras")
    model.save(path)
    return path


def config_of(photos, network, recipe=(), **settings):
    data = {"dataset": "folder", "data_dir": photos, "known_classes": KNOWN}
    recipe = {"network": network, "epochs": 12, "batch_size": 8, **dict(recipe)}
    return ExperimentConfig(data, recipe=recipe, **settings)


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def run(photos, network, tmp_path_factory, told):
    return experiments.train(
        config_of(photos, network, score="knn", scores=("gamma",)),
        tmp_path_factory.mktemp("runs") / "one",
        tell=lambda *said: told.append(said),
    )


@pytest.fixture(scope="module")
def model(run):
    return cac_tf.load_model(run.folder.file("model.keras"))


def test_it_is_trained_on_features_and_measured_as_images(run, told):
    measures = run.evaluation.metrics
    assert measures["inputs"] == "images"
    assert measures["accuracy"] > 0.8
    assert measures["auroc"] > 0.8
    counts = [said[1:] for said in told if said[0] == "computed"]
    assert sum(total for done, total in counts if done == total) == 300
    notes = " ".join(said[1] for said in told if said[0] == "note")
    assert "somebodys.keras was pretrained, perhaps on classes" in notes
    assert "it computed features for 300 of 300 images" in notes
    with open(run.folder.file("report.html")) as file:
        report = file.read()
    assert "was pretrained" in report
    assert '<div class="picture">' in report


def test_the_run_says_what_the_network_took(run, photos, network):
    with open(run.folder.file("config.json")) as file:
        content = json.load(file)
    settings = content["settings"]
    # Its own size, and a recipe for so many vectors.
    assert settings["data"]["image_size"] == 8
    recipe = settings["recipe"]
    assert (recipe["network"], recipe["magnitude"]) == (network, 5.0)
    assert not {"weights", "flip", "scale", "rotation"} & {*recipe}
    again = ExperimentConfig.from_dict(settings)
    assert again.settings() == settings
    recipe = config_of(photos, network, {"epochs": 3}).recipe_in_force
    assert (recipe.algorithm, recipe.epochs) == ("adam", 3)
    usual = ExperimentConfig(again.data, recipe={"network": network})
    assert usual.recipe_in_force.epochs == 100  # 300 files.


def test_pixels_get_the_answers_of_features(run, model, photos):
    dataset = load_open_set_dataset(
        "folder",
        data_dir=photos,
        known_classes=KNOWN,
        image_size=8,
        interpolation="bicubic",
    )
    known = dataset.known_test
    scores = model.predict_scores(known.images)
    found = run.evaluation.unknown_score[: known.size]
    # (Features were kept in half precision.)
    np.testing.assert_allclose(scores.unknown_score, found, atol=2e-3)
    np.testing.assert_allclose(
        scores.logits, run.evaluation.logits[: known.size], atol=2e-2
    )
    assert model.threshold == run.evaluation.metrics["threshold"]
    answers = model.predict_open_set(dataset.validation.images)
    assert answers.p_value.min() < 0.1
    assert np.mean(~answers.is_unknown) > 0.9


def test_files_get_the_same_answers_here_and_served(run, photos):
    with open(run.folder.file("predictions.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    expected = {row["key"]: row["label"] for row in rows}
    paths = [os.path.join(photos, key) for key in expected]
    for path in (run.folder.path, run.folder.serving):
        classifier = batch.Classifier.load(path)
        found = dict(batch.classify_files(classifier, paths))
        same = [
            found[os.path.join(photos, key)].label == label
            for key, label in expected.items()
        ]
        assert np.mean(same) > 0.98
    served = load_saved_model(os.path.join(run.folder.serving, "1"))
    assert served(np.zeros((2, 8, 8, 3), "float32"))["distances"].shape == (
        2,
        4,
    )


def test_a_killed_run_ends_alike_and_computes_nothing_again(
    run, model, photos, network, monkeypatch
):
    class Kill(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 3:
                raise KeyboardInterrupt

    told = []

    def tell(kind, *values):
        told.append(kind)
        return [Kill()] if kind == "callbacks" and told.count(kind) == 1 else ()

    config = config_of(photos, network, score="knn", scores=("gamma",))
    folder = os.path.join(os.path.dirname(run.folder.path), "two")
    module = experiments.train.__globals__
    monkeypatch.setitem(module, "_export", lambda *args: None)
    with pytest.raises(KeyboardInterrupt):
        experiments.train(config, folder, tell=tell)
    done = experiments.train(config, folder, tell=tell)
    assert "computed" not in told
    again = cac_tf.load_model(done.folder.file("model.keras"))
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_views_are_trained_on_and_kept(run, photos, network, monkeypatch):
    """Each is the frozen network's answer to one map of all images."""
    trained = []
    find = experiments.train.__globals__["methods"].get

    class Spy:
        def __init__(self, method):
            self._method = method

        def __getattr__(self, name):
            return getattr(self._method, name)

        def train(self, dataset, recipe, run):
            trained.append(dataset.train)
            return self._method.train(dataset, recipe, run)

    module = experiments.train.__globals__
    monkeypatch.setattr(module["methods"], "get", lambda name: Spy(find(name)))
    monkeypatch.setitem(module, "_export", lambda *args: None)
    told = []
    config = config_of(photos, network, {"views": 3, "epochs": 2})
    beside = os.path.join(os.path.dirname(run.folder.path), "views")
    experiments.train(config, beside, tell=lambda *said: told.append(said))
    data = load_open_set_dataset(config.data)
    # Plain ones are there from the run beside this one.
    done = [said for said in told if said[0] == "computed"]
    assert sum(said[1:][-1] for said in done) == 2 * data.train.size
    (train,) = trained
    assert train.size == 3 * data.train.size
    np.testing.assert_array_equal(
        train.labels,
        np.r_[data.train.labels, np.repeat(data.train.labels, 2)],
    )
    recipe = config.recipe_in_force
    backbone = of_raw_images(
        pretrained_backbone(network),
        data.image_shape,
        AffineView(recipe.scale, recipe.flip, recipe.rotation, seed=2),
        data.interpolation,
    )
    expected = backbone.predict(data.train.images[:4], verbose=0)
    found = train.images[data.train.size :][1:8:2]
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert np.abs(train.images[:4] - expected).max() > 0.1


def test_a_table_of_paths_is_trained_on_as_the_folder(
    run, model, photos, network, tmp_path, monkeypatch
):
    """The same files: nothing is computed again, and the model is the same."""
    names = [
        os.path.join(name, file)
        for name in sorted((*KNOWN, *UNKNOWN))
        for file in sorted(os.listdir(photos / name))
    ]
    table = photos / "photos.csv"
    with open(table, "w", newline="") as file:
        rows = ((i, name, name[0]) for i, name in enumerate(names))
        csv.writer(file).writerows([("id", "photo", "kind"), *rows])
    config = config_of(photos, network, score="knn", scores=("gamma",))
    data = {
        "dataset": str(table),
        "label_column": "kind",
        "known_classes": KNOWN,
    }
    config = dataclasses.replace(config, data=data)
    assert config.takes_images and config.vectors == 300
    assert config.data.image_size == 8
    told = []
    folder = os.path.join(os.path.dirname(run.folder.path), "of_table")
    module = experiments.train.__globals__
    monkeypatch.setitem(module, "_export", lambda *args: None)
    done = experiments.train(
        config, folder, tell=lambda *said: told.append(said)
    )
    assert "computed" not in [said[0] for said in told]
    same = cac_tf.load_model(done.folder.file("model.keras"))
    for one, other in zip(model.weights, same.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    data_of = [read_config(one.folder.path)["data"] for one in (run, done)]
    assert data_of[0]["sha256"] == data_of[1]["sha256"]
    assert data_of[1]["input_columns"] == ["photo"]
    with open(done.folder.file("predictions.csv"), newline="") as file:
        expected = {row["key"]: row["label"] for row in csv.DictReader(file)}
    with open(run.folder.file("predictions.csv"), newline="") as file:
        assert expected == {r["key"]: r["label"] for r in csv.DictReader(file)}
    # The column is found, and rows are called as their files.
    classifier = batch.Classifier.load(done.folder.path)
    answers = dict(batch.classify_files(classifier, [str(table)]))
    assert [*answers] == names
    same = [answers[key].label == label for key, label in expected.items()]
    assert np.mean(same) > 0.98


def test_few_photos_are_not_set_apart(
    run, photos, network, tmp_path, monkeypatch
):
    """As few vectors; more trainings of a head give the threshold."""
    for name in (*KNOWN, *UNKNOWN):
        (tmp_path / "few" / name).mkdir(parents=True)
        for file in sorted(os.listdir(photos / name))[:20]:
            os.link(photos / name / file, tmp_path / "few" / name / file)
    config = config_of(
        tmp_path / "few",
        network,
        {"epochs": 40, "learning_rate": 0.01},
        score="knn",
        scores=("gamma",),
    )
    module = experiments.train.__globals__
    monkeypatch.setitem(module, "_export", lambda *args: None)
    monkeypatch.setattr(cross_fitting, "FOLDS", 2)
    told = []
    folder = os.path.join(os.path.dirname(run.folder.path), "few")
    done = experiments.train(
        config, folder, tell=lambda *said: told.append(said)
    )
    assert "computed" not in [said[0] for said in told]
    measures = done.evaluation.metrics
    assert measures["counts"]["train"] == 56
    assert measures["counts"]["validation"] == 0
    calibration = measures["calibration"]
    assert calibration["examples"] == 56
    assert calibration["accepted"] == math.ceil(0.95 * 57)
    assert any("fewer than 20 training examples" in str(s) for s in told)
    trained = {said[1] for said in told if said[0] == "callbacks"}
    assert trained == {
        "classifier",
        *("without_0_classifier", "without_1_classifier"),
    }
    model = cac_tf.load_model(done.folder.file("model.keras"))
    assert model.inputs_taken.shape == (None, None, 3)
    assert model.threshold == measures["threshold"]
    # An evaluation has the same parts, and so has one of its model.
    file = done.folder.file("model.keras")
    for place in ("again", "once_more"):
        again = experiments.evaluate_saved(
            EvaluationConfig(file, threshold=1.0), tmp_path / place
        )
        counts = again.evaluation.metrics["counts"]
        assert counts == measures["counts"]
        file = again.folder.file("model.keras")
        with pytest.raises(ValueError, match="no validation part"):
            experiments.evaluate_saved(
                EvaluationConfig(file, true_positive_rate=0.9),
                tmp_path / "refused",
            )
    # Asked for, some are; and where the network itself is trained.
    for data, recipe in (
        ({"validation_fraction": 0.2}, {}),
        ({}, {"fine_tune": 1}),
    ):
        config = config_of(tmp_path / "few", network, recipe)
        config = dataclasses.replace(
            config, data={**config.data.in_force, **data}
        )
        dataset = load_open_set_dataset(
            config.data, as_vectors=is_frozen(config.recipe)
        )
        assert dataset.counts["validation"] == 11


def test_fine_tuning_leaves_batch_normalization(
    run, photos, network, tmp_path, monkeypatch
):
    config = config_of(
        photos, network, {"fine_tune": 2}, method="cross_entropy", seed=3
    )
    assert config.recipe_in_force.in_force["flip"] == 0.5
    module = experiments.train.__globals__
    monkeypatch.setitem(module, "_export", lambda *args: None)
    beside = os.path.join(os.path.dirname(run.folder.path), "three")
    done = experiments.train(config, beside)
    assert done.evaluation.metrics["accuracy"] > 0.8
    with open(done.folder.file("history.json")) as file:
        trainings = [logs["training"] for logs in json.load(file)]
    assert trainings == ["classifier"] * 12 + ["fine_tuning"] * 2
    before = keras.saving.load_model(network)
    after = cac_tf.load_model(done.folder.file("model.keras")).classifier
    found = {
        type(layer).__name__: layer.get_weights()
        for layer in cac_tf.keras_private.layers_inside(after)
        if layer.weights
    }
    for one, same in zip(
        before.layers[2].get_weights(),
        found["BatchNormalization"],
        strict=True,
    ):
        np.testing.assert_array_equal(one, same)
    changes = np.abs(found["Conv2D"][0] - before.layers[1].get_weights()[0])
    assert 0 < changes.max() < 0.05


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ({"flip": 0.5}, {}, "^flip=0.5 has no effect with a frozen network"),
        ({"weights": "none"}, {}, "no effect with network=.*, which has its"),
        ({}, {"tta": "flip"}, "tta=flip is not available .* or set fine_tune"),
        ({}, {"method": "crosr"}, "^method=crosr works only with images"),
        ({"preset": "fast"}, {}, "preset=fast is not available for vectors"),
        ({"network": "resnet81"}, {}, "did you mean 'resnet18'.* pretrained"),
        (
            {"network": "resnet18", "fine_tune": 1},
            {},
            "^fine_tune=1 has no effect with network=resnet18",
        ),
        (
            {"network": "resnet18", "weights": "none"},
            {},
            "^weights=none has no effect with network=resnet18",
        ),
    ],
)
def test_what_has_no_effect(photos, network, recipe, settings, message):
    with pytest.raises(ValueError, match=message):
        config_of(photos, network, recipe, **settings)


def test_what_does_not_fit(run, photos, network, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "rows.npz", x_train=rng.normal(size=(9, 4)), y_train=[1] * 9
    )
    with pytest.raises(
        ValueError, match="needs images, but .*rows.npz contains"
    ):
        ExperimentConfig(
            {"dataset": str(tmp_path / "rows.npz")}, recipe={"network": network}
        )
    grey = ExperimentConfig({"dataset": "digits"}, recipe={"network": network})
    folder = tmp_path / "run"
    with pytest.raises(
        ValueError, match="images with 3 channels; .*digits have"
    ):
        experiments.train(grey, folder)
    config = config_of(photos, network)
    with pytest.raises(ValueError, match="one device and one process"):
        experiments.train(config, folder, devices=2)
    assert not folder.exists()
    # A run does not go on with another network, whatever its name.
    config = config_of(photos, network, score="knn", scores=("gamma",))
    os.unlink(run.folder.file("metrics.json"))
    other = keras.saving.load_model(network)
    other.layers[1].set_weights([2 * w for w in other.layers[1].get_weights()])
    other.save(network)
    with pytest.raises(
        ValueError, match="with different data .*network_sha256"
    ):
        experiments.train(config, run.folder.path)
