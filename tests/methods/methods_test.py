# SPDX-License-Identifier: Apache-2.0
import importlib
import sys
import textwrap

import numpy as np
import pytest

from cac_tf import data
from cac_tf import methods
from cac_tf.evaluation import evaluate
from cac_tf.methods import presets
from cac_tf.methods.known_data import fit_to_known_data
from cac_tf.methods.recipe import Recipe
from cac_tf.methods.speed import images_per_second

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


def test_every_preset_says_its_cost_and_what_to_expect():
    for function in set(presets._PRESETS.values()) | {presets.photographs}:
        text = function.__doc__
        assert any(unit in text for unit in ("minutes", " s ", "hour")), text
        assert "xpected" in text or "AUROC" in text


def test_which_fields_have_no_effect():
    assert Recipe().unused == {
        "second_stage_epochs",
        "second_stage_learning_rate",
        "until_converged",
        "patience",
    }
    both = Recipe(
        schedule="two_stage", second_stage_epochs=1, until_converged=True
    )
    assert both.unused == set()
    assert both.in_force["patience"] == 20
    assert [stage.patience for stage in both.stages] == [20, 20]
    assert both.most_epochs == 101
    assert Recipe(second_stage_epochs=5).most_epochs == 100


def test_a_later_method_is_one_new_file(tmp_path, monkeypatch):
    (tmp_path / "halved.py").write_text(
        textwrap.dedent(
            """
            import dataclasses
            from cac_tf.methods import cac
            METHOD = dataclasses.replace(cac.METHOD, name="halved")
            """
        )
    )
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    methods._methods.cache_clear()
    try:
        assert methods.names() == ("cac", "cross_entropy", "halved")
        method = methods.get("halved")
        digits = data.load_open_set_dataset("digits", test_fraction=0.6)
        recipe = method.recipe(**{**methods.preset("digits"), "epochs": 3})
        model = method.build_model(digits, recipe, 0)
        record = method.train(model, digits, recipe, 0, tmp_path / "c.npz")
        assert record.history[-1]["accuracy"] > 0.5
    finally:
        sys.modules.pop("cac_tf.methods.halved", None)
        monkeypatch.undo()
        methods._methods.cache_clear()
    with pytest.raises(ValueError, match="there are: cac, cross_entropy"):
        methods.get("halved")


def test_cross_entropy_learns_the_digits(tmp_path):
    """All three baselines reject; OpenMax is fitted by the training."""
    digits = data.load_open_set_dataset("digits", trial=0)
    method = methods.get("cross_entropy")
    recipe = method.recipe(**{**methods.preset("digits"), "epochs": 8})
    model = method.build_model(digits, recipe, 0, "openmax")
    record = method.train(model, digits, recipe, 0, tmp_path / "c.npz")
    assert record.history[-1]["val_accuracy"] > 0.95
    assert (
        record.history[-1]["val_cross_entropy"]
        < record.history[0]["val_cross_entropy"]
    )
    compared = evaluate(model, digits, scores=method.scores).metrics["scores"]
    assert list(compared) == ["openmax", "max_softmax", "max_logit"]
    for measures in compared.values():
        assert measures["auroc"] > 0.85
        assert measures["accuracy"] > 0.9
    # Fitted by the evaluation, it is the same as fitted by the training.
    other = model.with_score("max_logit")
    again = evaluate(other, digits, scores=method.scores).metrics["scores"]
    for name, measures in compared.items():
        assert again[name]["auroc"] == pytest.approx(measures["auroc"])


def test_a_score_that_cannot_be_fitted_is_left_out():
    """Untrained, most classes have no correct example for OpenMax."""
    digits = data.load_open_set_dataset("digits", trial=0)
    method = methods.get("cross_entropy")
    model = method.build_model(digits, method.recipe(), 0)
    model.build((None, *digits.image_shape))
    with pytest.warns(UserWarning, match="'openmax' is left out"):
        metrics = evaluate(model, digits, scores=method.scores).metrics
    assert list(metrics["scores"]) == ["max_softmax", "max_logit"]
    # Anchors have no part in cross-entropy.
    assert metrics["bhattacharyya"] is None


def test_class_means_with_mirror_images():
    """Means over each image and its mirror image, where training flips."""
    digits = data.load_open_set_dataset("digits", trial=0)
    method = methods.get("cac")
    for flip in (0.0, 0.5):
        recipe = method.recipe(**{**methods.preset("digits"), "flip": flip})
        model = method.build_model(digits, recipe, 0)
        images, labels = digits.train
        if flip:
            images = np.concatenate([images, images[:, :, ::-1]])
            labels = np.r_[labels, labels]
        logits = np.float64(model.predict_scores(images).logits)
        is_correct = logits.argmax(axis=1) == labels
        present = np.unique(labels[is_correct])
        with pytest.warns(UserWarning, match="keeps its anchor"):
            fit_to_known_data(model, digits)
        for label in present:
            expected = logits[is_correct & (labels == label)].mean(axis=0)
            np.testing.assert_allclose(
                model.centres[label], expected, rtol=1e-4, atol=1e-5
            )


def test_speed_is_a_number():
    assert images_per_second("openset_cnn", 8, 4, "float32", steps=1) > 0
