# SPDX-License-Identifier: Apache-2.0
"""A model of texts is exported, and asked about files of texts."""

import csv
import json

import keras
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import cac_tf
from cac_tf import batch
from cac_tf import export
from tests.texts import SUBJECTS
from tests.texts import sentences

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only TensorFlow exports"
)
ASKED = ["my card", "two\nlines about a pin", "", "1234", "caf\u00e9"]


@pytest.fixture(scope="module")
def model():
    texts, labels = sentences(40)
    words = keras.layers.TextVectorization(output_mode="multi_hot")
    words.adapt(texts)
    classifier = keras.Sequential(
        [
            *(keras.Input((), dtype="string"), words),
            *(
                keras.layers.Rescaling(1.0),
                keras.layers.Dense(4, use_bias=False),
            ),
        ]
    )
    # Least squares: no training, no seed.
    x = np.asarray(words(keras.ops.convert_to_tensor(texts)), "float32")
    kernel, *_ = np.linalg.lstsq(x, 5 * np.eye(4)[labels])
    classifier.layers[-1].set_weights([kernel])
    return cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (texts, labels),
        class_names=SUBJECTS,
        score="gamma",
        validation_data=(texts, labels),
    )


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "texts"
    export.write_model_folder(model, path, 1)
    model.save(path / "model.keras")
    return path


@pytest.fixture(scope="module", params=["1", "model.keras"])
def classifier(folder, request):
    return batch.Classifier.load(str(folder / request.param))


def test_signatures(model, folder):
    import tensorflow as tf

    served = tf.saved_model.load(str(folder / "1")).signatures
    assert sorted(served) == ["classify", "serving_default", "with_threshold"]
    ask = served["serving_default"]
    (spec,) = ask.structured_input_signature[1].values()
    assert spec == tf.TensorSpec((None,), tf.string, name="inputs")
    expected = model.predict_open_set(ASKED)
    found = ask(inputs=tf.constant(ASKED))
    assert found["label"].numpy().astype(str).tolist() == list(expected.label)
    np.testing.assert_allclose(
        found["unknown_score"], expected.unknown_score, rtol=1e-5, atol=1e-6
    )
    assert found["is_valid"].numpy().all()
    # Bytes that are no UTF-8 are no words.
    found = served["with_threshold"](
        inputs=tf.constant([b"\xff", b"card"]),
        threshold=tf.constant([1.0, np.nan]),
    )
    assert found["is_valid"].numpy().tolist() == [True, False]
    examples = [example(text).SerializeToString() for text in ASKED]
    found = served["classify"](inputs=tf.constant([*examples, b"none"]))
    first = found["classes"].numpy()[:, 0].astype(str).tolist()
    assert first == [*expected.label, "unknown"]


def example(text):
    import tensorflow as tf

    content = tf.train.BytesList(value=[text.encode()])
    value = tf.train.Feature(bytes_list=content)
    return tf.train.Example(features=tf.train.Features(feature={"text": value}))


def test_requests_and_readme(folder):
    requests = folder / "requests"
    with open(requests / "serving_default.json") as file:
        assert json.load(file)["instances"] == ["A text."]
    with open(requests / "classify.json") as file:
        assert json.load(file)["examples"] == [{"text": "A text."}]
    readme = (folder / "README.md").read_text()
    assert "| `serving_default` | `inputs`: string, batch |" in readme
    assert 'rows = ["a text", "another"]' in readme


def test_no_file_for_devices(model, tmp_path):
    with pytest.raises(
        ValueError, match="a lookup table, .* Export a SavedModel"
    ):
        export.write_litert(model, tmp_path / "texts.tflite")


def answers(classifier, path, **named):
    (block,) = batch.blocks_of([str(path)], **named)
    found = list(batch.answers_of(classifier, block))
    return [key for key, _ in found], [answer for _, answer in found]


def labels(model, texts):
    return model.predict_open_set(texts).label.tolist()


def test_files_of_texts(model, classifier, tmp_path):
    import tensorflow as tf

    table = {"id": [*"abcde"], "count": range(5), "text": ASKED}
    paths = [tmp_path / f"x.{kind}" for kind in ("csv", "parquet", "jsonl")]
    with open(paths[0], "w", newline="") as file:
        csv.writer(file).writerows([table, *zip(*table.values(), strict=True)])
    parquet.write_table(pa.table(table), paths[1])
    paths[2].write_text("".join(json.dumps({"text": t}) + "\n" for t in ASKED))
    np.save(tmp_path / "x.npy", ASKED)
    paths.append(tmp_path / "x.npy")
    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord")) as writer:
        for text in ASKED:
            writer.write(example(text).SerializeToString())
    paths.append(tmp_path / "x.tfrecord")
    expected = labels(model, ASKED)
    assert len(set(expected)) > 1
    for path in paths:
        keys, found = answers(classifier, path)
        assert [one.label for one in found] == expected, path
        assert keys == [f"{path}#{row}" for row in range(5)]
    keys, found = answers(classifier, paths[1], image="id", key="text")
    assert keys == [
        text or f"{paths[1]}#{row}" for row, text in enumerate(ASKED)
    ]
    assert [one.label for one in found] == labels(model, [*"abcde"])


def test_lines_of_text(model, classifier, tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"my card\r\n\nnot \xff UTF-8\nmy pin code")
    keys, found = answers(classifier, path)
    assert keys == [f"{path}#{row}" for row in range(4)]
    texts = ["my card", "", "not UTF-8", "my pin code"]
    assert [one.label for one in found] == labels(model, texts)
    # A byte-order mark is no part of the first text.
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    scores = [one.unknown_score for one in answers(classifier, path)[1]]
    np.testing.assert_allclose(
        scores, [one.unknown_score for one in found], rtol=1e-5
    )


def test_columns_of_numbers_that_are_texts(model, classifier, tmp_path):
    """A first block of digits does not make a column of texts numbers."""
    path = tmp_path / "x.csv"
    path.write_text("text\n007\n2026-01-01\n")
    _, found = answers(classifier, path, image="text")
    assert [one.label for one in found] == labels(model, ["007", "2026-01-01"])


def test_rows_without_a_text(classifier, tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"said": ["my card", None]}), path)
    _, (good, bad) = answers(classifier, path)
    assert good.predicted_class == "card"
    assert bad.error == "it contains None; inputs must be texts"
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "my card"}\n{"text": 3}\n{"said": "a"}\nno\n')
    _, found = answers(classifier, path)
    assert [one.error for one in found] == [
        "",
        "it contains 3; inputs must be texts",
        "the field 'text' is missing",
        "not a JSON object",
    ]


def test_which_column(classifier, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("said,by\nmy card,you\n")
    _, (answer,) = answers(classifier, path)
    assert "2 text columns: said, by. Name the" in answer.error
    _, (answer,) = answers(classifier, path, key="by")
    assert answer.predicted_class == "card"
    path.write_text("a,b\n1,2\n")
    _, (answer,) = answers(classifier, path)
    assert "no text columns. Name the" in answer.error


def test_texts_for_a_model_of_numbers(tmp_path):
    network = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    model = cac_tf.OpenSetClassifier(network, ["left", "right"])
    model.set_threshold(1e6)
    model.save(tmp_path / "model.keras")
    classifier = batch.Classifier.load(str(tmp_path / "model.keras"))
    path = tmp_path / "x.txt"
    path.write_text("a\n")
    _, (answer,) = answers(classifier, path)
    assert (
        answer.error
        == "this file contains texts, which the model does not accept"
    )
    path = tmp_path / "x.jsonl"
    path.write_text('{"features": [1, 2]}\n{"features": ["a", 2]}\n')
    _, (good, bad) = answers(classifier, path)
    assert not good.error
    assert "array of numbers; got dtype <U" in bad.error
