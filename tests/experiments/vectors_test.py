# SPDX-License-Identifier: Apache-2.0
"""From a table of vectors to a report and a served model."""

import csv
import json
import os
import re
import shutil

import keras
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import sklearn.datasets
import tensorflow as tf

import cac_tf
from cac_tf import batch
from cac_tf import experiments
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments import ExperimentConfig
from cac_tf.experiments.run_data import data_of_run


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Digits as a column of vectors, not on the scale of pixels."""
    bunch = sklearn.datasets.load_digits()
    vectors = list(np.float32(bunch.data / 100 - 0.05))
    path = str(tmp_path_factory.mktemp("table") / "digits.parquet")
    made = {"text": ["a"] * len(vectors), "class": bunch.target, "x": vectors}
    pyarrow.parquet.write_table(pyarrow.table(made), path)
    return path


def options(table):
    return {
        "dataset": table,
        "label_column": "class",
        "known_share": 0.6,
        "trial": 1,
    }


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    config = ExperimentConfig(
        options(table), scores=("gamma",), recipe={"epochs": 15}
    )
    return experiments.train(config, tmp_path_factory.mktemp("runs") / "run")


def test_it_is_trained_and_measured(run):
    measures = run.evaluation.metrics
    assert (measures["inputs"], measures["score"]) == ("vectors", "knn")
    assert measures["accuracy"] > 0.9
    assert measures["auroc"] > 0.9
    assert (measures["split_family"], measures["trial"]) == ("share0.6", 1)
    model = cac_tf.load_model(run.folder.file("model.keras"))
    assert model.classifier.get_layer("normalization").mean.shape[-1] == 64


def test_the_run_remembers_the_column(run, table):
    with open(run.folder.file("config.json")) as file:
        content = json.load(file)
    assert content["data"]["input_columns"] == ["x"]
    # Its recipe is that of vectors, and repeats the run.
    assert content["settings"]["recipe"]["network"] == "mlp"
    again = ExperimentConfig.from_dict(content["settings"])
    assert again.settings() == content["settings"]


def test_the_report_shows_rows(run, table):
    with open(run.folder.file("report.html")) as file:
        report = file.read()
    with open(run.folder.file("predictions.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    accepted = [
        row
        for row in rows
        if row["is_known"] == "False" and row["is_unknown"] == "False"
    ]
    nearest = min(
        accepted,
        key=lambda row: float(row["threshold"]) - float(row["unknown_score"]),
    )
    assert nearest["key"].startswith(f"{table}#")
    table_of_errors = report.split("<h3>Unknown, accepted as known")[1]
    first = table_of_errors.split('<th scope="row">')[1]
    assert re.split("</t[hd]>(?:<td>)?", first)[:3] == [
        nearest["key"],
        nearest["true_class"],
        nearest["label"],
    ]
    assert '<div class="picture">' not in report
    assert "known test vectors" in report
    with open(run.folder.file("MODEL_CARD.md")) as file:
        card = file.read()
    assert "- Input columns: x" in card
    assert "pixels" not in card


def test_it_is_evaluated_again(run, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "noise.npz"
    np.savez(path, rng.normal(0, 1, (40, 64)))
    config = experiments.EvaluationConfig(
        run.folder.file("model.keras"), unknown_data=(f"npz:{path}",)
    )
    done = experiments.evaluate_saved(config, tmp_path / "again")
    same = done.evaluation.metrics
    assert same["auroc"] == run.evaluation.metrics["auroc"]
    assert same["unknown_data"][f"npz:{path}"]["false_positive_rate"] < 0.1
    np.savez(path, np.zeros((40, 63)))
    with pytest.raises(ValueError, match=r"\(n, 64\) .*\(40, 63\)"):
        experiments.evaluate_saved(config, tmp_path / "again")


def test_data_that_have_changed_are_noticed(run, table, tmp_path):
    """Their parts are drawn anew, so a test row may have been trained on."""
    assert not any(
        "changed" in note for note in data_of_run(run.folder.path).notes
    )
    before = pyarrow.parquet.read_table(table)
    try:
        changed = pyarrow.concat_tables([before.slice(0, 1), before])
        pyarrow.parquet.write_table(changed, table)
        said = []
        experiments.evaluate_saved(
            experiments.EvaluationConfig(run.folder.file("model.keras")),
            tmp_path / "again",
            tell=lambda kind, *values: said.append((kind, *values)),
        )
    finally:
        pyarrow.parquet.write_table(before, table)
    (note,) = [v for kind, v, *_ in said if kind == "note" and "changed" in v]
    assert "may have been trained on" in note
    assert "different inputs or labels in: train," in note
    with open(tmp_path / "again" / "report.html") as file:
        assert "may have been trained on" in file.read()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recipe": {"flip": 0.5}}, "^flip=0.5 has no effect with vectors"),
        (
            {"recipe": {"preset": "fast"}},
            "preset=fast is not available for vectors",
        ),
        ({"method": "crosr"}, "^method=crosr works only with images"),
        ({"tta": "flip"}, "which flip=0"),
    ],
)
def test_what_is_only_for_images(table, settings, message):
    with pytest.raises(ValueError, match=message):
        ExperimentConfig(options(table), **settings)


def test_a_network_of_images_is_refused(table, tmp_path):
    config = ExperimentConfig(options(table), recipe={"network": "resnet18"})
    with pytest.raises(ValueError, match="resnet18 is for images .*mlp"):
        experiments.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_network_and_its_normalization():
    network = cac_tf.models.mlp(3, (4,), seed=0)
    w1, b1, w2, b2 = network.get_weights()
    mean, std = np.arange(4.0), np.array([1, 2, 4, 1e4])
    classifier = cac_tf.models.vector_classifier(mean, std, network)
    x = np.float32(np.random.default_rng(0).normal(mean, std, (5, 4)))
    expected = np.maximum((x - mean) / std @ w1 + b1, 0) @ w2 + b2
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(classifier(x)), expected, atol=1e-6
    )
    wide = cac_tf.models.mlp(3, (1280,), seed=0)
    assert wide.get_layer("features").units == 512


def test_the_served_model_gives_the_same_answers(run, table, tmp_path):
    """To the table itself, whose column it finds, as the run's folder does."""
    # What is deployed is somewhere else.
    deployed = str(tmp_path / "deployed")
    shutil.copytree(run.folder.serving, deployed)
    with open(run.folder.file("predictions.csv"), newline="") as file:
        expected = {row["key"]: row["label"] for row in csv.DictReader(file)}
    served = tf.saved_model.load(os.path.join(run.folder.serving, "1"))
    ask = served.signatures["serving_default"]
    assert [*ask.structured_input_signature[1]] == ["inputs"]
    for path in (run.folder.path, run.folder.serving, deployed):
        classifier = batch.Classifier.load(path)
        assert classifier.input_columns == ("x",)
        answers = dict(batch.classify_files(classifier, [table]))
        assert {key: answers[key].label for key in expected} == expected


@pytest.mark.slow
def test_intents_of_a_bank(tmp_path):
    """Vectors in one file, labels and parts in another, as people have them."""
    folder = os.environ.get("CAC_TF_TEXTS_DIR")
    if not folder:
        pytest.skip("CAC_TF_TEXTS_DIR is not set: no sentence vectors here")
    data = {
        "dataset": os.path.join(folder, "banking77_minilm.npy"),
        "labels": os.path.join(folder, "banking77.csv"),
        "known_share": 0.25,
    }
    config = ExperimentConfig(data, score="relative_mahalanobis")
    measures = experiments.train(config, tmp_path / "run").evaluation.metrics
    assert measures["counts"]["unknown_test"] == 2320
    assert measures["auroc"] > 0.93
    assert measures["macro_f1"] > 0.7


def test_the_rate_is_chosen_with_known_classes_left_out(table, tmp_path):
    """In the place of unknown data, of which none is looked at."""

    def trained(share):
        told = []
        config = ExperimentConfig(
            {**options(table), "test_fraction": 0.5},
            score="max_logit",
            scores=("max_logit",),
            maximize="balanced_accuracy" if share is None else "macro_f1",
            unknown_share=share or 0.5,
            recipe={"epochs": 2},
        )
        done = experiments.train(
            config,
            tmp_path / f"share{share}",
            tell=lambda kind, *values: told.append((kind, *values)),
        )
        ((_, measure, rates, chosen),) = [
            one for one in told if one[0] == "rates"
        ]
        assert measure == config.maximize
        assert len(rates) == 3 and chosen == np.mean(rates)
        model = cac_tf.load_model(done.folder.file("model.keras"))
        dataset = load_open_set_dataset(config.data)
        accepted = (
            model.predict_scores(dataset.validation.images).unknown_score
            <= model.threshold
        )
        assert accepted.mean() == pytest.approx(chosen, abs=0.02)
        names = {path.name for path in tmp_path.glob("*/checkpoints/*")}
        assert "left_out_2_classifier.npz" in names
        return chosen

    # The more unknown inputs are expected, the fewer are accepted.
    assert trained(0.9) < trained(0.02)


def test_a_data_set_without_some_of_its_classes(table):
    dataset = load_open_set_dataset(**options(table))
    fewer = dataset.without_classes([0, 3])
    assert fewer.class_names == tuple(
        dataset.class_names[i] for i in (1, 2, 4, 5)
    )
    for part, whole in (("train", "train"), ("known_test", "validation")):
        one, all_of_them = getattr(fewer, part), getattr(dataset, whole)
        there = np.isin(all_of_them.labels, [1, 2, 4, 5])
        np.testing.assert_array_equal(one.images, all_of_them.images[there])
        names = np.array(fewer.class_names)[one.labels]
        np.testing.assert_array_equal(
            names, np.array(dataset.class_names)[all_of_them.labels[there]]
        )
    unknown = fewer.unknown_test
    assert unknown.size + fewer.train.size + fewer.known_test.size == (
        dataset.train.size + dataset.validation.size
    )
    assert set(unknown.labels) == {0, 1}
    with pytest.raises(ValueError, match="At least two known classes"):
        dataset.without_classes([0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"unknown_share": 0.7}, "unknown_share=0.7 has no effect without"),
        (
            {"maximize": "macro_f1", "true_positive_rate": 0.9},
            "true_positive_rate=0.9 has no effect with maximize=macro_f1",
        ),
        ({"maximize": "f1"}, "maximize must be one of macro_f1, balanced_acc"),
    ],
)
def test_a_threshold_is_asked_for_in_one_way(settings, message):
    with pytest.raises(ValueError, match=message):
        ExperimentConfig({"dataset": "digits"}, **settings)


def test_a_benchmark_draws_the_classes_of_each_trial(table, tmp_path):
    asked = (str(tmp_path), [table], ["cac"], [0, 3], None)
    runs = experiments.plan(*asked, known_share=0.6)
    configs = experiments.configurations(
        runs, {"label_column": "class", "known_share": 0.6}
    )
    assert [run.name for run in runs] == [
        f"digits.parquet share0.6 cac trial {trial}" for trial in (0, 3)
    ]
    found = [load_open_set_dataset(one.data) for one in configs.values()]
    assert [(one.split_family, one.trial) for one in found] == [
        ("share0.6", 0),
        ("share0.6", 3),
    ]
    assert found[0].class_names != found[1].class_names
    with pytest.raises(
        ValueError, match="Other data sets need known_share=..., the"
    ):
        experiments.plan(*asked)
    with pytest.raises(ValueError, match="differ in the last part of their"):
        asked = (str(tmp_path), [table, "digits.parquet"], ["cac"], [0], None)
        experiments.plan(*asked, known_share=0.6)
