# SPDX-License-Identifier: Apache-2.0
"""What trained classifiers end in, and what they return."""

import keras
import numpy as np
import pytest
from keras import layers
from scipy import special

import cac_tf
from cac_tf.models.classifier_ends import ending_in_logits
from cac_tf.scores.registry import common_names
from tests import execution
from tests.conftest import blobs

make = cac_tf.OpenSetClassifier.from_classifier
ON_TENSORFLOW = execution.BACKEND == "tensorflow"


def hidden():
    inputs = keras.Input([5])
    return inputs, layers.Dense(8, activation="relu", name="hidden")(inputs)


def wrap(classifier, class_names, score="max_logit"):
    """A model of an untrained classifier."""
    x, y = blobs(np.random.default_rng(0), num_classes=len(class_names))
    return make(
        classifier,
        (x, y),
        class_names=class_names,
        score=score,
        centers="anchors",
    )


def ending_with(*ends):
    inputs, x = hidden()
    for end in ends:
        x = end(x)
    return keras.Model(inputs, x)


def nested(model):
    inputs = keras.Input([5])
    return keras.Model(inputs, model(inputs))


# ---- binary classifiers with one output -----------------------------------


class OneOutput(layers.Layer):
    """Not dense, so that its weights cannot be split."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 1))

    def call(self, x):
        return keras.ops.matmul(x, self.kernel)


BINARY = {
    "sigmoid": lambda: ending_with(layers.Dense(1, activation="sigmoid")),
    "logit": lambda: ending_with(layers.Dense(1)),
    "activation": lambda: ending_with(
        layers.Dense(1), layers.Activation("sigmoid")
    ),
    "operation": lambda: ending_with(layers.Dense(1), keras.ops.sigmoid),
    "linear": lambda: ending_with(
        layers.Dense(1), layers.Activation("linear"), layers.Flatten()
    ),
    "not dense": lambda: ending_with(OneOutput(), keras.ops.sigmoid),
    "nested": lambda: nested(
        ending_with(layers.Dense(1, activation="sigmoid"))
    ),
    "sequential": lambda: keras.Sequential(
        [keras.Input([5]), layers.Dense(8), layers.Dense(1, "sigmoid")]
    ),
}


@pytest.mark.parametrize("kind", BINARY if ON_TENSORFLOW else ["sigmoid"])
def test_one_output_becomes_two_logits(kind, rng):
    classifier = BINARY[kind]()
    x = np.float32(rng.standard_normal((20, 5)))
    before = np.asarray(classifier(x))[:, 0]
    is_logit = kind in ("logit", "linear")
    expected = special.expit(before) if is_logit else before
    model = ending_in_logits(classifier, 2)
    logits = np.float64(model(x))
    np.testing.assert_allclose(
        special.softmax(logits, axis=1)[:, 1], expected, atol=1e-6
    )
    # Both classes alike.
    np.testing.assert_allclose(logits[:, 0], -logits[:, 1], atol=1e-6)
    # The classifier is as it was.
    np.testing.assert_array_equal(np.asarray(classifier(x))[:, 0], before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "score", common_names() if ON_TENSORFLOW else ["vim", "gamma"]
)
def test_a_binary_classifier_all_the_way(score, tmp_path):
    x, y = blobs(np.random.default_rng(0), num_classes=2)
    noise = np.random.default_rng(1).standard_normal(x.shape)
    x = np.float32(x + 0.5 * noise)
    classifier = BINARY["sigmoid"]()
    classifier.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    classifier.fit(x, y, epochs=10, batch_size=16, verbose=0)
    model = make(classifier, (x, y), class_names=["no", "yes"], score=score)
    model.calibrate(x, true_positive_rate=0.9)
    expected = model.predict_open_set(x)
    assert not expected.is_unknown[y == 0].all()
    assert not expected.is_unknown[y == 1].all()
    is_right = expected.predicted_class_id == y
    assert is_right.mean() > 0.9
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras").predict_open_set(x)
    np.testing.assert_array_equal(again.class_id, expected.class_id)
    if ON_TENSORFLOW and score in ("gamma", "vim", "max_softmax"):
        import tensorflow as tf

        model.export(tmp_path / "saved")
        serve = tf.saved_model.load(str(tmp_path / "saved")).signatures
        out = serve["serving_default"](tf.constant(x))
        np.testing.assert_array_equal(out["class_id"], expected.class_id)
        if not model.score.reads_distances:
            np.testing.assert_allclose(
                out["probabilities"][:, 1],
                np.asarray(classifier(x))[:, 0],
                atol=1e-5,
            )


def test_features_of_a_binary_classifier_are_found():
    model = wrap(BINARY["activation"](), ["no", "yes"], score=None)
    assert model.score.name == "vim"
    assert model.network.last_layer.kernel.shape == (8, 2)


class OwnCode(keras.Model):
    """Layers that are called by code of its own."""

    def __init__(self, units, activation, several=False):
        super().__init__()
        self.dense = layers.Dense(units)
        self.end, self.several = activation, several

    def call(self, x):
        out = self.end(self.dense(x))
        return (x, out) if self.several else out


def test_one_output_of_hidden_code_is_refused():
    """It may be a logit or a probability."""
    with pytest.raises(ValueError, match="a logit or a probability.*two log"):
        wrap(OwnCode(1, keras.ops.sigmoid), ["no", "yes"])


# ---- other ends -----------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        lambda: [layers.Dense(3, activation="log_softmax")],
        lambda: [layers.Dense(3), layers.Activation("log_softmax")],
        lambda: [layers.Dense(3), keras.ops.log_softmax],
        lambda: [layers.Dense(3), layers.Softmax()],
    ],
)
def test_log_softmax_is_taken_off_as_softmax_is(end, rng):
    classifier = ending_with(*end())
    x = np.float32(rng.standard_normal((20, 5)))
    ended = np.float64(classifier(x))
    logits = np.float64(ending_in_logits(classifier, 3)(x))
    # (Log-probabilities are their own log-softmax.)
    is_log = ended.max() <= 0
    probabilities = special.softmax(ended, axis=1) if is_log else ended
    np.testing.assert_allclose(
        special.softmax(logits, axis=1), probabilities, atol=1e-6
    )
    sums = special.logsumexp(logits, axis=1)
    assert np.ptp(sums) > 1e-3  # Real logits: their sizes differ.


@pytest.mark.parametrize("end", [keras.ops.softmax, keras.ops.log_softmax])
def test_hidden_probabilities_are_found_out(end):
    with pytest.raises(ValueError, match="probabilities.*not logits: remove"):
        wrap(OwnCode(3, end), list("abc"))


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (
            [layers.Dense(3, activation="sigmoid")],
            r"ends in 3 outputs of a sigmoid.*\(multi-label\).*one class",
        ),
        (
            [layers.Dense(3), layers.Activation("hard_sigmoid")],
            "outputs of a hard_sigmoid.*multi-label",
        ),
        ([layers.Dense(3, activation="tanh")], "ends in a tanh.*neither log"),
        ([layers.Dense(1, activation="softmax")], "1 outputs for 3 class"),
    ],
)
def test_ends_that_have_no_classes(ends, message):
    with pytest.raises(ValueError, match=message):
        wrap(ending_with(*ends), list("abc"))


# ---- several outputs ------------------------------------------------------


@pytest.mark.parametrize("activation", [None, "softmax", "log_softmax"])
def test_a_dict_with_logits(activation, rng):
    inputs, x = hidden()
    ended = layers.Dense(3, activation=activation, name="end")(x)
    for outputs in (
        {"logits": ended, "aside": x},
        {"aside": x, "logits": ended},
    ):
        classifier = keras.Model(inputs, outputs)
        model = wrap(classifier, list("abc"))
        x_new = np.float32(rng.standard_normal((9, 5)))
        found = model.outputs_of(x_new, ["logits", "aside"])
        before = classifier(x_new)
        np.testing.assert_allclose(found["aside"], before["aside"], rtol=1e-6)
        expected = np.float64(before["logits"])
        if activation != "softmax":
            expected = special.softmax(expected, axis=1)
        np.testing.assert_allclose(
            special.softmax(np.float64(found["logits"]), axis=1),
            expected,
            atol=1e-6,
        )


def test_a_list_of_one_output_is_that_output():
    inputs, x = hidden()
    model = wrap(keras.Model(inputs, [layers.Dense(3)(x)]), list("abc"))
    assert model(np.ones((2, 5), "float32"))["logits"].shape == (2, 3)


@pytest.mark.parametrize(
    "by", [wrap, cac_tf.OpenSetClassifier], ids=["wrap", "class"]
)
@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (
            list,
            "returns 2 outputs without names.*dict with the key 'logits'.*ker",
        ),
        (tuple, "returns 2 outputs without names.*dict with the key 'logits'"),
        (
            lambda ends: dict(zip(("left", "right"), ends, strict=True)),
            "without the key 'logits'; its outputs are left, right.*keras.Mod",
        ),
    ],
)
def test_other_forms_of_several_outputs(by, structure, message):
    inputs, x = hidden()
    ends = [layers.Dense(3, name="one")(x), layers.Dense(3, name="two")(x)]
    with pytest.raises(ValueError, match=message):
        by(keras.Model(inputs, structure(ends)), list("abc"))


def test_several_outputs_of_hidden_code():
    """They are not taken for features and logits."""
    with pytest.raises(ValueError, match="returns 2 outputs without names"):
        wrap(OwnCode(3, keras.ops.relu, several=True), list("abc"))


def test_a_softmax_under_two_names(rng):
    """The layer stays where another output is its own."""
    inputs = keras.Input([4])
    shares = layers.Dense(3, activation="softmax")(inputs)
    classifier = keras.Model(inputs, {"logits": shares, "shares": shares})
    model = ending_in_logits(classifier, 3)
    x = np.float32(rng.standard_normal((6, 4)))
    outputs = model(x)
    expected = np.asarray(classifier(x)["shares"])
    np.testing.assert_allclose(
        special.softmax(np.asarray(outputs["logits"]), axis=1),
        expected,
        rtol=1e-5,
    )
    np.testing.assert_allclose(np.asarray(outputs["shares"]), expected)
