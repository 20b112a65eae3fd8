# SPDX-License-Identifier: Apache-2.0
"""What an experiment is, and what is refused before anything is done."""

import dataclasses
import importlib
import json
import pathlib

import pytest

from cac_tf import methods
from cac_tf.data import DataOptions
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments import ExperimentConfig
from cac_tf.experiments import benchmark_plan
from cac_tf.experiments import config as config_module
from cac_tf.experiments.evaluate_saved import EvaluationConfig
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.methods import presets

DIGITS = {"dataset": "digits"}


@pytest.mark.parametrize(
    ("dataset", "most_images"),
    [
        ("mnist", 300_000),
        ("svhn", 800_000),
        ("cifar10", 1_000_000),
        ("cifar+10", 700_000),
        ("cifar+50", 700_000),
        ("tinyimagenet", 600_000),
    ],
)
@pytest.mark.parametrize("method", ["cac", "osrci"])
def test_the_fast_preset_trains_on_fewer_images(dataset, most_images, method):
    """On the first trial; others of MNIST have up to 4 % more images."""
    config = ExperimentConfig(
        {"dataset": dataset}, method=method, recipe={"preset": "fast"}
    )
    recipe = config.recipe_in_force
    assert (recipe.schedule, recipe.dropout) == ("cosine", 0.0)
    assert recipe.flip == methods.get(method).preset(dataset)["flip"]
    images = benchmark_plan.training_images(DataOptions(dataset))
    assert 0.9 * most_images < recipe.epochs * images <= most_images
    assert (recipe.preset, recipe.most_epochs) == ("fast", recipe.epochs)
    # Also where another schedule was asked for.
    two = {"preset": "fast", "schedule": "two_stage"}
    config = ExperimentConfig({"dataset": dataset}, method, two)
    assert config.recipe_in_force.most_epochs == recipe.epochs
    given = {"preset": "fast", "epochs": 3}
    config = ExperimentConfig({"dataset": dataset}, method, given)
    assert config.recipe_in_force.epochs == 3


def test_no_fast_preset_for_data_sets_of_ones_own():
    with pytest.raises(
        ValueError, match=r"preset=fast is not available for 'digits'.*mnist"
    ):
        ExperimentConfig({"dataset": "digits"}, recipe={"preset": "fast"})


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"data": {"dataset": dataset}, "method": method}
            for method in methods.names()
            for dataset in (*presets._PRESETS, "folder")
        ),
        {"recipe": {"schedule": "cosine", "epochs": 3}},
        {
            "recipe": {
                "schedule": "two_stage",
                "until_converged": True,
                "second_stage_epochs": 7,
                "patience": 2,
            }
        },
        {"recipe": {"schedule": "two_stage", "until_converged": True}},
        {"recipe": {"magnitude": 5, "network": "resnet18"}},
        {"scores": "all"},
        {"score": "vim", "scores": ["vim", "gamma", "vim"]},
        {"seed": 2**32 - 1, "evaluate_every": 3, "true_positive_rate": 0.5},
        {"precision": "mixed_float16"},
        {
            "data": {
                "dataset": "folder",
                "data_dir": pathlib.Path("a") / "b",
                "known_classes": ("a, b", "c"),
                "stream": False,
                "validation_fraction": 0.1,
            },
            "tta": "flip",
        },
    ],
)
def test_every_setting_survives_the_file(changes):
    config = ExperimentConfig(**{"data": DIGITS, **changes})
    settings = json.loads(json.dumps(config.to_dict()))
    assert settings == config.to_dict()
    again = ExperimentConfig.from_dict(settings)
    assert again == config
    assert again.recipe_in_force == config.recipe_in_force
    assert again.to_dict() == settings
    # Whatever the presets will be then: every value in force is there.
    assert settings["recipe"] == config.recipe_in_force.in_force
    assert ExperimentConfig(DIGITS, seed=1) != config


def test_what_is_said_and_what_is_left_out_are_one_run(tmp_path):
    """And what changes something is another one."""
    config = ExperimentConfig(DIGITS)
    for data in (
        {"trial": 0, "split_family": "neal"},
        {
            "split_seed": 0,
            "strict": False,
            "stream": None,
            "test_fraction": None,
        },
    ):
        assert ExperimentConfig({**DIGITS, **data}) == config
    assert ExperimentConfig(DIGITS, score="gamma") == config
    assert ExperimentConfig(DIGITS, recipe={"epochs": 40}) == config
    with RunFolder.open(tmp_path / "run", config.settings(), {}) as folder:
        pass
    for data in (
        {"trial": 1},
        {"split_family": "miller2020"},
        {"stream": False},
        {"validation_fraction": 0.1},
        {"image_size": 8},
    ):
        other = ExperimentConfig({**DIGITS, **data})
        assert other != config
        with pytest.raises(ValueError, match="different configuration"):
            RunFolder.find(folder.path, other.settings())


def test_left_out_options_mean_what_they_say():
    """Of a set with splits; of others the loader refuses them."""
    for data in ({}, {"trial": 0, "split_family": "neal"}):
        dataset = load_open_set_dataset("digits", **data)
        assert (dataset.split_family, dataset.trial) == ("neal", 0)
    with pytest.raises(ValueError, match="split_family has no effect"):
        load_open_set_dataset(
            "digits", known_classes=["1", "2"], split_family="neal"
        )


def test_a_configuration_does_not_change_with_its_arguments():
    data = dict(DIGITS)
    config = ExperimentConfig(data)
    before = config.to_dict()
    data["trial"] = 3
    assert config.to_dict() == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {}}, "dataset must be the name or path"),
        ({"data": {"trial": 1}}, "dataset must be the name or path"),
        ({"data": {"dataset": ""}}, "dataset must be the name or path"),
        (
            {"data": {**DIGITS, "trail": 1}},
            "Unknown data option 'trail'; did you mean 'trial'.*: dataset, ",
        ),
        ({"data": {**DIGITS, "trial": 5}}, "trial must be at most 4; got 5"),
        ({"method": "cak"}, "Unknown method 'cak'; did you mean 'cac'"),
        ({"recipe": {"epoch": 3}}, "epoch=3 has no effect with method=cac"),
        (
            {"method": "cross_entropy", "recipe": {"magnitude": 5.0}},
            "magnitude=5.0 has no effect with method=cross_entropy",
        ),
        ({"recipe": {"epochs": 0}}, "epochs must be at least 1; got 0"),
        ({"recipe": {"epochs": 1.5}}, "epochs must be a whole number"),
        (
            {"recipe": {"patience": 3}},
            "patience=3 has no effect.*schedule=cosine",
        ),
        (
            {"recipe": {"schedule": "two_stage", "patience": 3}},
            "patience=3 has no effect.*until_converged=False",
        ),
        (
            {
                "recipe": {
                    "schedule": "two_stage",
                    "second_stage_learning_rate": 0.1,
                }
            },
            "second_stage_learning_rate=0.1 has no.*second_stage_epochs=0",
        ),
        ({"score": "gama"}, "Unknown score 'gama'; did you mean 'gamma'"),
        ({"scores": ["gamma", "all"]}, "scores must be all, or names from"),
        ({"scores": "surprise"}, "scores must be all, or names.*'surprise'"),
        ({"evaluate_every": -1}, "evaluate_every must be at least 0"),
        ({"evaluate_every": 0.5}, "evaluate_every must be a whole number"),
        (
            {"score": "vim", "evaluate_every": 2},
            "evaluate_every=2 has no effect with score=vim",
        ),
        ({"tta": "both"}, "tta must be one of none, flip; got 'both'"),
        ({"tta": "flip"}, "digits change class"),
        (
            {
                "data": {"dataset": "cifar10"},
                "tta": "flip",
                "recipe": {"flip": 0.0},
            },
            "which flip=0 turns off",
        ),
        ({"true_positive_rate": 0.0}, "rate must be above 0; got 0.0"),
        ({"true_positive_rate": 1.0}, "rate must be below 1; got 1.0"),
        ({"precision": "float64"}, "precision must be one of float32, mixed"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**32}, "seed must be at most 4294967295"),
        ({"seed": 1.0}, "seed must be a whole number.*got 1.0"),
        ({"seed": True}, "seed must be a whole number.*got True"),
    ],
)
def test_what_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        ExperimentConfig(**{"data": DIGITS, **values})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "not the settings of a run"),
        ({}, "not the settings of a run"),
        ({"data": "digits"}, "not the settings of a run"),
        ({"data": DIGITS, "model": "m.keras"}, "model: not part of a training"),
        ({"data": DIGITS, "backend": "none"}, "Set KERAS_BACKEND=none"),
    ],
)
def test_settings_that_are_no_training(settings, message):
    with pytest.raises(ValueError, match=message):
        ExperimentConfig.from_dict(settings)


def test_what_an_evaluation_refuses():
    model = pathlib.Path("runs", "model.keras")
    assert EvaluationConfig(model).model == str(model)
    with pytest.raises(ValueError, match="threshold=..., not both"):
        EvaluationConfig("m.keras", true_positive_rate=0.9, threshold=1.0)
    with pytest.raises(ValueError, match="rate must be below 1; got 1.5"):
        EvaluationConfig("m.keras", true_positive_rate=1.5)
    with pytest.raises(ValueError, match="scores must be all"):
        EvaluationConfig("m.keras", scores=["none"])
    with pytest.raises(ValueError, match="'vimm'.*did you mean"):
        EvaluationConfig("m.keras", score="vimm")


def test_tfds_sets_are_not_looked_for_among_photos():
    module = importlib.import_module("cac_tf.experiments.evaluate_saved")
    folder = module._tfds_folder
    for dataset in ("folder", "records"):
        assert folder(DataOptions(dataset, data_dir="photos")) is None
    for dataset in ("mnist", "beans"):
        assert folder(DataOptions(dataset, data_dir="tfds")) == "tfds"
    assert folder(DataOptions("made.npz")) is None


def test_names_of_scores():
    # Those of other outputs belong to the methods that have them.
    common = config_module.scores_named(["all"])
    assert {"gamma", "vim"} <= set(common)
    assert "min_reconstruction_error" not in common
    assert set(common) < set(config_module.score_rules.names())
    c2ae = methods.get("c2ae")
    every = config_module.compared_scores("all", c2ae)
    assert set(every) == {*common, "min_reconstruction_error"}
    config = config_module.ExperimentConfig(
        {"dataset": "digits"}, method="c2ae", scores="all"
    )
    assert config.scores == every
    assert config_module.compared_scores(None, c2ae) == c2ae.scores
    assert config_module.compared_scores(["vim"] * 2, c2ae) == ("vim",)
    assert config_module.scores_named(("vim", "gamma", "vim")) == (
        "vim",
        "gamma",
    )
