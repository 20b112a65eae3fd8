# SPDX-License-Identifier: Apache-2.0
"""From a CSV file of texts to a report and a served model."""

import csv
import json
import os

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import batch
from cac_tf import experiments
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments import ExperimentConfig
from cac_tf.models import pretrained_backbone
from tests.hub_presets import save_bert
from tests.texts import SUBJECTS
from tests.texts import WORDS
from tests.texts import sentences

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="texts need TensorFlow"
)
# Letters that only texts of these parts and classes have.
MARKS = {"dev": "q", "test": "z"}
OF_UNKNOWN = "x"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    texts, labels = sentences(100)
    path = str(tmp_path_factory.mktemp("table") / "bank.csv")
    rows = []
    for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
        part = ("train", "train", "train", "dev", "test")[row // 4 % 5]
        mark = MARKS.get(part, "")
        if label > 1:
            mark += OF_UNKNOWN
        rows.append((row, part, SUBJECTS[label], f"{text}\n<b>{mark * 3}"))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "split", "label", "text"])
        writer.writerows(rows)
    return path


def options(table, **changes):
    return {"dataset": table, "known_classes": SUBJECTS[:2], **changes}


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    config = ExperimentConfig(
        options(table),
        score="knn",
        scores=("gamma",),
        recipe={"epochs": 20},
        true_positive_rate=0.8,
    )
    return experiments.train(config, tmp_path_factory.mktemp("runs") / "run")


def test_it_is_trained_and_measured(run):
    measures = run.evaluation.metrics
    assert measures["inputs"] == "texts"
    assert measures["accuracy"] == 1
    assert measures["auroc"] > 0.9
    assert measures["counts"] == {
        "train": 30,
        "validation": 10,
        "known_test": 10,
        "unknown_test": 10,
    }


def test_known_training_texts_alone_decide(run):
    model = cac_tf.load_model(run.folder.file("model.keras"))
    vectors = model.classifier.get_layer("text_vectors")
    runs = vectors.get_layer("letters").get_vocabulary()
    # (The first stands for all others.)
    letters = set("".join(runs[1:]))
    assert letters >= set("my lost transfer")
    assert not letters & {*MARKS.values(), OF_UNKNOWN}
    # Of a saved vocabulary, each line is one run.
    assert "\n" not in letters
    assert vectors.output_shape == (None, 29)


def test_the_equation_of_the_vectors(run, table):
    """Of a text of known runs and others, by hand."""
    model = cac_tf.load_model(run.folder.file("model.keras"))
    vectors = model.classifier.get_layer("text_vectors")
    runs = vectors.get_layer("letters").get_vocabulary()
    text = "Lost, zzz"
    clean = "lost zzz"
    own = {
        " ".join(clean[i : i + n])
        for n in (3, 4, 5)
        for i in range(len(clean) - n + 1)
    }
    h = np.array([float(one in own) for one in runs])
    h[0] = bool(own - set(runs))
    (directions,) = vectors.get_layer("directions").get_weights()
    expected = h @ directions / np.linalg.norm(h)
    found = vectors(keras.ops.convert_to_tensor([text, ""]))
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-6)
    assert not np.any(found[1])
    # Orthonormal.
    np.testing.assert_allclose(directions.T @ directions, np.eye(29), atol=1e-5)


def test_the_report_shows_texts(run):
    with open(run.folder.file("report.html")) as file:
        report = file.read()
    assert "&lt;b&gt;zzz" in report
    assert "<b>zzz" not in report
    assert "known test texts" in report
    with open(run.folder.file("MODEL_CARD.md")) as file:
        card = file.read()
    assert "predict_open_set(texts)  # a list of strings" in card
    assert "- Texts: 30 train, " in card


def test_it_is_evaluated_again(run, tmp_path):
    config = experiments.EvaluationConfig(run.folder.file("model.keras"))
    done = experiments.evaluate_saved(config, tmp_path / "again")
    same = done.evaluation.metrics
    for name in ("auroc", "macro_f1", "threshold"):
        assert same[name] == run.evaluation.metrics[name]
    config = experiments.EvaluationConfig(
        run.folder.file("model.keras"), unknown_data=("npz:noise.npz",)
    )
    with pytest.raises(ValueError, match="add them to the table"):
        experiments.evaluate_saved(config, tmp_path / "again")


def test_the_served_model_gives_the_same_answers(run, table):
    """To the table itself, whose column it finds, as the run's folder does."""
    with open(run.folder.file("predictions.csv"), newline="") as file:
        expected = {row["key"]: row["label"] for row in csv.DictReader(file)}
    for path in (run.folder.path, os.path.join(run.folder.serving, "1")):
        classifier = batch.Classifier.load(path)
        assert classifier.input_columns == ("text",)
        answers = dict(batch.classify_files(classifier, [table]))
        assert {key: answers[key].label for key in expected} == expected


def test_a_changed_text_is_noticed(run, table):
    """`config.json` has what tells whether the data are the same."""
    with open(run.folder.file("config.json")) as file:
        before = json.load(file)["data"]["sha256"]
    dataset = load_open_set_dataset(**options(table))
    assert dataset.digests == before
    dataset.train.images[3] += "s"
    assert load_open_set_dataset(**options(table)).digests == before
    changed = dataset.with_inputs(lambda texts: texts).digests
    assert [part for part in before if before[part] != changed[part]] == [
        "train"
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "crosr"}, "^method=crosr works only with images"),
        ({"recipe": {"flip": 0.5}}, "^flip=0.5 has no effect"),
        ({"tta": "flip"}, "which flip=0"),
        (
            {"evaluate_every": 1, "score": "max_logit"},
            "^evaluate_every=1 has no effect with texts",
        ),
    ],
)
def test_what_is_only_for_images(table, settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        experiments.train(
            ExperimentConfig(options(table), **settings), tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_a_row_without_a_text(table, tmp_path):
    pandas_like = tmp_path / "bank.parquet"
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    made = {"text": ["a", None, "b"], "label": ["x", "x", "y"]}
    parquet.write_table(pyarrow.table(made), pandas_like)
    with pytest.raises(ValueError, match="column text .* first in row 1"):
        load_open_set_dataset(str(pandas_like), known_classes=["x", "y"])


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A small one of KerasHub, as `network`."""
    pytest.importorskip("keras_hub")
    folder = str(tmp_path_factory.mktemp("hub") / "bert")
    save_bert(folder, WORDS)
    return f"keras_hub/{folder}"


def test_a_network_of_keras_hub(network, table, tmp_path):
    """Frozen first, then trained on; the product takes texts."""
    config = ExperimentConfig(
        options(table),
        recipe={"epochs": 20, "network": network, "fine_tune": 1},
        true_positive_rate=0.8,
    )
    done = experiments.train(config, tmp_path / "run")
    measures = done.evaluation.metrics
    assert measures["inputs"] == "texts" and measures["accuracy"] > 0.7
    model = cac_tf.load_model(done.folder.file("model.keras"))
    data = load_open_set_dataset(config.data)
    found = model.predict_scores(data.known_test.images)
    expected = done.evaluation.unknown_score[: found.unknown_score.size]
    np.testing.assert_allclose(found.unknown_score, expected, atol=1e-5)
    own = pretrained_backbone(network)
    is_same = [
        np.array_equal(before, after)
        for before, after in zip(
            own.get_weights(),
            model.classifier.get_layer("backbone").get_weights(),
            strict=True,
        )
    ]
    assert not all(is_same)


def test_a_network_of_texts_does_not_take_others(network, tmp_path, rng):
    path = str(tmp_path / "vectors.npy")
    np.save(path, rng.normal(size=(40, 5)))
    labels = str(tmp_path / "labels.csv")
    with open(labels, "w") as file:
        file.write("label\n" + "a\nb\nc\nd\n" * 10)
    table = {"dataset": path, "known_share": 0.5}
    for data, message in (
        ({**table, "labels": labels}, "expects texts, but .* contains vectors"),
        ({"dataset": "digits"}, "takes texts, so image_size=224"),
    ):
        config = ExperimentConfig(data, recipe={"network": network})
        with pytest.raises(ValueError, match=message):
            experiments.train(config, tmp_path / "run")
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_intents_of_a_bank(tmp_path):
    folder = os.environ.get("CAC_TF_TEXTS_DIR")
    if not folder:
        pytest.skip("CAC_TF_TEXTS_DIR is not set: no texts here")
    data = {
        "dataset": os.path.join(folder, "banking77.csv"),
        "known_share": 0.5,
    }
    config = ExperimentConfig(data, score="knn")
    measures = experiments.train(config, tmp_path / "run").evaluation.metrics
    assert measures["inputs"] == "texts"
    assert measures["auroc"] > 0.85
