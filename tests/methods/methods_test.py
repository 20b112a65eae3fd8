# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os

import numpy as np
import pytest
from absl import flags
from scipy import special

from cac_tf import data
from cac_tf import methods
from cac_tf.experiments.evaluation import evaluate
from cac_tf.experiments.speed import images_per_second
from cac_tf.methods import presets
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.methods.recipe import Recipe
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.train import cac_train
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

# The paper's table: batch, epochs of both stages, weight decay, dropout, flip,
# rotation, scale.
PAPER = {
    "mnist": (128, 35, 35, 5e-6, 0.2, 0.0, 0.0, 0.7),
    "svhn": (128, 50, 25, 5e-6, 0.2, 0.0, 0.0, 0.7),
    "cifar10": (128, 150, 50, 5e-6, 0.2, 0.5, 10.0, 0.8),
    "cifar+10": (128, 150, 50, 5e-4, 0.2, 0.5, 0.0, 0.8),
    "cifar+50": (128, 150, 50, 5e-4, 0.2, 0.5, 0.0, 0.8),
    "tinyimagenet": (128, 500, 300, 1e-3, 0.3, 0.5, 20.0, 0.7),
}


@pytest.mark.parametrize("dataset", PAPER)
def test_presets_are_the_papers(dataset):
    recipe = methods.get("cac").recipe(**methods.preset(dataset))
    assert PAPER[dataset] == (
        recipe.batch_size,
        recipe.epochs,
        recipe.second_stage_epochs,
        recipe.weight_decay,
        recipe.dropout,
        recipe.flip,
        recipe.rotation,
        recipe.scale,
    )
    assert recipe.schedule == "two_stage"
    assert [stage.learning_rate for stage in recipe.stages] == [0.01, 0.001]
    assert (recipe.momentum, recipe.magnitude) == (0.9, 10.0)
    assert recipe.anchor_weight == 0.1


def test_a_preset_that_does_not_exist():
    for name in ("cac", "osrci"):
        with pytest.raises(
            ValueError, match="preset must be one of fair.*'papre'"
        ):
            methods.get(name).preset("mnist", "papre")


def test_every_preset_says_its_cost_and_what_to_expect():
    for function in set(presets._PRESETS.values()) | {presets.photographs}:
        text = function.__doc__
        assert any(unit in text for unit in ("minutes", " s ", "hour")), text
        assert "xpected" in text or "AUROC" in text


def test_which_fields_have_no_effect():
    of_pretrained = {"weights", "views", "fine_tune"}
    assert set(Recipe().unused) == {
        *of_pretrained,
        "second_stage_epochs",
        "second_stage_learning_rate",
        "until_converged",
        "patience",
    }
    both = Recipe(
        schedule="two_stage", second_stage_epochs=1, until_converged=True
    )
    assert set(both.unused) == of_pretrained
    assert both.in_force["patience"] == 20
    assert [stage.patience for stage in both.stages] == [20, 20]
    assert both.most_epochs == 101
    assert Recipe(second_stage_epochs=5).most_epochs == 100


def test_a_preset_without_a_second_stage_keeps_none_until_converged():
    given = {"until_converged": True}
    for name in ("osrci", "c2ae"):
        paper = methods.get(name).recipe_for(
            "mnist", {"preset": "paper", **given}
        )
        assert [stage.epochs for stage in paper.stages] == [1000, 0]
    two = methods.get("cac").recipe_for("cifar10", given)
    assert [stage.epochs for stage in two.stages] == [1000, 1000]
    digits = methods.get("cac").recipe_for(
        "digits", {"schedule": "two_stage", **given}
    )
    assert [stage.epochs for stage in digits.stages] == [1000, 1000]
    # A cosine has a fixed end.
    cosine = methods.get("cac").recipe_for("digits", given)
    assert cosine == methods.get("cac").recipe_for(
        "digits", {**given, "epochs": 40}
    )


def test_a_recipe_may_have_a_field_called_rate():
    @dataclasses.dataclass(frozen=True)
    class Recipe(methods.Recipe):
        rate: float = methods.field(0.5, "Of a test.")

    optimizer = Recipe(schedule="two_stage").optimizer(3)
    assert float(optimizer.learning_rate) == pytest.approx(0.01)


# Of the published codes and of re-implementations, field by field.
PUBLISHED = {
    "c2ae": {"algorithm": "adam", "learning_rate": 3e-4, "epochs": 30},
    "crosr": {
        "epochs": 30,
        "algorithm": "sgd",
        "learning_rate": 0.05,
        "momentum": 0.9,
        "batch_size": 128,
        "reconstruction_weight": 1.0,
        "latent_channels": 32,
    },
    "gfror": {
        "algorithm": "adam",
        "learning_rate": 1e-3,
        "batch_size": 128,
        "weight_decay": 1e-4,
        "symmetry_weight": 0.2,
        "auto_encoder_epochs": 40,
        "auto_encoder_latents": 200,
    },
    "osrci": {
        "latent_distance": "means",
        "search_step": "batch",
        "generation_mode": "training",
        "penalty_norm": "pixel",
        "epochs": 30,
        "learning_rate": 1e-4,
        "scale": 1.0,
    },
    "g_openmax": {
        "generator": "interpolation",
        "largest_known_probability": 0.5,
        "gan_batch_size": 64,
        "generated_unknowns": 3200,
        "gan_learning_rate": 1e-4,
        "epochs": 30,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_values(name):
    method = methods.get(name)
    paper = method.recipe_for("cifar10", {"preset": "paper"})
    published = PUBLISHED[name]
    assert {field: getattr(paper, field) for field in published} == published
    assert ("momentum" in paper.unused) == (paper.algorithm == "adam")
    given = {"preset": "paper", "epochs": 2}
    assert method.recipe_for("cifar10", given).epochs == 2
    assert method.recipe_for("cifar10", {}).epochs == 150
    assert method.recipe_for("cifar10", {"preset": "fast"}).epochs == 41


def test_the_published_adam():
    paper = methods.get("osrci").recipe_for("mnist", {"preset": "paper"})
    for schedule in ("two_stage", "cosine"):
        adam = dataclasses.replace(paper, schedule=schedule).optimizer(10)
        assert float(adam.learning_rate) == pytest.approx(1e-4)
        assert (adam.beta_1, adam.beta_2) == (0.5, 0.999)
    # Its discriminator has a logit for each class.
    assert paper.discriminator_outputs(6) == 6
    assert type(paper)().discriminator_outputs(6) == 1


def test_fields_of_the_conditional_generator():
    method = methods.get("g_openmax")
    given = {"generator": "conditional"}
    for more, rate in (
        ({}, 1e-3),
        ({"preset": "paper"}, 2e-4),
        ({"gan_learning_rate": 0.1}, 0.1),
    ):
        recipe = method.recipe_for("digits", {**given, **more})
        assert recipe.gan_learning_rate == rate
    for name in ("largest_known_probability", "gradient_penalty"):
        assert recipe.unused[name] == "generator=conditional"
    assert method.recipe.of_preset({}, given).gan_learning_rate == 2e-4
    paper = method.recipe_for("digits", {"preset": "paper"})
    assert "adversarial_weight" not in paper.unused


def digits_run(folder, **options):
    return TrainingRun(Runtime(0), os.fspath(folder / "checkpoints"), **options)


def recipe_of(method, **values):
    return method.recipe(
        **{**method.fitting(methods.preset("digits")), **values}
    )


def test_the_schedule_is_as_long_as_the_training(tmp_path, monkeypatch):
    """Also where a method trains on other examples."""
    dataset = data.load_open_set_dataset("digits")
    method = type(methods.get("cac"))()
    twice = dataset.train.joined(dataset.train)
    monkeypatch.setattr(method, "training_examples", lambda _: twice)
    values = recipe_of(method, epochs=2, schedule="cosine", batch_size=128)
    classifier = method.parts(
        dataset, values, digits_run(tmp_path)
    ).classifier()
    trained = method.training(classifier, dataset, values)
    schedule = trained.optimizer._learning_rate
    assert schedule.decay_steps == 2 * -(-twice.size // 128)


def test_two_heads_share_features_and_add_their_losses(tmp_path, rng):
    """Against both losses written out, of heads with other weights."""
    dataset = data.load_open_set_dataset("digits")
    method = methods.get("two_heads")
    values = recipe_of(method, weight_decay=0.0, anchor_weight=0.3)
    parts = method.parts(dataset, values, digits_run(tmp_path))
    trained = method.training(parts.classifier(), dataset, values)
    heads = [
        parts.network.get_layer(name) for name in ("logits", "second_logits")
    ]
    first, second = (np.array(head.kernel) for head in heads)
    assert first.shape == second.shape and not np.allclose(first, second)
    for head in heads:
        head.kernel.assign(rng.standard_normal(first.shape))
    images, labels = (part[:50] for part in dataset.train)
    outputs = {k: np.float64(v) for k, v in trained(images).items()}
    rows = np.arange(len(labels))
    anchors = 10.0 * np.eye(len(dataset.class_names))
    distances = np.linalg.norm(
        outputs["logits"][:, None] - anchors[None], axis=-1
    )
    own = distances[rows, labels]
    others = np.exp(own[:, None] - distances)
    others[rows, labels] = 0.0
    cac = np.log1p(others.sum(axis=1)) + 0.3 * own
    logits = outputs["second_logits"]
    entropy = special.logsumexp(logits, axis=1) - logits[rows, labels]
    actual = trained.evaluate(
        images, labels, batch_size=50, verbose=0, return_dict=True
    )
    np.testing.assert_allclose(
        actual["loss"], (cac + entropy).mean(), rtol=1e-4
    )


def recipe_with(**fields):
    """A method whose recipe has these fields, by their defaults."""
    recipe = dataclasses.make_dataclass(
        "Recipe",
        [
            (n, type(d), methods.field(d, "Of a test."))
            for n, d in fields.items()
        ],
        bases=(methods.BaseRecipe,),
        frozen=True,
    )
    return type("Other", (methods.Method,), {"name": "o", "recipe": recipe})()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": True}, "'epochs' .* type bool, .*all methods has type int"),
        ({"dropout": "much"}, "'dropout' .* type str, .* has type float"),
    ],
)
def test_fields_that_are_called_like_others(fields, message):
    with pytest.raises(ValueError, match=message):
        methods.register(recipe_with(**fields))
    assert "o" not in methods.names()


def test_the_names_that_no_field_may_have(monkeypatch):
    """Those of the other flags, of data and of an experiment."""
    registry = methods.method._METHODS
    registry.values()
    for name, value in (("seed", 1), ("strict", True), ("output_dir", "x")):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        methods.register(recipe_with(**{name: value}))
        message = (
            f"method 'o' has a field '{name}', which is already a setting of"
        )
        with pytest.raises(ValueError, match=message):
            cac_train.define_flags(flags.FlagValues())
        monkeypatch.undo()


def test_cross_entropy_learns_the_digits(tmp_path):
    """All baselines reject; OpenMax is fitted by the training."""
    digits = data.load_open_set_dataset("digits", trial=0)
    method = methods.get("cross_entropy")
    run = digits_run(tmp_path)
    classifier = method.train(digits, recipe_of(method, epochs=8), run)
    model = open_set_classifier(classifier, digits, "openmax")
    assert run.history[-1]["val_accuracy"] > 0.95
    assert (
        run.history[-1]["val_cross_entropy"]
        < run.history[0]["val_cross_entropy"]
    )
    compared = evaluate(model, digits, scores=method.scores).metrics["scores"]
    assert list(compared) == [
        "openmax",
        "max_softmax",
        "max_logit",
        "openmax_log_sum_exp",
    ]
    for measures in compared.values():
        assert measures["auroc"] > 0.85
        assert measures["accuracy"] > 0.9
    # Fitted by the evaluation, it is the same as fitted by the training.
    other = model.with_score("max_logit")
    again = evaluate(other, digits, scores=method.scores).metrics["scores"]
    for name, measures in compared.items():
        assert again[name]["auroc"] == pytest.approx(measures["auroc"])


def test_a_score_that_cannot_be_fitted_is_left_out(tmp_path):
    """Untrained, most classes have no correct example for OpenMax."""
    digits = data.load_open_set_dataset("digits", trial=0)
    method = methods.get("cross_entropy")
    parts = method.parts(digits, method.recipe(), digits_run(tmp_path))
    model = OpenSetClassifier(
        parts.classifier(), digits.class_names, "max_softmax"
    )
    with pytest.warns(UserWarning, match="'openmax.*' is skipped"):
        metrics = evaluate(model, digits, scores=method.scores).metrics
    assert list(metrics["scores"]) == ["max_softmax", "max_logit"]
    # Anchors have no part in cross-entropy.
    assert metrics["bhattacharyya"] is None


def test_class_means_with_mirror_images(tmp_path):
    """Means over each image and its mirror image, where training flips."""
    digits = data.load_open_set_dataset("digits", trial=0)
    method = methods.get("cac")
    for flip in (0.0, 0.5):
        recipe = recipe_of(method, flip=flip)
        parts = method.parts(digits, recipe, digits_run(tmp_path))
        classifier = parts.classifier()
        images, labels = digits.train
        if flip:
            images = np.concatenate([images, images[:, :, ::-1]])
            labels = np.r_[labels, labels]
        logits = np.float64(classifier.predict(images, verbose=0))
        is_correct = logits.argmax(axis=1) == labels
        present = np.unique(labels[is_correct])
        with pytest.warns(UserWarning, match="keep their anchors"):
            model = open_set_classifier(classifier, digits, "gamma")
        for label in present:
            expected = logits[is_correct & (labels == label)].mean(axis=0)
            np.testing.assert_allclose(
                model.centers[label], expected, rtol=1e-4, atol=1e-5
            )


def test_speed_is_a_number():
    assert images_per_second("openset_cnn", 8, 4, "float32", steps=1) > 0
