# SPDX-License-Identifier: Apache-2.0
"""Every registered method, those of other packages too, by the same suite."""

import dataclasses

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import keras_private
from cac_tf import methods
from cac_tf import options
from cac_tf import scores
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments import ExperimentConfig
from cac_tf.experiments import evaluate
from cac_tf.export.saved_model import graphs_and_description
from cac_tf.methods.generated_unknowns.method import GeneratedUnknowns
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.models import networks
from cac_tf.models.backbone_checks import by_name
from cac_tf.models.networks import registry
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

pytestmark = [
    # After one epoch not every class is right once, nor does every score fit.
    pytest.mark.filterwarnings("ignore:These classes keep"),
    pytest.mark.filterwarnings("ignore:The score .* is skipped"),
    pytest.mark.filterwarnings("ignore:.* counterfactual images are still"),
]


# One of each kind of training.
KINDS = ("cac", "c2ae")
# Compiling takes long on JAX: there, one of each kind of training.
NAMES = (
    ("cac", "c2ae", "osrci")
    if keras.backend.backend() == "jax"
    else methods.names()
)


@pytest.fixture(
    scope="module",
    params=[
        # They train a generator too, and each tracing takes half a minute.
        pytest.param(name, marks=pytest.mark.slow)
        if isinstance(methods.get(name), GeneratedUnknowns)
        else name
        for name in NAMES
    ],
)
def method(request):
    return methods.get(request.param)


def tiny_network(num_classes, input_shape, dropout, weight_decay, seed):
    """All trainings of all methods in seconds, with a map for `crosr`."""
    del dropout, weight_decay
    seeds = iter(range(seed, seed + 3))

    def start():
        return keras.initializers.GlorotUniform(next(seeds))

    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Conv2D(
                4,
                2,
                strides=2,
                activation="relu",
                kernel_initializer=start(),
            ),
            keras.layers.Flatten(),
            keras.layers.Dense(
                16, activation="relu", kernel_initializer=start()
            ),
            keras.layers.Dense(
                num_classes, kernel_initializer=start(), dtype="float32"
            ),
        ]
    )


@pytest.fixture(scope="module", autouse=True)
def _tiny_network():
    networks.register(tiny_network)
    yield
    del registry._NETWORKS._entries["tiny_network"]


def quick(method):
    fields = {field.name for field in dataclasses.fields(method.recipe)}
    wanted = {"epochs": 1, "dropout": 0.0, "network": "tiny_network"}
    # Those of generators and decoders, too.
    own = fields - {"second_stage_epochs"}
    wanted |= {name: 12 for name in own if name.endswith("_epochs")}
    # OpenMax is fitted to what is classified correctly.
    if issubclass(scores.find(method.scores[0]), scores.OpenMax):
        wanted |= {"epochs": 60, "learning_rate": 0.05}
    return {name: value for name, value in wanted.items() if name in fields}


@pytest.fixture(scope="module")
def digits():
    """With negatives, for the methods that train on them."""
    return load_open_set_dataset(
        "digits",
        known_classes=["0", "1", "2", "4", "5", "9"],
        negative_classes=["3"],
        test_fraction=0.8,
    )


def train(method, dataset, folder):
    recipe = method.recipe(**{**method.preset("digits"), **quick(method)})
    run = TrainingRun(Runtime(seed=5), str(folder))
    return method.train(dataset, recipe, run), run


@pytest.fixture(scope="module")
def folder(method, tmp_path_factory):
    return tmp_path_factory.mktemp(method.name)


@pytest.fixture(scope="module")
def trained(method, digits, folder):
    """The classifier and its run: each method is trained once."""
    return train(method, digits, folder)


@pytest.fixture(scope="module")
def model(method, trained, digits):
    made = open_set_classifier(trained[0], digits, method.scores[0])
    made.calibrate(digits.validation.images, true_positive_rate=0.5)
    return made


def test_fields_say_their_help_and_limits(method):
    for field in dataclasses.fields(method.recipe):
        assert field.metadata["help"].strip(), field.name
        assert type(field.default) in (bool, int, float, str), field.name
        choices = options.choices_of(field)
        if choices is not None:
            assert field.default in choices
            with pytest.raises(ValueError, match=f"{field.name} must be one"):
                method.recipe(**{field.name: "no such thing"})
        elif type(field.default) in (int, float):
            with pytest.raises(ValueError, match=field.name):
                method.recipe(**{field.name: float("nan")})
        for limit, beyond in (
            ("at_least", -1),
            ("at_most", 1),
            ("above", 0),
            ("below", 0),
        ):
            bound = field.metadata[limit]
            if bound is not None:
                with pytest.raises(ValueError, match=f"{field.name} must be"):
                    method.recipe(**{field.name: bound + beyond})


def test_its_scores_and_presets_exist(method):
    assert method.scores and set(method.scores) <= set(scores.names())
    for dataset in ("digits", "cifar10", "a folder"):
        method.recipe(**method.preset(dataset))


def test_negatives_are_asked_for(method, tmp_path):
    if not getattr(method, "trains_on_negatives", False):
        pytest.skip("trains on known images alone")
    dataset = load_open_set_dataset("digits", test_fraction=0.8)
    with pytest.raises(ValueError, match="negative_classes="):
        train(method, dataset, tmp_path)


def test_it_is_an_experiment(method):
    config = ExperimentConfig(
        {"dataset": "digits"}, method=method.name, recipe=quick(method)
    )
    assert config.score == method.scores[0]
    again = ExperimentConfig.from_dict(config.settings())
    assert again == config
    with pytest.raises(ValueError, match="no_such_field=1 has no effect"):
        ExperimentConfig(
            {"dataset": "digits"},
            method=method.name,
            recipe={"no_such_field": 1},
        )


def test_it_gives_a_classifier_that_is_ready(trained, model, digits):
    _, run = trained
    assert model.class_names == digits.class_names
    assert len(run.history) >= 1 and run.seconds > 0
    measures = evaluate(model, digits, scores=scores.names()).metrics
    assert 0.0 <= measures["auroc"] <= 1.0


def test_its_classifier_is_saved_loaded_and_exported(model, digits, tmp_path):
    images = digits.known_test.images[:40]
    expected = model.predict_open_set(images)
    assert expected.is_unknown.any() and not expected.is_unknown.all()
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras").predict_open_set(images)
    for one, other in zip(again, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    graphs, _ = graphs_and_description(model)
    answer = graphs["serving_default"](images=tf.constant(images, tf.float32))
    np.testing.assert_array_equal(answer["class_id"], expected.class_id)
    np.testing.assert_allclose(
        answer["unknown_score"], expected.unknown_score, rtol=2e-4, atol=2e-5
    )


def test_a_training_that_is_over_is_not_run_again(
    method, trained, folder, digits
):
    classifier, run = trained
    other, again = train(method, digits, folder)
    assert again.history == run.history
    for one, two in zip(classifier.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_from_the_beginning_the_same_to_the_bit(
    method, trained, digits, tmp_path
):
    if method.name not in KINDS:
        pytest.skip("another method has this kind of training")
    classifier, run = trained
    other, again = train(method, digits, tmp_path)
    assert again.history == run.history
    for one, two in zip(classifier.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_it_learns_in_mixed_precision(method, digits, tmp_path, mixed_bfloat16):
    if method.name not in KINDS:
        pytest.skip("another method has this kind of training")
    classifier, run = train(method, digits, tmp_path)
    assert "bfloat16" in keras_private.compute_dtypes(classifier)
    images = np.asarray(digits.validation.images[:64])
    outputs = by_name(classifier.predict_on_batch(images), classifier.name)
    assert np.isfinite(outputs["logits"]).all()
    assert all(np.isfinite(logs["loss"]) for logs in run.history)
