# SPDX-License-Identifier: Apache-2.0
"""Exports of every kind of head and of backbones with outputs of their own."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops

import cac_tf
from tests import oracle
from tests.conftest import blobs
from tests.export import runtimes

# What is reconstructed has no part in the loss.
pytestmark = pytest.mark.filterwarnings("ignore:Gradients do not exist")

WIDTH = 5


class Misfit(cac_tf.scores.Score):
    """Reads an output that only this backbone gives, of the score's name."""

    NAME, READS = "misfit", ("misfit",)

    def call(self, misfit):
        return ops.mean(misfit, axis=-1)


class MisfitFarAway(cac_tf.scores.Score):
    """A backbone's own output beside the distances."""

    NAME, READS = "misfit_far_away", ("distances", "misfit")

    def call(self, distances, misfit):
        # The square of a large float32 is infinite.
        distance = ops.square(ops.min(distances, axis=-1))
        return distance * (1.0 + ops.mean(misfit, axis=-1))


def plain_backbone(num_logits):
    inputs = keras.Input([WIDTH])
    hidden = layers.Dense(6, activation="relu")(inputs)
    return keras.Model(inputs, layers.Dense(num_logits)(hidden))


def backbone_with_outputs(num_logits, names):
    """With how badly the inputs are reconstructed, by the dimension."""
    inputs = keras.Input([WIDTH])
    hidden = layers.Dense(6, activation="relu")(inputs)
    again = layers.Dense(WIDTH)(hidden)
    outputs = {
        "logits": layers.Dense(num_logits)(hidden),
        "misfit": ops.square(again - inputs),
        "features": layers.Dense(2, activation="tanh")(hidden),
        "reconstruction": again,
    }
    return keras.Model(inputs, {n: outputs[n] for n in names})


ALL = ("logits", "misfit", "features", "reconstruction")
# Number of classes, options of the head, outputs of the backbone, centers,
# and scores.
CASES = {
    "learnt": (3, {"learnt": True}, None, "own", ("gamma", "energy")),
    "learnt, fewer logits": (
        4,
        {"learnt": True, "width": 2},
        None,
        "own",
        ("gamma", "min_distance", "knn"),
    ),
    "learnt, wider logits": (
        3,
        {"learnt": True, "width": 5},
        None,
        "own",
        ("gamma",),
    ),
    "wider logits, anchors": (
        3,
        {"width": 5},
        None,
        "own",
        ("gamma", "min_distance", "max_logit"),
    ),
    "wider logits, class means": (
        3,
        {"width": 5},
        None,
        "means",
        ("gamma", "max_softmax", "knn"),
    ),
    "fewer logits, class means": (
        4,
        {"width": 2},
        None,
        "means",
        ("gamma", "min_distance", "knn"),
    ),
    "a dict, anchors": (
        3,
        {},
        ("logits", "reconstruction"),
        "own",
        ("gamma", "mahalanobis"),
    ),
    "a dict, class means": (
        3,
        {},
        ALL,
        "means",
        ("gamma", "vim", Misfit, MisfitFarAway),
    ),
    "a dict, wider logits": (
        3,
        {"width": 4},
        ("misfit", "logits"),
        "own",
        (Misfit, MisfitFarAway),
    ),
}


def calibrated(case, score):
    """A calibrated model, and inputs of which some are rejected."""
    num_classes, head, outputs, centers, _ = CASES[case]
    rng = np.random.default_rng(1)
    keras.utils.set_random_seed(2)
    num_logits = head.get("width", num_classes)
    model = cac_tf.OpenSetClassifier(
        backbone_with_outputs(num_logits, outputs)
        if outputs
        else plain_backbone(num_logits),
        [f"class {i}" for i in range(num_classes)],
        head=cac_tf.layers.AnchoredDistance(num_classes, 4.0, **head),
        score=score if isinstance(score, str) else score(),
    )
    model.build((None, WIDTH))
    x, labels = blobs(rng, num_classes)
    if centers == "means":
        # Around the logits that there are, so that all classes occur.
        logits = model.backbone.predict(x, verbose=0)
        logits = logits["logits"] if outputs else logits
        model.distance_head.assign_class_means(
            [logits[labels == i].mean(axis=0) for i in range(num_classes)]
        )
    else:
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9), cac_tf.losses.CACLoss()
        )
        model.fit(x, labels, epochs=4, verbose=0)
    model.fit_score(x, labels)
    inputs = np.float32(rng.normal(0, 2.5, (60, WIDTH)))
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
    answer = ask(images=sent)
    # Nothing of the backbone's own outputs is served.
    assert set(answer) == {
        *runtimes.SHARED,
        *("probabilities", "threshold", "model_version", "is_valid"),
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


@pytest.mark.parametrize("case", ["learnt", "a dict, class means"])
def test_the_other_signatures(tmp_path, case):
    """`classify` names every class; thresholds by class."""
    model, x = calibrated(case, CASES[case][-1][0])
    model.calibrate(x, true_positive_rate=0.5, by_class=True)
    path = tmp_path / "model.saved"
    runtimes.write(model, path)
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
        images=x, threshold=thresholds
    )
    np.testing.assert_array_equal(answer["class_id"], expected.class_id)
