# SPDX-License-Identifier: Apache-2.0
"""Groups of what a model rejects, without being told how many there are.

    KERAS_BACKEND=jax python benchmarks/grouping.py banking77 TEXTS
    KERAS_BACKEND=jax python benchmarks/grouping.py cifar100 FEATURES.npz

TEXTS has banking77.csv (split, label, text) and banking77_minilm.npy, the
sentence vectors of its rows. FEATURES.npz has `features`, `labels` and `names`
of the 10,000 test images of CIFAR100 by a network trained on ImageNet (which
knows many of these classes). Half of the classes are known, drawn anew; a head
with a hidden layer is trained by CAC, its score is knn, and the threshold
accepts 95 % of known validation data. What it rejects of the test data is
grouped: all sentences; of CIFAR100 20 images of each known class, of which 60
are trained on and 20 set the threshold, and all 100 of each unknown one.

Accuracy is that of the best assignment of groups to classes; what is in no
group is wrong, and one more group for NMI and ARI. "unknown" counts the
rejected inputs of unknown classes alone (known ones are grouped with them);
"all" counts the known ones too, each of its own class. What
`cac_tf.open_world.group` has in it was chosen by "left out": half of the known
classes are taken for unknown ones, no unknown class is looked at. Writes
benchmarks/results/grouping.json; what is there is not measured again.
"""

import argparse
import contextlib
import csv
import json
import pathlib
import time
import warnings
from unittest import mock

import numpy as np
import sklearn.cluster
from few_examples import outputs_of
from frozen_head import trained_head
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics import normalized_mutual_info_score

from cac_tf import atomic_files
from cac_tf.data.class_splits import drawn_classes
from cac_tf.decision.calibration import threshold_for_true_positive_rate
from cac_tf.experiments.environment import environment
from cac_tf.hyperparameters import SCORE_OF_VECTORS
from cac_tf.labels import UNKNOWN
from cac_tf.methods.presets import vectors
from cac_tf.models import OpenSetClassifier
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.open_world import grouping

RESULT = pathlib.Path(__file__).parent / "results" / "grouping.json"
DRAWS, RATE = {"banking77": 5, "cifar100": 3}, 0.95
# As published: BERT, fine-tuned, of all 77 classes, whose number is known;
# NMI, ARI and accuracy.
PUBLISHED = {
    "USNID, 50 % of the classes labelled": (0.851, 0.638, 0.733),
    "USNID, no labels": (0.753, 0.433, 0.548),
    "k-means, no labels": (0.493, 0.130, 0.286),
}
# Of the settings in `grouping`, those that are compared on known classes.
SETTINGS = {
    "as it is": {},
    "20 components": {"_DIMENSIONS": 20},
    "50 components": {"_DIMENSIONS": 50},
    "4 neighbors": {"_NEIGHBORS": 4},
    "groups of at least 10": {"_FEWEST": 10},
    "dense places stay apart": {"_ONE_GROUP": 2.0},
    "one group from .35": {"_ONE_GROUP": 0.35},
    "one group from .55": {"_ONE_GROUP": 0.55},
}


def banking77(folder):
    """Vectors, texts of classes, and the part of each row."""
    with open(folder / "banking77.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    x = np.float32(np.load(folder / "banking77_minilm.npy"))
    y = np.array([row["label"] for row in rows])
    return x, y, np.array([row["split"] for row in rows])


def cifar100(path):
    """As `banking77`; the parts are drawn."""
    with np.load(path) as arrays:
        x = np.float32(arrays["features"])
        y = arrays["names"][arrays["labels"]]
    part = np.full(len(x), "test", "U5")
    rng = np.random.default_rng(0)
    for name in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == name))
        part[rows[:60]], part[rows[60:80]] = "train", "dev"
    return x, y, part


def rejected_by(x, y, fit, dev, test, seed):
    """What a model of the classes of `fit` rejects of `test`.

    Args:
        x, y: all vectors and texts of classes.
        fit, dev, test: rows.
        seed: of the training.

    Returns:
        Dict: `embedding` and `hidden` features, `y` and `is_known`.
    """
    names = np.unique(y[fit])
    mean, std = x[fit].mean(axis=0), x[fit].std(axis=0) + 1e-6
    recipe = vectors(len(fit))
    labels = np.searchsorted(names, y[fit])
    head = trained_head(
        (x[fit] - mean) / std,
        labels,
        len(names),
        hidden=256,
        magnitude=recipe["magnitude"],
        epochs=recipe["epochs"],
        learning_rate=recipe["learning_rate"],
        batch_size=recipe["batch_size"],
        seed=seed,
    )
    outputs = [
        outputs_of(head, (x[rows] - mean) / std) for rows in (fit, dev, test)
    ]
    model = OpenSetClassifier.from_outputs(
        head,
        outputs[0],
        labels,
        class_names=[str(name) for name in names],
        score=SCORE_OF_VECTORS,
        magnitude=recipe["magnitude"],
    )
    scores = [
        model.predict_scores(ComputedOutputs(one)).unknown_score
        for one in outputs[1:]
    ]
    is_out = scores[1] > threshold_for_true_positive_rate(scores[0], RATE)
    return {
        "embedding": ((x[test] - mean) / std)[is_out],
        "hidden": outputs[2]["features"][is_out],
        "y": y[test][is_out],
        "is_known": np.isin(y[test][is_out], names),
    }


def rows_of(x, y, part, draw, is_left_out):
    """Rows to fit, to set the threshold, and to reject from."""
    known = drawn_classes(np.unique(y), 0.5, draw)
    of = {name: np.flatnonzero(part == name) for name in np.unique(part)}
    if not is_left_out:
        is_known = np.isin(y, known)
        test = of["test"]
        if len(x) == 10_000:  # All of an unknown class is for the test.
            test = np.union1d(test, np.flatnonzero(~is_known))
        return (*(r[is_known[r]] for r in (of["train"], of["dev"])), test)
    # Of the training data alone.
    rng = np.random.default_rng(1000 + draw)
    own = rng.permutation(known)[: len(known) // 2]
    fit, test = [], []
    for name in known:
        rows = rng.permutation(of["train"][y[of["train"]] == name])
        some = min(40, len(rows) // 3 if name in own else len(rows))
        test.append(rows[:some])
        if name in own:
            fit.append(rows[some:])
    dev = of["dev"][np.isin(y[of["dev"]], own)]
    return np.concatenate(fit), dev, np.concatenate(test)


def accuracy_of(y, groups):
    """Accuracy of the best assignment of groups to classes."""
    _, y = np.unique(y, return_inverse=True)
    counts = np.zeros((y.max() + 1, groups.max(initial=0) + 1))
    grouped = groups != UNKNOWN
    np.add.at(counts, (y[grouped], groups[grouped]), 1)
    return counts[linear_sum_assignment(-counts)].sum() / len(y)


def measured(rejected, groups):
    """All measures of groups."""
    found = {"groups": int(groups.max(initial=UNKNOWN)) + 1}
    is_unknown = ~rejected["is_known"]
    for name, chosen in (("unknown", is_unknown), ("all", slice(None))):
        y, own = rejected["y"][chosen], groups[chosen]
        found[name] = {
            "inputs": len(y),
            "classes": len(np.unique(y)),
            "grouped": float(np.mean(own != UNKNOWN)),
            "nmi": normalized_mutual_info_score(y, own),
            "ari": adjusted_rand_score(y, own),
            "accuracy": accuracy_of(y, own),
        }
    return json.loads(
        json.dumps(found, default=float),
        parse_float=lambda text: round(float(text), 4),
    )


def grouped(features, **settings):
    """Groups by `open_world.group`, with other settings in it."""
    with contextlib.ExitStack() as patched:
        for name, value in settings.items():
            patched.enter_context(mock.patch.object(grouping, name, value))
        return grouping.group(features).group


def dense_places(features):
    """Those that HDBSCAN finds, and nothing more."""
    directions = grouping._unit(features - features.mean(axis=0))
    points = grouping._reduced(directions, np.arange(len(features)))
    hdbscan = sklearn.cluster.HDBSCAN(
        min_cluster_size=grouping._FEWEST,
        min_samples=grouping._NEIGHBORS,
        copy=True,
    )
    return hdbscan.fit_predict(np.float64(points))


def all_of_them(features):
    """Each input in the nearest group, however far."""
    means_of = grouping._means

    def without_end(*arguments):
        return means_of(*arguments)[0], -2.0

    with mock.patch.object(grouping, "_means", without_end):
        return grouping.group(features).group


def k_means(features, number):
    """Told the number; of the same directions, without components."""
    directions = grouping._unit(features - features.mean(axis=0))
    return sklearn.cluster.KMeans(number, n_init=5, random_state=0).fit_predict(
        directions
    )


def measure(rejected):
    """By the way of grouping."""
    x = rejected["embedding"]
    number = len(np.unique(rejected["y"][~rejected["is_known"]]))
    begin = time.perf_counter()
    found = {"group": measured(rejected, grouped(x))}
    found["seconds"] = round(time.perf_counter() - begin, 2)
    found |= {
        "group, hidden layer": measured(rejected, grouped(rejected["hidden"])),
        "group, all to the nearest": measured(rejected, all_of_them(x)),
        "HDBSCAN alone": measured(rejected, dense_places(x)),
        "k-means, told the number": measured(rejected, k_means(x, number)),
    }
    return found


def measure_settings(rejected):
    """By the settings."""
    return {
        **{
            name: measured(rejected, grouped(rejected["embedding"], **settings))
            for name, settings in SETTINGS.items()
        },
        "hidden layer": measured(rejected, grouped(rejected["hidden"])),
    }


def means_of(runs):
    """Mean over the draws, by name and measure."""
    if isinstance(runs[0], dict):
        return {name: means_of([run[name] for run in runs]) for name in runs[0]}
    return round(float(np.mean(runs)), 4)


def main():
    """Measures what is not there yet, and writes after each draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=tuple(DRAWS))
    parser.add_argument("data", type=pathlib.Path)
    given = parser.parse_args()
    # Of classes without a correct example.
    warnings.simplefilter("ignore", UserWarning)
    data = {"banking77": banking77, "cifar100": cifar100}[given.name](
        given.data
    )
    found = {}
    if RESULT.exists():
        found = json.loads(RESULT.read_text(encoding="utf-8"))
    found["published"] = PUBLISHED
    own = found.setdefault("data", {}).setdefault(given.name, {})
    for kind, ways in (
        ("left out", measure_settings),
        ("test", measure),
    ):
        runs = own.setdefault(kind, {}).setdefault("runs", {})
        for draw in range(DRAWS[given.name]):
            if str(draw) in runs:
                continue
            rows = rows_of(*data, draw, kind == "left out")
            runs[str(draw)] = ways(rejected_by(*data[:2], *rows, draw))
            own[kind]["mean"] = means_of([*runs.values()])
            found["environment"] = environment()
            atomic_files.write_json(RESULT, found)
            print(kind, draw, next(iter(runs[str(draw)].values())), flush=True)


if __name__ == "__main__":
    main()
