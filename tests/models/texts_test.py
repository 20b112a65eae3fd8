# SPDX-License-Identifier: Apache-2.0
"""A classifier of texts, with Keras' own layer of texts in it."""

import keras
import numpy as np
import pytest
from keras import layers

import cac_tf
from cac_tf.models.raw_inputs import InputKind
from tests.execution import BACKEND
from tests.texts import SUBJECTS
from tests.texts import sentences

pytestmark = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="texts need TensorFlow"
)
ASKED = ["my card", "MY CARD?", "", "a pelican", "my pin code é"]


def trained(shape, output_mode="tf_idf"):
    keras.utils.set_random_seed(0)
    texts, labels = sentences(60)
    words = layers.TextVectorization(output_mode=output_mode)
    words.adapt(texts)
    inputs = keras.Input(shape, dtype="string")
    x = layers.Dense(8, "relu")(layers.UnitNormalization()(words(inputs)))
    classifier = keras.Model(inputs, layers.Dense(4)(x))
    classifier.compile(
        keras.optimizers.Adam(0.05), cac_tf.losses.CACLoss(magnitude=3)
    )
    x = keras.ops.reshape(keras.ops.convert_to_tensor(texts), (-1, *shape))
    classifier.fit(x, labels, epochs=10, verbose=0)
    return classifier


@pytest.fixture(scope="module")
def classifier():
    return trained(())


@pytest.fixture(scope="module")
def model(classifier):
    return cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        sentences(60),
        class_names=SUBJECTS,
        score="knn",
        validation_data=sentences(40, seed=1),
    )


def test_texts_are_answered(model, classifier):
    assert model.inputs_taken == InputKind((), "string", False)
    answer = model.predict_open_set(ASKED)
    assert answer.predicted_class_id[[0, 4]].tolist() == [0, 3]
    # Case and punctuation do not count.
    assert answer.unknown_score[0] == answer.unknown_score[1]
    assert answer.is_unknown[3]
    logits = model.predict_scores(ASKED).logits
    expected = classifier(keras.ops.convert_to_tensor(ASKED))
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert model.evaluate(*sentences(40, seed=2))["accuracy"] == 1


def test_all_ways_to_hand_texts_over(model):
    import tensorflow as tf

    expected = model.predict_scores(ASKED).unknown_score
    for texts in (
        np.array(ASKED),
        np.array(ASKED, object),
        np.array(ASKED)[:, np.newaxis],
        [text.encode() for text in ASKED],
        tf.data.Dataset.from_tensor_slices(ASKED).batch(2),
        [(np.array(ASKED[:2]),), (np.array(ASKED[2:]),)],
    ):
        found = model.predict_scores(texts).unknown_score
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        model.predict(tf.constant(ASKED), verbose=0)["unknown_score"],
        expected,
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_classifier_of_rows_of_one_text(model):
    """(B, 1), as in Keras' examples."""
    other = cac_tf.OpenSetClassifier.from_classifier(
        trained((1,)), sentences(60), class_names=SUBJECTS, score="knn"
    )
    assert other.inputs_taken == model.inputs_taken
    np.testing.assert_allclose(
        other.predict_scores(ASKED).logits,
        model.predict_scores(ASKED).logits,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", None], "must be texts, but position 1 contains None"),
        (["a", float("nan")], "must be texts, but position 1 contains nan"),
        (["a", "b\udcff"], "must be texts, but position 1 contains b"),
        ([1.5, 2.5], "must be an array of strings; got dtype float64"),
        (np.array([["a", "b"]]), r"inputs of shape \(\); got \(2,\)"),
        ("a", r"not a string .* Pass a single text as a list: \[text\]"),
    ],
)
def test_what_is_no_text(model, texts, message):
    with pytest.raises(ValueError, match=message):
        model.predict_open_set(texts)


def test_the_vocabulary_is_saved(model, tmp_path):
    path = tmp_path / "model.keras"
    model.save(path)
    again = cac_tf.load_model(path)
    before, after = (one.predict_open_set(ASKED) for one in (model, again))
    assert after.label.tolist() == before.label.tolist()
    np.testing.assert_array_equal(after.unknown_score, before.unknown_score)
    np.testing.assert_array_equal(after.p_value, before.p_value)


def test_token_ids_inside(model):
    """Vocabulary in the config, and a network that is not built before."""
    words = layers.TextVectorization(
        vocabulary=["my", "card", "pin"], output_sequence_length=4
    )
    embedding = layers.Embedding(5, 3, embeddings_initializer="identity")
    mean = layers.GlobalAveragePooling1D()
    classifier = keras.Sequential([words, embedding, mean, layers.Dense(2)])
    made = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        np.array(["my card", "my pin"]),
        np.arange(2),
        score="gamma",
        centers="anchors",
    )
    assert made.inputs_taken == model.inputs_taken
    w, b = made.classifier.layers[-1].get_weights()
    # The mean of the embeddings of the ids 2, 3, 0 and 0.
    expected = np.array([0.5, 0, 0.25]) @ w + b
    logits = made.predict_scores(["My card."]).logits
    np.testing.assert_allclose(logits, [expected], rtol=1e-5, atol=1e-6)


def test_mirrored_texts_are_refused(classifier):
    with pytest.raises(ValueError, match='tta="flip" is for images'):
        cac_tf.OpenSetClassifier(classifier, SUBJECTS, tta="flip")
