# SPDX-License-Identifier: Apache-2.0
"""Exports of every kind of centers, and of outputs of a network's own."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops

import cac_tf
from cac_tf.layers import ClassDistances
from tests import oracle
from tests.conftest import blobs
from tests.conftest import class_names
from tests.export import runtimes

pytestmark = [
    # What is reconstructed has no part in the loss.
    pytest.mark.filterwarnings("ignore:Gradients do not exist"),
    pytest.mark.filterwarnings("ignore:.*keeps? .* anchor"),
]

WIDTH = 5


class Misfit(cac_tf.scores.Score):
    """Reads an output that only this network gives, of the score's name."""

    NAME, READS = "misfit", ("misfit",)

    def call(self, misfit):
        return ops.mean(misfit, axis=-1)


class MisfitFarAway(cac_tf.scores.Score):
    """A network's own output beside the distances."""

    NAME, READS = "misfit_far_away", ("distances", "misfit")

    def call(self, distances, misfit):
        # The square of a large float32 is infinite.
        distance = ops.square(ops.min(distances, axis=-1))
        return distance * (1.0 + ops.mean(misfit, axis=-1))


def network(num_classes, width, names):
    """A classifier with outputs of its own, among them by these names.

    One is how badly the inputs are reconstructed, by the dimension.
    """
    inputs = keras.Input([WIDTH])
    hidden = layers.Dense(6, activation="relu")(inputs)
    again = layers.Dense(WIDTH)(hidden)
    logits = layers.Dense(width)(hidden)
    if names is None:
        return keras.Model(inputs, logits)
    outputs = {
        "logits": logits,
        "misfit": ops.square(again - inputs),
        "features": layers.Dense(2, activation="tanh")(hidden),
        "reconstruction": again,
        "class_distances": ClassDistances(num_classes, 4.0)(logits),
    }
    return keras.Model(inputs, {n: outputs[n] for n in names})


ALL = ("logits", "misfit", "features", "reconstruction")
OWN = ("logits", "class_distances")
# Number of classes and of logits, names of outputs, centers, and scores.
CASES = {
    "centers of its own": (3, 3, OWN, "learnt", ("gamma", "energy")),
    "centers of its own, fewer logits": (
        4,
        2,
        OWN,
        "learnt",
        ("gamma", "min_distance", "knn"),
    ),
    "wider logits, anchors": (
        3,
        5,
        None,
        "anchors",
        ("gamma", "min_distance", "max_logit"),
    ),
    "wider logits, class means": (
        3,
        5,
        None,
        "means",
        ("gamma", "max_softmax", "knn"),
    ),
    "fewer logits, class means": (
        4,
        2,
        None,
        "means",
        ("gamma", "min_distance", "knn"),
    ),
    "a dict, anchors": (
        3,
        3,
        ("logits", "reconstruction"),
        "anchors",
        ("gamma", "mahalanobis"),
    ),
    "a dict, class means": (
        3,
        3,
        ALL,
        "means",
        ("gamma", "vim", Misfit, MisfitFarAway),
    ),
    "a dict, wider logits": (
        3,
        4,
        ("misfit", "logits"),
        "anchors",
        (Misfit, MisfitFarAway),
    ),
}


@functools.cache
def trained(case):
    """A product with the simplest score, and its inputs and labels."""
    num_classes, width, names, centers, _ = CASES[case]
    keras.utils.set_random_seed(2)
    classifier = network(num_classes, width, names)
    x, labels = blobs(np.random.default_rng(1), num_classes)
    if width >= num_classes or names == OWN:
        loss = cac_tf.losses.CACLoss(4.0, from_distances=names == OWN)
        if names is not None:
            loss = {OWN[-1] if names == OWN else "logits": loss}
        classifier.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
        classifier.fit(x, labels, epochs=4, verbose=0)
    made_of = {"class_names": class_names(num_classes), "score": "gamma"}
    if centers == "learnt":
        model = cac_tf.OpenSetClassifier.from_classifier(
            classifier, (x, labels), magnitude=4.0, **made_of
        )
        return model, x, labels
    if centers == "means":
        # Of the logits that there are, so that all classes occur.
        logits = classifier.predict(x, verbose=0)
        logits = logits if names is None else logits["logits"]
        centers = [logits[labels == i].mean(axis=0) for i in range(num_classes)]
    else:
        centers = 4.0
    model = cac_tf.OpenSetClassifier(classifier, centers=centers, **made_of)
    return model, x, labels


def calibrated(case, score):
    """A calibrated model, and inputs of which some are rejected."""
    model, x, labels = trained(case)
    score = score if isinstance(score, str) else score()
    model = model.with_score(score, x, labels)
    inputs = np.float32(np.random.default_rng(3).normal(0, 2.5, (60, WIDTH)))
    model.calibrate(inputs, true_positive_rate=0.6)
    return model, inputs


@pytest.mark.slow
@pytest.mark.parametrize("suffix", runtimes.LOAD)
@pytest.mark.parametrize(
    ("case", "score"),
    [(case, score) for case, (*_, scores) in CASES.items() for score in scores],
)
def test_an_export_decides_like_the_model_in_memory(
    tmp_path, case, score, suffix
):
    model, x = calibrated(case, score)
    expected = model.predict_open_set(x)
    assert 0 < expected.is_unknown.sum() < len(x)
    assert len(set(expected.predicted_class_id)) > 1
    ask = runtimes.exported(model, tmp_path / f"model{suffix}")
    sent = np.concatenate([x, x[:3]])
    sent[-3, 1], sent[-2, 2], sent[-1] = np.nan, np.inf, 3e38
    answer = ask(sent)
    # Nothing of the network's own outputs is served.
    assert set(answer) == {
        *runtimes.SHARED,
        *("p_value", "probabilities", "threshold"),
        *("model_version", "is_valid"),
    }
    of_valid = {name: value[:-3] for name, value in answer.items()}
    runtimes.assert_as_in_python(model, of_valid, x)
    assert of_valid["is_valid"].all()
    assert not answer["is_valid"][-3:].any()
    assert set(answer["class_id"][-3:]) == {-1}
    assert answer["unknown_score"][-3:].min() > 1e38
    for name, value in answer.items():
        if value.dtype == "float32":
            assert np.isfinite(value).all(), name
    # And as the equations have it, from the logits.
    logits = model.predict_scores(x).logits
    d = oracle.distances(logits, model.centers)
    num_classes = len(model.class_names)
    assert answer["probabilities"].shape == (len(sent), num_classes)
    shares = oracle.softmin(d)
    if not model.score.reads_distances and logits.shape[1] >= num_classes:
        shares = oracle.softmin(-np.float64(logits[:, :num_classes]))
    for name, wanted in (
        ("distances", d),
        ("gamma", oracle.gamma(d)),
        ("probabilities", shares),
    ):
        np.testing.assert_allclose(of_valid[name], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["centers of its own", "a dict, class means"])
def test_the_other_signatures(tmp_path, case):
    """`classify` names every class; thresholds by class."""
    model, x = calibrated(case, CASES[case][-1][0])
    model.calibrate(x, true_positive_rate=0.5, by_class=True)
    path = tmp_path / "saved"
    runtimes.write_signatures(model, path, ["classify", "with_threshold"])
    expected = model.predict_open_set(x)
    examples = []
    for row in x:
        example = tf.train.Example()
        example.features.feature["features"].float_list.value.extend(row)
        examples.append(example.SerializeToString())
    answer = runtimes.load_saved_model(path, "classify")(
        inputs=np.array(examples, object)
    )
    first = [value.decode() for value in answer["classes"][:, 0]]
    assert first == list(expected.label)
    for row in answer["classes"]:
        assert sorted(v.decode() for v in row) == sorted(
            ["unknown", *model.class_names]
        )
    thresholds = np.ravel(model.threshold)[expected.predicted_class_id]
    answer = runtimes.load_saved_model(path, "with_threshold")(
        x, threshold=thresholds
    )
    np.testing.assert_array_equal(answer["class_id"], expected.class_id)
