# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import types

import numpy as np
import pytest
import sklearn.metrics

from cac_tf import metrics
from cac_tf.data import DataOptions
from cac_tf.data import Examples
from cac_tf.data import OpenSetDataset
from cac_tf.experiments.evaluate_saved import as_taken_by
from cac_tf.experiments.evaluation import evaluate
from cac_tf.models.raw_inputs import InputKind
from cac_tf.scores.energy import Energy
from cac_tf.scores.gamma import Gamma


def vectors(trained_blobs, rng, unknown_rows=80):
    """The blobs as a data set, with an unknown cloud."""
    model, x, y = trained_blobs
    known = Examples(x, y)
    unknown = Examples(
        np.float32(rng.normal(1.0, 1.0, (unknown_rows, 5))),
        np.zeros(unknown_rows, "int64"),
    )
    return model, OpenSetDataset(
        name="blobs",
        class_names=model.class_names,
        class_ids=(0, 1, 2),
        unknown_class_names=("cloud",) if unknown_rows else (),
        unknown_class_ids=(3,) if unknown_rows else (),
        train=known,
        validation=known,
        known_test=known,
        unknown_test=unknown,
    )


def test_measures_are_those_of_the_scores(trained_blobs, rng):
    model, dataset = vectors(trained_blobs, rng)
    evaluation = evaluate(model, dataset, batch_size=17)
    known = model.predict_scores(dataset.known_test.images)
    unknown = model.predict_scores(dataset.unknown_test.images)
    is_correct = known.predicted_class_id == dataset.known_test.labels
    arguments = known.unknown_score, is_correct, unknown.unknown_score
    measures = evaluation.metrics
    assert measures["auroc"] == pytest.approx(
        metrics.auroc(known.unknown_score, unknown.unknown_score), abs=1e-6
    )
    assert measures["oscr"] == pytest.approx(metrics.oscr(*arguments), abs=1e-6)
    both = known.unknown_score, unknown.unknown_score
    assert measures["fpr_at_95_tpr"] == metrics.fpr_at_tpr(*both)
    assert measures["aupr_known"] == metrics.aupr(*both, positive="known")
    assert measures["aupr_unknown"] == metrics.aupr(*both)
    assert measures["intervals"] == {
        name: list(limits)
        for name, limits in metrics.bootstrap_intervals(*both).items()
    }
    assert measures["auroc_differences"] == {}
    assert list(measures["ccr"]) == ["0.01", "0.05", "0.1"]
    for rate, value in measures["ccr"].items():
        expected = metrics.ccr_at_fpr(*arguments, float(rate))
        assert value == pytest.approx(expected, abs=1e-6)
    assert measures["accuracy"] == is_correct.mean()
    assert measures["bhattacharyya"] == pytest.approx(
        metrics.bhattacharyya(
            known.distances.min(axis=1), unknown.distances.min(axis=1)
        ),
        abs=1e-3,
    )
    kept = known.unknown_score <= model.threshold
    assert measures["true_positive_rate"] == pytest.approx(kept.mean())
    kept = unknown.unknown_score <= model.threshold
    assert measures["false_positive_rate"] == pytest.approx(kept.mean())
    assert measures["counts"]["unknown_test"] == 80
    decided = np.r_[
        model.decide(known).class_id, model.decide(unknown).class_id
    ]
    labels = np.r_[dataset.known_test.labels, np.full(80, -1)]
    report = sklearn.metrics.classification_report(
        labels, decided, labels=[0, 1, 2, -1], output_dict=True
    )
    assert measures["macro_f1"] == report["macro avg"]["f1-score"]
    assert list(measures["by_class"]) == [*model.class_names, "unknown"]
    by_class = dict(zip(report, measures["by_class"].values(), strict=False))
    for name, own in by_class.items():
        assert list(own.values()) == list(report[name].values())
    assert (
        measures["confusion"]
        == sklearn.metrics.confusion_matrix(
            labels, decided, labels=[0, 1, 2, -1]
        ).tolist()
    )
    json.dumps(measures)
    assert measures["openness"] == metrics.openness(3, 1)
    assert evaluation.is_known.sum() == 240


def test_closed_set(trained_blobs, rng):
    model, dataset = vectors(trained_blobs, rng, unknown_rows=0)
    measures = evaluate(model, dataset).metrics
    for name in (
        "auroc",
        "fpr_at_95_tpr",
        "aupr_known",
        "aupr_unknown",
        "intervals",
        "auroc_differences",
        "oscr",
        "ccr",
        "bhattacharyya",
    ):
        assert measures[name] is None
    assert measures["false_positive_rate"] is None
    assert measures["accuracy"] > 0.99


def test_scores_of_one_name(trained_blobs, rng):
    model, dataset = vectors(trained_blobs, rng)
    one, two = (Energy(t) for t in (1.0, 2.0))
    with pytest.raises(ValueError, match=r"pass name=.*gamma, energy, energy"):
        evaluate(model, dataset, scores=[one, two])
    with pytest.raises(ValueError, match="pass name="):
        evaluate(model, dataset, scores=[Gamma()])
    two = Energy(2.0, name="energy, T = 2")
    measures = evaluate(model, dataset, scores=[one, two]).metrics
    compared = measures["scores"]
    assert list(compared) == ["gamma", "energy", "energy, T = 2"]
    scores = [
        model.predict_scores(part.images)
        for part in (dataset.known_test, dataset.unknown_test)
    ]
    logits, unknown = (part.logits for part in scores)
    assert compared["energy, T = 2"]["auroc"] == pytest.approx(
        metrics.auroc(np.asarray(two(logits)), np.asarray(two(unknown)))
    )
    differences = measures["auroc_differences"]
    assert list(differences) == ["energy", "energy, T = 2"]
    for name, limits in differences.items():
        assert np.mean(limits) == pytest.approx(
            compared[name]["auroc"] - compared["gamma"]["auroc"], abs=1e-5
        )
    # Both together hold with 95 %.
    limits = metrics.auroc_difference_interval(
        *(np.asarray(two(z)) for z in (logits, unknown)),
        *(part.unknown_score for part in scores),
        confidence=0.975,
    )
    assert differences["energy, T = 2"] == pytest.approx(limits, abs=1e-5)


def test_another_models_data(trained_blobs, rng):
    model, dataset = vectors(trained_blobs, rng)
    other = dataclasses.replace(dataset, class_names=("x", "y", "z"))
    with pytest.raises(ValueError, match="knows the classes"):
        evaluate(model, other)
    narrow = dataclasses.replace(
        dataset,
        train=Examples(dataset.train.images[:, :4], dataset.train.labels),
    )
    with pytest.raises(ValueError, match="expects inputs of shape"):
        evaluate(model, narrow)


def test_named_data_are_resized_as_the_model_resizes_them():
    of_images = InputKind((None, None, 3), "float32", True, (48, 48))
    model = types.SimpleNamespace(
        inputs_taken=of_images._replace(interpolation="bicubic")
    )
    options = DataOptions("folder", data_dir="photos")
    found = as_taken_by(model, options)
    assert (found.image_size, found.interpolation) == (48, "bicubic")
    given = DataOptions(
        "folder", data_dir="photos", image_size=32, interpolation="bilinear"
    )
    assert as_taken_by(model, given) == given
    model.inputs_taken = InputKind((5,), "float32", False)
    assert as_taken_by(model, options) == options
