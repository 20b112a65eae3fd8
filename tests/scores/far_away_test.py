# SPDX-License-Identifier: Apache-2.0
"""Which scores reject what is far from everything known.

`python -m tests.scores.far_away_test` writes benchmarks/results/far_away.json,
from which benchmarks/tables.py makes the table of docs/scores.md.
"""

import pathlib

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import atomic_files
from cac_tf import scores
from cac_tf.experiments.environment import environment
from cac_tf.scores.registry import common_names
from tests.conftest import ROOT
from tests.conftest import blobs

RESULT = pathlib.Path(ROOT) / "benchmarks" / "results" / "far_away.json"
SEEDS = (0, 1, 2)
RADII = (10, 30, 100, 1000)
# As docs/scores.md says. Known inputs are about 3 from the origin.
FAIL_SAFE = ("mahalanobis", "min_distance", "vim")
# Those that any classifier has, but for those of a class "unknown" that this
# one was not trained with.
NAMES = [n for n in common_names() if not n.startswith("unknown_class")]
# They see directions of features alone.
SAFE_IN_MOST_DIRECTIONS = ("knn",)


def classifier():
    """An ordinary network that was trained by cross-entropy on three blobs."""
    x, y = blobs(np.random.default_rng(0), rows=600)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input([5]),
            layers.Dense(16, activation="relu"),
            layers.Dense(16, activation="relu"),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy"
    )
    model.fit(x, y, epochs=12, batch_size=64, verbose=0)
    return model, x, y


def rejected(seed):
    """Share of inputs at each radius that each score rejects.

    The threshold accepts 95 % of known inputs that were not trained on.
    """
    keras.utils.set_random_seed(seed)
    network, x, y = classifier()
    model = cac_tf.OpenSetClassifier.from_classifier(network, (x, y))
    rules = [scores.get(name) for name in NAMES]
    statistics, problems = model.fit_scores(rules, x, y)
    assert problems == {}
    names = {name for rule in rules for name in rule.READS}

    def unknown_scores(inputs):
        batches = model.iterate_outputs(
            np.float32(inputs), batch_size=10**6, names=names
        )
        ((outputs, *_),) = batches
        return {
            rule.name: rule.of_arrays(
                *rule.arguments_of(outputs), **statistics.get(rule.name, {})
            )
            for rule in rules
        }

    known = unknown_scores(blobs(np.random.default_rng(9), rows=600)[0])
    directions = np.random.default_rng(1).standard_normal((2000, 5))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    far = [unknown_scores(radius * directions) for radius in RADII]
    return {
        name: [np.mean(f[name] > np.quantile(values, 0.95)) for f in far]
        for name, values in known.items()
    }


def means_over_seeds():
    found = [rejected(seed) for seed in SEEDS]
    return {
        name: np.mean([shares[name] for shares in found], axis=0)
        for name in found[0]
    }


def keep(means):
    """Writes the shares, the safest score first."""
    rows = sorted(means.items(), key=lambda row: (-row[1].mean(), row[0]))
    atomic_files.write_json(
        RESULT,
        {
            "radii": list(RADII),
            "seeds": list(SEEDS),
            "rejected": {name: shares.tolist() for name, shares in rows},
            "environment": environment(),
        },
    )


@pytest.fixture(scope="module")
def shares():
    return rejected(0)


def test_safe_scores_reject_what_is_far_away(shares):
    for name in FAIL_SAFE:
        assert min(shares[name]) > 0.9, name
        # The farther, the safer.
        assert shares[name][-1] > 0.995, name
    for name in SAFE_IN_MOST_DIRECTIONS:
        assert min(shares[name]) > 0.9, name


def test_scores_of_the_size_of_logits_do_not(shares):
    """What the docs warn of is so."""
    for name in ("energy", "max_logit", "max_softmax", "nnguide"):
        assert shares[name][-1] < 0.2, name


@pytest.mark.filterwarnings("ignore:These classes keep their anchors")
def test_the_default_is_safe(rng):
    def default(classifier, shape):
        # Labels are what it says: ViM wants it to be right.
        x = np.float32(rng.standard_normal((60, *shape)))
        y = np.asarray(classifier(x)).argmax(axis=1)
        make = cac_tf.OpenSetClassifier.from_classifier
        return make(classifier, (x, y)).score.name

    layers = keras.layers
    network = keras.Sequential(
        [keras.Input([5]), layers.Dense(8), layers.Dense(3)]
    )
    assert default(network, [5]) in FAIL_SAFE
    inputs = keras.Input([6, 1])
    logits = layers.GlobalAveragePooling1D()(
        layers.Conv1D(3, 2, name="map")(inputs)
    )
    without_features = keras.Model(inputs, logits)
    assert default(without_features, [6, 1]) == "min_distance"
    one_feature = keras.Sequential([keras.Input([1]), layers.Dense(3)])
    assert default(one_feature, [1]) == "min_distance"


def test_the_docs_name_every_score():
    text = (ROOT / "docs" / "scores.md").read_text("utf-8")
    for name in NAMES:
        assert f"| `{name}` |" in text, name


if __name__ == "__main__":
    keep(means_over_seeds())
