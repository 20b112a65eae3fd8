# SPDX-License-Identifier: Apache-2.0
"""A threshold where no examples are set apart: from extra trainings."""

import math
import types

import numpy as np
import pytest

from cac_tf import experiments
from cac_tf.data import Examples
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.decision.calibration import threshold_for_true_positive_rate
from cac_tf.experiments import EvaluationConfig
from cac_tf.experiments import ExperimentConfig
from cac_tf.experiments.cross_fitting import FOLDS
from cac_tf.experiments.cross_fitting import cross_fitted_scores
from cac_tf.experiments.cross_fitting import folds_of
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime


def normal_dataset(rng, of_a_class, classes=8, width=6, **options):
    """Vectors around the corners of a simplex, and some of another class."""
    ids = np.repeat(np.arange(classes + 1), of_a_class)
    test_ids = np.repeat(np.arange(classes + 1), 50)

    def examples(ids):
        noise = rng.standard_normal((len(ids), width))
        return Examples(np.float32(noise + 3 * np.eye(99, width)[ids]), ids)

    return make_open_set_dataset(
        "made",
        examples(ids),
        [f"class {i}" for i in range(classes + 1)],
        known_classes=range(classes),
        test=examples(test_ids),
        **options,
    )


def nearest_mean(dataset, run):
    """Stands for a training: the distance to the nearest class mean."""
    train = dataset.train
    means = [
        train.images[train.labels == k].mean(axis=0)
        for k in range(len(dataset.class_names))
    ]

    def predict_scores(x):
        offsets = x[:, None] - np.array(means)
        distances = np.linalg.norm(offsets, axis=-1).min(axis=1)
        return types.SimpleNamespace(unknown_score=distances)

    return types.SimpleNamespace(predict_scores=predict_scores)


def run_in(folder):
    return TrainingRun(Runtime(seed=3), str(folder))


def test_an_example_is_scored_without_it(rng, tmp_path):
    dataset = normal_dataset(rng, of_a_class=5)
    seen = []

    def made(part, run):
        seen.append((part, run))
        return nearest_mean(part, run)

    found = cross_fitted_scores(made, dataset, run_in(tmp_path))
    folds = folds_of(dataset.train.labels, seed=3)
    for fold, (part, run) in enumerate(seen):
        rest = dataset.train.images[folds != fold]
        np.testing.assert_array_equal(part.train.images, rest)
        assert part.known_test is dataset.known_test
        assert run.prefix == f"without_{fold}_"
        held = dataset.train.images[folds == fold]
        expected = nearest_mean(part, run).predict_scores(held).unknown_score
        np.testing.assert_array_equal(
            found[folds == fold], np.float32(expected)
        )
    assert len({run.prefix for _, run in seen}) == FOLDS


@pytest.mark.parametrize("counts", [[2, 3, 7, 1000], [5] * 40, [19, 2]])
def test_each_class_is_in_as_many_folds_as_can_be(counts):
    labels = np.random.default_rng(0).permutation(
        np.repeat(np.arange(len(counts)), counts)
    )
    folds = folds_of(labels, seed=1)
    sizes = np.bincount(folds, minlength=FOLDS)
    assert np.ptp(sizes) <= 1
    for label, count in enumerate(counts):
        own = np.bincount(folds[labels == label], minlength=FOLDS)
        assert np.ptp(own) <= 1
        assert (own > 0).sum() == min(count, FOLDS)
    assert (folds != folds_of(labels, seed=2)).any()


@pytest.mark.parametrize("of_a_class", [5, 19])
def test_new_known_inputs_are_accepted_as_often_as_asked(
    rng, tmp_path, of_a_class
):
    """Over 60 draws of few examples, or a little more often."""
    shares, naive = [], []
    for _ in range(60):
        dataset = normal_dataset(rng, of_a_class)
        model = nearest_mean(dataset, None)
        known = model.predict_scores(dataset.known_test.images).unknown_score
        crossed = cross_fitted_scores(nearest_mean, dataset, run_in(tmp_path))
        seen = model.predict_scores(dataset.train.images).unknown_score
        for scores, found in ((crossed, shares), (seen, naive)):
            threshold = threshold_for_true_positive_rate(scores, 0.9)
            found.append(np.mean(known <= threshold))
    error = np.std(shares) / np.sqrt(len(shares))
    assert 0.9 - 3 * error <= np.mean(shares) <= 0.93
    # Scores of what was trained on accept too few.
    assert np.mean(naive) < np.mean(shares) - (0.05 if of_a_class == 5 else 0)


def test_few_vectors_are_not_set_apart(rng):
    dataset = normal_dataset(rng, of_a_class=19)
    assert dataset.counts["validation"] == 0
    assert dataset.counts["train"] == 8 * 19
    assert any("fewer than 20 training examples" in n for n in dataset.notes)
    dataset = normal_dataset(rng, of_a_class=20)
    assert dataset.counts["validation"] == 32
    assert not dataset.notes
    # Asked for, they are; and so are images.
    dataset = normal_dataset(rng, of_a_class=5, validation_fraction=0.2)
    assert dataset.counts["validation"] == 8
    images = np.zeros((24, 4, 4, 1), "uint8") + np.uint8(255)
    few = Examples(images, np.arange(24) % 3)
    dataset = make_open_set_dataset("made", few, "abc", [0, 1])
    assert dataset.counts["validation"] == 2
    # But not of those that become vectors.
    dataset = make_open_set_dataset("made", few, "abc", [0, 1], as_vectors=True)
    assert dataset.counts["validation"] == 0
    assert dataset.counts["train"] == 11
    with pytest.raises(ValueError, match="at least 2 .* have fewer: 'b'"):
        make_open_set_dataset(
            "made",
            Examples(rng.random((6, 4)), np.int64([0, 0, 0, 1, 2, 2])),
            "abc",
            [0, 1],
            test=Examples(rng.random((6, 4)), np.arange(6) % 3),
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on few vectors, and its settings."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("few")
    labels = np.repeat(np.arange(4), 12)
    x = np.float32(rng.standard_normal((48, 5)) + 4 * np.eye(4, 5)[labels])
    test = np.float32(
        rng.standard_normal((400, 5)) + 4 * np.eye(4, 5)[np.arange(400) % 4]
    )
    path = str(folder / "few.npz")
    np.savez(
        path,
        x_train=x,
        y_train=labels,
        x_test=test,
        y_test=np.arange(400) % 4,
    )
    config = ExperimentConfig(
        {"dataset": path, "known_classes": ("0", "1", "2")},
        score="class_z_score",
        scores=("gamma",),
        recipe={"epochs": 10},
        maximize="macro_f1",
        unknown_share=0.5,
    )
    told = {}
    done = experiments.train(
        config,
        folder / "run",
        tell=lambda kind, *values: told.update({kind: values}),
    )
    return done, told


def test_a_run_without_a_validation_part(run):
    done, told = run
    measures = done.evaluation.metrics
    assert measures["counts"]["validation"] == 0
    assert measures["calibration"]["examples"] == 36
    # The rate itself was chosen by leaving classes out.
    _, _, rate = told["rates"]
    rank = min(math.ceil(37 * rate - 1e-9), 36)
    assert measures["calibration"]["accepted"] == rank
    assert measures["true_positive_rate"] > rate - 0.15
    assert "extra trainings" in str(told["note"])
    with open(done.folder.file("MODEL_CARD.md")) as file:
        assert "each scored by a model trained without it" in file.read()


def test_its_threshold_is_not_set_anew_from_what_it_was_trained_on(
    run, tmp_path
):
    model = run[0].folder.file("model.keras")
    for change in ({"true_positive_rate": 0.9}, {"score": "knn"}):
        with pytest.raises(ValueError, match="no validation part"):
            experiments.evaluate_saved(
                EvaluationConfig(model, **change), tmp_path / "again"
            )
