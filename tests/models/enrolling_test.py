# SPDX-License-Identifier: Apache-2.0
"""Classes that are added to a model, taken from it, renamed and merged."""

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import scores
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.scores.enrolled import Enrolled
from tests.execution import BACKEND

ABLE = ("gamma", "knn", "mahalanobis", "min_distance", "relative_mahalanobis")
PLACES = 5 * np.eye(6, 4, dtype="float32") + np.float32([0.5, 0.5, 0.5, 0.5])
PLACES[4:] = [[-4, -4, 0, 0], [-4, 0, 0, -4]]


def examples_of(place, count, seed=0):
    """Examples around the place of a class; 0, 1 and 2 are known ones."""
    noise = np.random.default_rng([place, seed]).normal(size=(count, 4))
    return np.float32(PLACES[place] + noise)


@pytest.fixture(scope="module")
def known():
    """Inputs and labels."""
    x = np.concatenate([examples_of(k, 40) for k in range(3)])
    return x, np.repeat(np.arange(3), 40)


@pytest.fixture(scope="module")
def models(known):
    """A calibrated model of each score that can enroll, by name."""
    inputs = keras.Input([4])
    features = keras.layers.Dense(4, name="features")
    logits = keras.layers.Dense(3)
    classifier = keras.Model(inputs, logits(features(inputs)))
    features.set_weights([np.eye(4), np.zeros(4)])
    logits.set_weights([np.eye(4, 3), np.full(3, 0.25)])
    made = {}
    for name in ABLE:
        made[name] = cac_tf.OpenSetClassifier.from_classifier(
            classifier, known, class_names=["cat", "dog", "owl"], score=name
        )
        held_out = np.concatenate([examples_of(k, 60, 1) for k in range(3)])
        made[name].calibrate(held_out, true_positive_rate=0.95)
    return made


@pytest.fixture(scope="module")
def inputs():
    """Of all six classes, and some of none."""
    rest = np.random.default_rng(3).normal(size=(60, 4)) * 6
    of_classes = [examples_of(k, 20, 2) for k in range(6)]
    return np.concatenate([*of_classes, np.float32(rest)])


def outputs_of(model, x):
    """Everything that a model answers, without names."""
    found = model.predict_open_set(x)
    return {
        "class_id": found.class_id,
        "predicted": found.predicted_class_id,
        "score": found.unknown_score,
        "p_value": found.p_value,
    }


def assert_same_answers(one, other, x, rtol=0.0):
    """Whether two models answer alike, by the names of the classes."""
    mine, theirs = one.predict_open_set(x), other.predict_open_set(x)
    np.testing.assert_array_equal(mine.label, theirs.label)
    for name in ("unknown_score", "p_value"):
        np.testing.assert_allclose(
            getattr(mine, name), getattr(theirs, name), rtol=rtol, atol=rtol
        )


@pytest.mark.parametrize("name", ABLE)
def test_enrolled_class_takes_only_what_is_nearer_to_it(models, inputs, name):
    before = models[name]
    after = before.enroll({"lynx": examples_of(3, 20)}, accept_known=True)

    old, new = outputs_of(before, inputs), outputs_of(after, inputs)
    won = new["predicted"] == 3

    # The new class is recognized, and hardly a known input taken by it.
    assert won[60:80].all()
    assert (new["class_id"][60:80] == 3).mean() > 0.5
    assert won[:60].mean() < 0.05
    # And whatever it does not take has the same answer, to the last bit where
    # a product with more centers is no other product.
    rounding = 1e-5 if before.score.reads_distances else 0.0
    for key, values in old.items():
        np.testing.assert_allclose(
            new[key][~won], values[~won], rounding, rounding
        )
    assert before.class_names == ("cat", "dog", "owl")
    assert after.class_names == (*before.class_names, "lynx")


def test_score_of_an_enrolled_class_is_its_measure(models, inputs):
    shots = examples_of(3, 20)
    units = shots / np.linalg.norm(shots, axis=1, keepdims=True)
    x = examples_of(3, 10, 5)
    to_nearest = 1 - (x / np.linalg.norm(x, axis=1, keepdims=True)) @ units.T
    by_examples = models["knn"].enroll({"lynx": shots}, accept_known=True)
    found = by_examples.predict_scores(x)
    np.testing.assert_allclose(
        found.unknown_score, to_nearest.min(axis=1), atol=1e-6
    )

    # The mean of the logits, which are inputs and a bias, is the center.
    by_center = models["min_distance"].enroll({"lynx": shots})
    found = by_center.predict_scores(x)
    center = shots[:, :3].mean(axis=0) + 0.25
    np.testing.assert_allclose(by_center.centers[3], center, rtol=1e-6)
    apart = np.linalg.norm(x[:, :3] + 0.25 - center, axis=1)
    won = found.predicted_class_id == 3
    np.testing.assert_allclose(found.distances[:, 3], apart, rtol=1e-5)
    np.testing.assert_allclose(found.unknown_score[won], apart[won], rtol=1e-5)

    # The squared distance to the mean, with the covariance of the known.
    by_mean = models["mahalanobis"].enroll({"lynx": shots})
    statistics = models["mahalanobis"].statistics
    whitened = (x - shots.mean(axis=0)) @ statistics["whitening"]
    np.testing.assert_allclose(
        by_mean.predict_scores(x).unknown_score,
        np.square(whitened).sum(axis=1),
        rtol=1e-4,
    )


def parts_of(model):
    """What the answers of a model come from, by the names of its classes."""
    kept = model._enrolled()
    parts = {name: (one.rows, one.center) for name, one in kept.items()}
    statistics = {k: v for k, v in model.statistics.items() if k != "enrolled"}
    count = len(model.class_names) - len(kept)
    return {**parts, **statistics, "trained": model.centers[:count]}


def assert_same(one, other, rtol=0.0):
    """Whether two models are the same but for the order of their classes."""
    mine, theirs = parts_of(one), parts_of(other)
    assert set(mine) == set(theirs)
    for name, values in mine.items():
        for value, wanted in zip(values, theirs[name], strict=True):
            np.testing.assert_allclose(value, wanted, rtol, rtol, err_msg=name)


@pytest.mark.parametrize("name", ABLE)
def test_order_removal_and_merging_are_exact(models, name):
    model = models[name]
    lynx, puma = examples_of(3, 4), examples_of(4, 8)
    first = model.enroll({"lynx": lynx}, accept_known=True)
    both = first.enroll({"puma": puma}, accept_known=True)
    other = model.enroll({"puma": puma, "lynx": lynx}, accept_known=True)
    assert both.enrolled_classes == {"lynx": 4, "puma": 8}
    assert_same(both, other)
    assert_same(other.remove("puma"), first)

    removed = both.remove(["lynx", "puma"])
    assert_same(removed, model)
    (same, was) = (one.get_config() for one in (removed, model))
    for key in set(was) - {"journal", "name"}:
        assert same[key] == was[key], key

    merged = both.merge({"big cat": ["lynx", "puma"]})
    assert merged.enrolled_classes == {"big cat": 12}
    fitted = model.enroll(
        {"big cat": np.concatenate([lynx, puma])}, accept_known=True
    )
    assert_same(merged, fitted, rtol=1e-6)


def test_merging_keeps_as_many_examples_as_of_a_trained_class(known, models):
    rule = scores.get("knn").__class__(bank_size=60)
    model = models["knn"].with_score(rule, *known)
    model.set_threshold(0.1)
    lynx, puma = examples_of(3, 25), examples_of(4, 25)
    both = model.enroll({"lynx": lynx, "puma": puma}, accept_known=True)
    assert both.score.rows == (20, 20)
    merged = both.merge({"lynx": ["lynx", "puma"]})
    fitted = model.enroll(
        {"lynx": np.concatenate([lynx, puma])}, accept_known=True
    )
    for one in (merged, fitted):
        assert one.score.rows == (20,)
    np.testing.assert_array_equal(
        np.sort(merged.statistics["enrolled"], axis=0),
        np.sort(fitted.statistics["enrolled"], axis=0),
    )


def test_several_neighbours_are_of_one_class(known, models, inputs):
    rule = scores.get("knn").__class__(neighbours=3)
    model = models["knn"].with_score(rule, *known)
    model.set_threshold(0.1)
    # With two examples, the farther of them counts.
    shots = examples_of(3, 2)
    after = model.enroll({"lynx": shots}, accept_known=True)
    found, old = after.predict_scores(inputs), model.predict_scores(inputs)
    x = inputs / np.linalg.norm(inputs, axis=1, keepdims=True)
    bank = model.statistics["bank"]
    of_class = np.stack(
        [
            np.sort(x @ bank[model.statistics["labels"] == k].T)[:, -3]
            for k in range(3)
        ]
    )
    units = shots / np.linalg.norm(shots, axis=1, keepdims=True)
    own = 1 - (x @ units.T).min(axis=1)
    before = old.predicted_class_id
    wins = own < 1 - of_class[before, np.arange(len(x))]
    np.testing.assert_array_equal(
        found.predicted_class_id, np.where(wins, 3, before)
    )
    np.testing.assert_allclose(
        found.unknown_score, np.where(wins, own, old.unknown_score), atol=1e-6
    )


@pytest.mark.parametrize("name", ["knn", "gamma"])
def test_examples_are_compared_with_the_others(models, name):
    model, shots = models[name], examples_of(4, 6)
    larger = model.enroll(
        {"lynx": shots}, true_positive_rate=0.7, accept_known=True
    )
    # The same by six models, each made of the others.
    found = []
    for i in range(len(shots)):
        without = model.enroll(
            {"lynx": np.delete(shots, i, axis=0)}, accept_known=True
        )
        found.append(without.predict_scores(shots[i : i + 1]))
    assert all(one.predicted_class_id[0] == 3 for one in found)
    ordered = np.sort([one.unknown_score[0] for one in found])
    # Rank 5 of 6: above 5 of the scores, below one.
    assert ordered[4] < larger.threshold[3] < ordered[5]
    ((of_class,),) = (one["classes"].values() for one in larger.journal)
    assert of_class["examples"] == 6 and of_class["recognized"] == 5
    np.testing.assert_array_equal(
        larger.threshold[:3], np.float32(model.threshold)
    )
    assert of_class["threshold"] == pytest.approx(larger.threshold[3])


def test_renaming_changes_names_alone(models, inputs):
    larger = models["gamma"].enroll({"lynx": examples_of(3, 20)})
    renamed = larger.rename({"lynx": "puma", "dog": "wolf"})
    assert renamed.class_names == ("cat", "wolf", "owl", "puma")
    for key, values in outputs_of(larger, inputs).items():
        np.testing.assert_array_equal(outputs_of(renamed, inputs)[key], values)
    swapped = larger.rename({"lynx": "dog", "dog": "lynx"})
    assert swapped.class_names == ("cat", "lynx", "owl", "dog")


def test_journal_says_what_was_changed(models):
    model = models["min_distance"]
    assert (model.version, model.journal, model.enrolled_classes) == (1, [], {})
    changed = (
        model.enroll({"lynx": examples_of(3, 20), "ox": examples_of(4, 20)})
        .rename({"ox": "yak"})
        .merge({"beast": ["lynx", "yak"]})
        .remove("beast")
    )
    assert changed.version == 5
    entries = changed.journal
    assert [one["version"] for one in entries] == [2, 3, 4, 5]
    assert [one["change"] for one in entries] == [
        "enroll",
        "rename",
        "merge",
        "remove",
    ]
    assert set(entries[0]["classes"]) == {"lynx", "ox"}
    of_lynx = entries[0]["classes"]["lynx"]
    assert of_lynx["threshold"] == model.threshold
    assert of_lynx["examples"] == 20 and of_lynx["recognized"] >= 15
    assert entries[1]["classes"] == {"yak": {"before": "ox"}}
    assert entries[2]["classes"]["beast"]["examples"] == 40
    assert entries[0]["time"].endswith("+00:00")
    # What is handed out is a copy.
    entries.clear()
    assert changed.version == 5


@pytest.mark.parametrize("name", ["gamma", "knn"])
def test_enrolled_model_is_kept(models, inputs, name, tmp_path):
    larger = models[name].enroll(
        {"lynx": examples_of(3, 20), "ox": examples_of(4, 20)},
        true_positive_rate=0.9,
        accept_known=True,
    )
    path = tmp_path / "model.keras"
    larger.save(path)
    loaded = cac_tf.load_model(path)
    assert_same_answers(loaded, larger, inputs)
    assert loaded.journal == larger.journal
    assert loaded.enrolled_classes == {"lynx": 20, "ox": 20}
    assert_same_answers(loaded.remove("ox"), larger.remove("ox"), inputs)
    # Weights are those of these classes alone.
    with pytest.raises(ValueError, match="belong to a model"):
        larger.save_weights(tmp_path / "a.weights.h5")
        models[name].load_weights(tmp_path / "a.weights.h5")
    answers = larger.predict(inputs, verbose=0)
    np.testing.assert_array_equal(
        answers["class_id"], larger.predict_open_set(inputs).class_id
    )

    if BACKEND != "tensorflow":
        return
    import tensorflow as tf

    larger.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served"))
    found = served.signatures["serving_default"](tf.constant(inputs))
    np.testing.assert_array_equal(
        found["class_id"], larger.predict_open_set(inputs).class_id
    )


def test_other_scores_and_backbones_of_an_enrolled_model(known, models, inputs):
    larger = models["knn"].enroll(
        {"lynx": examples_of(3, 20)}, accept_known=True
    )
    twice = keras.Sequential([keras.Input([4]), keras.layers.Rescaling(2.0)])
    through = larger.with_backbone(twice)
    assert_same_answers(
        through.remove("lynx"), models["knn"].with_backbone(twice), inputs
    )
    np.testing.assert_array_equal(
        through.predict_open_set(inputs / 2).class_id,
        larger.predict_open_set(inputs).class_id,
    )
    assert through.journal == larger.journal
    with pytest.raises(ValueError, match="needs one logit per class"):
        larger.with_score("openmax", *known)


def test_scores_without_a_place_for_a_class_name_those_with_one(models, known):
    able = {name for name in scores.names() if scores.find(name).ENROLLS}
    assert able == set(ABLE)
    for name in ("max_logit", "energy", "openmax", "vim"):
        model = models["knn"].with_score(name, *known)
        model.set_threshold(1.0)
        with pytest.raises(ValueError, match="'knn', 'mahalanobis'"):
            model.enroll({"lynx": examples_of(3, 20)})
        with pytest.raises(ValueError, match="no class can be enrolled"):
            Enrolled(scores.get(name), 3, [20], [20])


def test_what_cannot_be_enrolled(models):
    model, shots = models["mahalanobis"], examples_of(3, 20)

    def refuses(match, classes, of=model, **options):
        with pytest.raises(ValueError, match=match):
            of.enroll(classes, **options)

    refuses("no class to enroll", {})
    refuses("already has a class 'cat'", {"cat": shots})
    refuses("cannot be named 'unknown'", {"unknown": shots})
    refuses("1 examples of 'lynx' are too few: at least 2", {"lynx": shots[:1]})
    refuses(
        "18 examples of 'lynx' are too few: at least 19 are needed to "
        "guarantee a threshold that accepts the fraction 0.95",
        {"lynx": shots[:18]},
        true_positive_rate=0.95,
    )
    refuses("must be in", {"lynx": shots}, true_positive_rate=1.5)
    refuses("NaN or infinity", {"lynx": np.full((3, 4), np.nan)})
    refuses("shape", {"lynx": np.zeros((3, 7), "float32")})
    # Inputs that are a known class, and which one.
    mixed = np.concatenate([examples_of(1, 12, 7), examples_of(3, 3)])
    found = model.predict_open_set(mixed)
    count = (~found.is_unknown).sum()
    refuses(
        f"accepts {count} of the 15 examples of 'lynx': {count} as 'dog'",
        {"lynx": mixed},
    )
    assert model.enroll({"lynx": mixed}, accept_known=True).version == 2

    # A bank from somewhere else.
    bank = models["knn"].statistics["bank"]
    bare = models["knn"].with_score("knn", statistics={"bank": bank})
    bare.set_threshold(0.1)
    refuses("has no labels", {"lynx": shots}, of=bare)

    # Outputs of another classifier.
    other = ComputedOutputs(
        {"logits": np.zeros((5, 3)), "features": np.zeros((5, 9))}
    )
    refuses("features have 4 columns; these have 9", {"lynx": other})
    without = model.with_score("min_distance")
    refuses("no threshold", {"lynx": shots}, of=without)
    by_class = models["min_distance"].with_score("min_distance")
    by_class.set_threshold([1.0, 2.0, 3.0])
    refuses("threshold for each class", {"lynx": shots}, of=by_class)
    larger = by_class.enroll({"lynx": shots}, true_positive_rate=0.9)
    np.testing.assert_array_equal(larger.threshold[:3], [1, 2, 3])


def test_what_cannot_be_removed_renamed_or_merged(models):
    model = models["gamma"].enroll(
        {"lynx": examples_of(3, 20), "ox": examples_of(4, 20)}
    )
    for match, change in [
        ("no enrolled class 'yak' to remove; enrolled are: lynx, ox", ("yak",)),
        ("'cat' was trained, not enrolled", ("cat",)),
        ("no class to remove", ()),
        ("listed twice", ("ox", "ox")),
    ]:
        with pytest.raises(ValueError, match=match):
            model.remove(change)
    for match, names in [
        ("no class 'yak' to rename", {"yak": "ox"}),
        ("must be unique; these are repeated: cat", {"ox": "cat"}),
        ("cannot be named 'unknown'", {"ox": "unknown"}),
        ("no class to rename", {}),
    ]:
        with pytest.raises(ValueError, match=match):
            model.rename(names)
    for match, classes in [
        ("at least two classes", {"beast": ["ox"]}),
        ("'cat' was trained", {"beast": ["ox", "cat"]}),
        ("already has a class 'dog'", {"dog": ["ox", "lynx"]}),
        ("each used only once", {"a": ["ox", "lynx"], "b": ["ox", "lynx"]}),
        ("no classes to merge", {}),
    ]:
        with pytest.raises(ValueError, match=match):
            model.merge(classes)


def test_statistics_of_another_model_are_refused(models):
    model = models["knn"]
    larger = model.enroll({"lynx": examples_of(3, 20)}, accept_known=True)
    config = {
        "class_names": larger.class_names,
        "score": larger.score,
        "centers": larger.centers,
    }
    for enrolled in (np.eye(3, 4), np.eye(20, 3)):
        with pytest.raises(ValueError, match="belong to another model"):
            cac_tf.OpenSetClassifier(
                larger.classifier,
                **config,
                statistics={**model.statistics, "enrolled": enrolled},
            )
    with pytest.raises(ValueError, match="not the statistics of the score"):
        cac_tf.OpenSetClassifier(
            larger.classifier, **config, statistics={"mean": np.eye(4)}
        )
    with pytest.raises(ValueError, match="fit the original score"):
        larger.score.start(None)
