# SPDX-License-Identifier: Apache-2.0
"""Few examples of a class: how well unknown classes are told, and whether as
many known inputs are accepted as was asked.

    KERAS_BACKEND=jax python benchmarks/few_examples.py DATA [--name=banking77]

DATA is an .npz file with x_train, y_train, x_test and y_test, vectors and their
classes; or a folder with banking77.csv (split, label, text) and
banking77_minilm.npy, the sentence vectors of its rows. (The photos are 500
training and 400 test images of each class of CIFAR10, by
`training.computed_features` with an EfficientNet-Lite0 at 192 pixels:
--name=cifar10 --linear.) Half of the classes are known, and of these 5, 20 or
100 training examples are there, all drawn anew five times. Heads by CAC and
cross-entropy, with the recipe of vectors; the threshold for 95 % comes from
what `cac-train` takes: of fewer than 20 examples a class from five more
trainings, each without a fifth of the examples, else from a fifth that is set
apart.
Writes benchmarks/results/few_examples.json, by the name; what is there already
is not measured again. (JAX repeats small trainings at half the cost of
TensorFlow.)
"""

import argparse
import csv
import json
import pathlib
import warnings

import keras
import numpy as np
from frozen_head import LOSSES
from frozen_head import head_of_vectors

from cac_tf import atomic_files
from cac_tf import scores
from cac_tf.data import Examples
from cac_tf.data.class_splits import drawn_classes
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.decision import rule
from cac_tf.decision.accepted_share import AcceptedShare
from cac_tf.decision.calibration import threshold_for_true_positive_rate
from cac_tf.experiments.cross_fitting import FOLDS
from cac_tf.experiments.cross_fitting import folds_of
from cac_tf.experiments.environment import environment
from cac_tf.metrics import auroc
from cac_tf.metrics import macro_f1
from cac_tf.models import OpenSetClassifier
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.models.features import with_features

RESULT = pathlib.Path(__file__).parent / "results" / "few_examples.json"
COUNTS, DRAWS, RATE = (5, 20, 100), 5, 0.95
SCORES = ("gamma", "max_logit", "relative_mahalanobis", "knn", "vim")
HIDDEN = 256
MEASURES = ("auroc", "macro_f1", "known accepted", "unknown accepted")


def parts_of(path):
    """Training and test part, as inputs and texts of classes."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return tuple(
                (arrays[f"x_{part}"], arrays[f"y_{part}"].astype(str))
                for part in ("train", "test")
            )
    with open(path / "banking77.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    x = np.float32(np.load(path / "banking77_minilm.npy"))
    split = np.array([row["split"] for row in rows])
    y = np.array([row["label"] for row in rows])
    return tuple((x[split == p], y[split == p]) for p in ("train", "test"))


def drawn_dataset(parts, of_a_class, draw):
    """`OpenSetDataset` of some examples of half of the classes."""
    (x, y), (x_test, y_test) = parts
    names = sorted(set(y))
    known = drawn_classes(names, 0.5, draw)
    rng = np.random.default_rng(draw)
    rows = np.concatenate(
        [rng.permutation(np.flatnonzero(y == k))[:of_a_class] for k in known]
    )
    return make_open_set_dataset(
        "drawn",
        Examples(x[rows], np.searchsorted(names, y[rows])),
        names,
        [names.index(k) for k in known],
        test=Examples(x_test, np.searchsorted(names, y_test)),
        split_seed=draw,
    )


def outputs_of(head, x):
    """Features and logits; not by `predict`, which would compile once more."""
    both, _ = with_features(head)
    values = map(keras.ops.convert_to_numpy, both(x))
    return dict(zip(("features", "logits"), values, strict=True))


class Trained:
    """A head on some examples, normalized, and all scores fitted to them.

    Args:
        dataset: gives the classes.
        train: `Examples`.
        loss, seed, hidden: of the training.
    """

    def __init__(self, dataset, train, loss, seed, hidden):
        x = np.float32(train.images)
        self._mean, self._std = x.mean(axis=0), x.std(axis=0) + 1e-6
        self.head, recipe = head_of_vectors(
            self._normalized(x),
            train.labels,
            len(dataset.class_names),
            loss=loss,
            hidden=hidden,
            seed=seed,
        )
        outputs = outputs_of(self.head, self._normalized(x))
        self.model = OpenSetClassifier.from_outputs(
            self.head,
            outputs,
            train.labels,
            class_names=dataset.class_names,
            score="gamma",
            magnitude=recipe["magnitude"],
        )
        self.rules = [scores.get(name) for name in SCORES]
        self.statistics, problems = self.model.fit_scores(
            self.rules, ComputedOutputs(outputs), train.labels
        )
        assert not problems

    def _normalized(self, x):
        return (x - self._mean) / self._std

    def scores_of(self, x):
        """Unknown scores of inputs by name, and their predicted classes."""
        names = {name for rule in self.rules for name in rule.READS}
        ((outputs, *_),) = self.model.iterate_outputs(
            ComputedOutputs(outputs_of(self.head, self._normalized(x))),
            names=(*names, "predicted_class_id"),
        )
        found = {
            rule.name: np.asarray(
                rule.of_arrays(
                    *rule.arguments_of(outputs), **self.statistics[rule.name]
                )
            )
            for rule in self.rules
        }
        return found, outputs["predicted_class_id"]


def calibration_scores(dataset, trained, loss, draw, hidden):
    """Unknown scores of known examples that were not trained on, by score."""
    if dataset.validation.size:
        return trained.scores_of(dataset.validation.images)[0]
    train, folds = dataset.train, folds_of(dataset.train.labels, draw)
    found = {name: np.empty(train.size, "float32") for name in SCORES}
    for fold in range(FOLDS):
        rest = train.take(np.flatnonzero(folds != fold))
        without = Trained(dataset, rest, loss, draw, hidden)
        held, _ = without.scores_of(train.images[folds == fold])
        for name, values in held.items():
            found[name][folds == fold] = values
    return found


def measure(dataset, loss, draw, hidden):
    """All measures of one draw, by score."""
    trained = Trained(dataset, dataset.train, loss, draw, hidden)
    calibration = calibration_scores(dataset, trained, loss, draw, hidden)
    truth = np.r_[
        dataset.known_test.labels, np.full(dataset.unknown_test.size, -1)
    ]
    x = np.r_[dataset.known_test.images, dataset.unknown_test.images]
    by_score, predicted = trained.scores_of(x)
    found = {}
    for name, values in by_score.items():
        threshold = threshold_for_true_positive_rate(calibration[name], RATE)
        accepted = rule.accepts(values, np.float32(threshold))
        known = truth >= 0
        share = AcceptedShare(
            int((calibration[name] <= threshold).sum()), len(calibration[name])
        )
        found[name] = {
            "auroc": auroc(values[known], values[~known]),
            "macro_f1": macro_f1(
                truth,
                np.where(accepted, predicted, -1),
                len(dataset.class_names),
            ),
            "known accepted": float(accepted[known].mean()),
            "unknown accepted": float(accepted[~known].mean()),
            "calibration examples": share.examples,
            "interval of the share": share.interval,
        }
    return json.loads(
        json.dumps(found), parse_float=lambda text: round(float(text), 4)
    )


def means_of(runs):
    """Mean and standard deviation of each measure over the draws."""
    groups = {}
    for key, by_score in runs.items():
        for name, measures in by_score.items():
            group = f"{key.rsplit(', ', 1)[0]}, {name}"
            groups.setdefault(group, []).append(measures)
    return {
        group: {
            measure: [
                round(float(np.mean([one[measure] for one in draws])), 4),
                round(float(np.std([one[measure] for one in draws])), 4),
            ]
            for measure in MEASURES
        }
        for group, draws in groups.items()
    }


def main():
    """Measures what is not there yet, and writes after each draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--name", default="banking77")
    parser.add_argument(
        "--linear",
        action="store_true",
        help="no hidden layer, as cac-train behind a network of images",
    )
    given = parser.parse_args()
    hidden = None if given.linear else HIDDEN
    # Of few examples.
    warnings.simplefilter("ignore", UserWarning)
    parts = parts_of(given.data)
    found = {}
    if RESULT.exists():
        found = json.loads(RESULT.read_text(encoding="utf-8"))
    found["asked"] = RATE
    own = found.setdefault("data", {}).setdefault(given.name, {})
    runs = own.setdefault("runs", {})
    for draw in range(DRAWS):
        for of_a_class in COUNTS:
            dataset = drawn_dataset(parts, of_a_class, draw)
            for loss in LOSSES:
                key = f"{loss}, {of_a_class} a class, draw {draw}"
                if key in runs:
                    continue
                runs[key] = measure(dataset, loss, draw, hidden)
                own["mean and standard deviation"] = means_of(runs)
                found["environment"] = environment()
                atomic_files.write_json(RESULT, found)
                print(key, runs[key]["gamma"], flush=True)


if __name__ == "__main__":
    main()
