# SPDX-License-Identifier: Apache-2.0
"""Classes enrolled without training, beside a training with everything.

    KERAS_BACKEND=jax python benchmarks/enrolling.py DATA --name=banking77

DATA is an .npz file with features and labels, of which 60, 20 and 20 of a
hundred examples of a class are for training, validation and test (10,000
CIFAR100 images through EfficientNet-Lite0); or a folder with banking77.csv and
banking77_minilm.npy, as of few_examples.py, whose training part gives a fifth
for validation. Some classes are trained; then ten at a time are enrolled, from
5, 20 or as many examples as there are, and ten or fewer never. Beside them the
nearest class mean and, after the last step, a head that is trained with the
same examples of all classes. All thresholds accept 95 % of the trained
classes' validation part. Writes benchmarks/results/enrolling.json, by the name;
what is there already is not measured again.
"""

import argparse
import json
import pathlib
import warnings

import keras
import numpy as np
from few_examples import HIDDEN
from few_examples import outputs_of
from few_examples import parts_of
from frozen_head import LOSSES
from frozen_head import head_of_vectors

from cac_tf import atomic_files
from cac_tf.decision.calibration import threshold_for_true_positive_rate
from cac_tf.experiments.environment import environment
from cac_tf.models import OpenSetClassifier
from cac_tf.models.computed_outputs import ComputedOutputs

RESULT = pathlib.Path(__file__).parent / "results" / "enrolling.json"
RATE, STEP = 0.95, 10
# Trained classes, enrolled ones, examples of each, losses.
PLANS = {
    "banking77": (38, 30, (5, 20, 100), LOSSES),
    "cifar100": (50, 40, (5, 20, 60), LOSSES[:1]),
}
DRAW = 0
# A score, and the layer of the features that it reads.
WAYS = {
    "knn of the embedding": ("knn", "embedding"),
    "knn of the features": ("knn", None),
    "mahalanobis of the embedding": ("mahalanobis", "embedding"),
    "min_distance": ("min_distance", None),
}
MEASURES = (
    "known accuracy",
    "enrolled accuracy",
    "known accepted and right",
    "enrolled accepted and right",
    "others rejected",
    "harmonic mean",
    "known decisions changed",
)


class Data:
    """Vectors of classes in an order of the draw: trained ones come first."""

    def __init__(self, path, draw):
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                self.x, y = arrays["features"], arrays["labels"]
            is_test = np.zeros(len(y), bool)
            shares = (0.6, 0.8)
        else:
            (x, y), (x_test, y_test) = parts_of(path)
            self.x, y = np.concatenate([x, x_test]), np.r_[y, y_test]
            is_test = np.arange(len(y)) >= len(x)
            shares = (0.8, 1.0)
        _, y = np.unique(y, return_inverse=True)
        rng = np.random.default_rng(draw)
        self.y = rng.permutation(y.max() + 1)[y]
        self.part = np.where(is_test, 2, 0)
        for k in range(self.y.max() + 1):
            rows = np.flatnonzero((self.y == k) & ~is_test)
            places = (np.arange(len(rows)) + 0.5) / len(rows)
            part = np.searchsorted(shares, places)
            self.part[rng.permutation(rows)] = part

    def rows(self, part, classes, most=None):
        """Rows of a part and of some classes, at most so many of each."""
        return np.concatenate(
            [
                np.flatnonzero((self.part == part) & (self.y == k))[:most]
                for k in classes
            ]
        )


class Head:
    """A head on normalized vectors, with outputs for all of them."""

    def __init__(self, data, rows, num_classes, loss, seed):
        mean, std = data.x[rows].mean(axis=0), data.x[rows].std(axis=0)
        self.embedding = np.float32((data.x - mean) / np.maximum(std, 1e-6))
        self.head, _ = head_of_vectors(
            self.embedding[rows],
            data.y[rows],
            num_classes,
            loss=loss,
            hidden=HIDDEN,
            seed=seed,
        )
        # (Anything before the head, so that the embedding is a layer's.)
        inputs = keras.Input(self.embedding.shape[1:])
        before = keras.layers.Identity(name="embedding")(inputs)
        self.classifier = keras.Model(inputs, self.head(before))
        self.outputs = outputs_of(self.head, self.embedding)

    def of_rows(self, rows, layer):
        """`ComputedOutputs` of some rows, with the features of a layer."""
        features = self.outputs["features"]
        if layer == "embedding":
            features = self.embedding
        return ComputedOutputs(
            {
                "logits": self.outputs["logits"][rows],
                "features": features[rows],
            }
        )

    def model(self, data, rows, held_out, num_classes, way):
        """A calibrated model of a way in `WAYS`."""
        score, layer = WAYS[way]
        return OpenSetClassifier.from_classifier(
            self.classifier,
            self.of_rows(rows, layer),
            data.y[rows],
            class_names=[f"class {k}" for k in range(num_classes)],
            score=score,
            features_layer=layer,
            validation_data=self.of_rows(held_out, layer),
            copy=False,
        )


def measures_of(predicted, accepted, truth, trained, classes):
    """What is measured of decisions about test rows.

    Args:
        predicted, accepted: (n,) classes, and whether they are accepted.
        truth: (n,) classes.
        trained, classes: how many were trained, and how many there are now.
    """
    right, known = predicted == truth, (truth >= 0) & (truth < trained)
    enrolled = (truth >= trained) & (truth < classes)
    found = {
        "known accuracy": right[known].mean(),
        "enrolled accuracy": right[enrolled].mean(),
        "known accepted and right": (right & accepted)[known].mean(),
        "enrolled accepted and right": (right & accepted)[enrolled].mean(),
        "others rejected": 1 - accepted[truth < 0].mean(),
    }
    of_decisions = list(found.values())[2:]
    found["harmonic mean"] = 3 / sum(1 / max(v, 1e-6) for v in of_decisions)
    return found


def answers_of(model, computed):
    """Scores, predicted classes and decisions."""
    scores = model.predict_scores(computed)
    found = model.decide(scores)
    return found.predicted_class_id, ~found.is_unknown


def nearest_mean(head, data, rows, held_out, test, num_classes):
    """Answers by the nearest class mean of the embedding."""
    x = head.embedding
    means = np.stack(
        [x[rows[data.y[rows] == k]].mean(axis=0) for k in range(num_classes)]
    )

    def distances(of):
        squares = np.square(x[of]).sum(axis=-1)[:, None] - 2 * x[of] @ means.T
        squares += np.square(means).sum(axis=-1)
        return np.sqrt(np.maximum(squares, 0.0))

    threshold = threshold_for_true_positive_rate(
        distances(held_out).min(axis=-1), RATE
    )
    found = distances(test)
    return found.argmin(axis=-1), found.min(axis=-1) <= threshold


def measure(data, plan, loss, done, tell):
    """Measures by number of examples, way and number of classes.

    Args:
        data: `Data`.
        plan: of `PLANS`.
        loss: of the training.
        done: keys of steps that are not measured again.
        tell: function of a key and its measures.
    """
    trained, more, counts, _ = plan
    old, held_out = (data.rows(part, range(trained)) for part in (0, 1))
    never = data.rows(2, range(trained + more, data.y.max() + 1))
    base = Head(data, old, trained, loss, DRAW)
    models = {
        way: base.model(data, old, held_out, trained, way) for way in WAYS
    }
    steps = range(trained + STEP, trained + more + 1, STEP)
    for count in counts:
        keys = [f"{loss}, {count} examples, {one} classes" for one in steps]
        if set(keys) <= done:
            continue
        current = dict(models)
        for key, classes in zip(keys, steps, strict=True):
            added = range(classes - STEP, classes)
            rows = np.r_[old, data.rows(0, range(trained, classes), count)]
            test = np.r_[data.rows(2, range(classes)), never]
            truth = np.where(data.y[test] < classes, data.y[test], -1)
            known = truth >= 0
            known &= truth < trained
            of_step = {}
            for way, model in current.items():
                layer = WAYS[way][1]
                shots = {
                    f"class {k}": base.of_rows(data.rows(0, [k], count), layer)
                    for k in added
                }
                current[way] = model.enroll(shots, accept_known=True)
                computed = base.of_rows(test, layer)
                now = answers_of(current[way], computed)
                before = answers_of(models[way], computed)
                of_step[way] = measures_of(*now, truth, trained, classes)
                was, is_now = (
                    np.where(accepted, predicted, -1)
                    for predicted, accepted in (before, now)
                )
                changed = (was != is_now)[known].mean()
                of_step[way]["known decisions changed"] = changed
            answers = nearest_mean(base, data, rows, held_out, test, classes)
            of_step["nearest class mean of the embedding"] = measures_of(
                *answers, truth, trained, classes
            )
            if key in done:
                continue
            if classes == trained + more:
                again = Head(data, rows, classes, loss, DRAW)
                for way in ("knn of the embedding", "min_distance"):
                    full = again.model(data, rows, held_out, classes, way)
                    computed = again.of_rows(test, WAYS[way][1])
                    of_step[f"trained again, {way}"] = measures_of(
                        *answers_of(full, computed), truth, trained, classes
                    )
            tell(key, of_step)


def means_of(runs):
    """Means over losses: by examples, classes and way."""
    groups = {}
    for key, by_way in runs.items():
        _, count, classes = key.split(", ")
        for way, measures in by_way.items():
            group = f"{count}, {classes}, {way}"
            groups.setdefault(group, []).append(measures)
    return {
        group: {
            name: round(float(np.mean([one[name] for one in found])), 4)
            for name in MEASURES
            if name in found[0]
        }
        for group, found in groups.items()
    }


def found_earlier():
    """What is in the file of results."""
    if not RESULT.exists():
        return {}
    return json.loads(RESULT.read_text(encoding="utf-8"))


def main():
    """Measures what is not there yet, and writes after each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--name", choices=PLANS, default="banking77")
    given = parser.parse_args()
    # Of few examples.
    warnings.simplefilter("ignore", UserWarning)
    plan = PLANS[given.name]
    runs = found_earlier().get("data", {}).get(given.name, {}).get("runs", {})

    def tell(key, of_step):
        runs[key] = json.loads(
            json.dumps(of_step, default=float),
            parse_float=lambda text: round(float(text), 4),
        )
        # (Data of another name may be measured at the same time.)
        found = found_earlier()
        own = {"runs": runs, "mean": means_of(runs)}
        found.setdefault("data", {})[given.name] = own
        found["environment"] = environment()
        atomic_files.write_json(RESULT, found)
        print(key, flush=True)

    for loss in plan[3]:
        last = f"{loss}, {plan[2][-1]} examples, {sum(plan[:2])} classes"
        if last not in runs:
            data = Data(given.data, DRAW)
            measure(data, plan, loss, frozenset(runs), tell)


if __name__ == "__main__":
    main()
