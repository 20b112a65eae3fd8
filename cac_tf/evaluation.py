# SPDX-License-Identifier: Apache-2.0
"""A model and an experiment's test data to numbers (paper, section 4)."""

import collections
import dataclasses
import time
import warnings

import numpy as np

from cac_tf import metrics
from cac_tf import scores as score_rules

FALSE_POSITIVE_RATES = (0.01, 0.05, 0.1)
_TIMED_CALLS = 3


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measures of a model, and what they were computed from.

    `metrics` is what `metrics.json` holds. The arrays cover the known test
    examples followed by the unknown ones.
    """

    metrics: dict
    labels: np.ndarray  # (n,) int64 class index, -1 for unknown examples
    unknown_labels: np.ndarray  # (n,) int64 unknown class's index, or -1
    nearest_class_id: np.ndarray  # (n,) int32, before rejection
    unknown_score: np.ndarray  # (n,) float32
    min_distance: np.ndarray  # (n,) float32, to the closest centre
    logits: np.ndarray  # (n, N) float32
    # Unknown scores, (n,) float32, by the names of scores beside the own one.
    other_scores: dict = dataclasses.field(default_factory=dict)

    @property
    def is_known(self):
        """(n,) bool: whether the example's class was trained on."""
        return self.labels >= 0

    @property
    def is_correct(self):
        """(n,) bool: whether the nearest class is the example's own."""
        return self.nearest_class_id == self.labels

    @property
    def is_kept(self):
        """(n,) bool: whether theta keeps the example; None without theta."""
        theta = self.metrics["threshold"]
        return (
            None if theta is None else self.unknown_score <= np.float32(theta)
        )

    def arrays(self):
        """The arrays by name, as `scores.npz` holds them."""
        own = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("metrics", "other_scores")
        }
        others = {
            f"unknown_score_by_{name}": values
            for name, values in self.other_scores.items()
        }
        return {**own, **others}


def evaluate(model, dataset, method="cac", scores=(), batch_size=256):
    """Evaluates a classifier on the test data of an experiment.

    One pass over the test data serves all scores, and one over the training
    data those that learn from them. Without unknown test data the evaluation
    is closed-set: what needs them is None.

    Args:
        model: `OpenSetClassifier` whose classes are those of the data set.
        dataset: `OpenSetDataset`.
        method: name of the method, for the record.
        scores: further scores to compare the model's own with: names, or
            `scores.Score` objects, which are fitted if they are not. One that
            cannot be used with this model or fitted to these data is left out
            with a warning.
        batch_size: of the predictions.

    Returns:
        `Evaluation`.

    Raises:
        ValueError: class names or image shape of the model are not those of
            the data set; two scores of one name.
    """
    if tuple(model.class_names) != tuple(dataset.class_names):
        raise ValueError(
            f"The model knows the classes {list(model.class_names)}, the data "
            f"set's known classes are {list(dataset.class_names)}."
        )
    if tuple(model.raw_input_shape) != dataset.image_shape:
        raise ValueError(
            f"The model takes images of shape {tuple(model.raw_input_shape)}, "
            f"the data set has {dataset.image_shape} (height, width, "
            "channels)."
        )
    model.require_fitted_score()
    rules = [
        score_rules.get(score)
        for score in scores
        if score is not model.score and score != model.score.name
    ]
    names = [model.score.name, *(rule.name for rule in rules)]
    if len(set(names)) < len(names):
        raise ValueError(
            "Scores that are compared must differ in their names (pass name= "
            f"to them); got {', '.join(names)}."
        )
    rules = fitted_scores(model, dataset, rules, batch_size)
    outputs, seconds = _outputs_of_test_data(
        model, dataset, [model.score, *rules], batch_size
    )
    num_known, num_unknown = dataset.known_test.size, dataset.unknown_test.size
    none = np.full(num_known, -1)
    by_score = {
        rule.name: Evaluation(
            metrics={
                "threshold": model.threshold if rule is model.score else None
            },
            labels=np.r_[dataset.known_test.labels, np.full(num_unknown, -1)],
            unknown_labels=np.r_[none, dataset.unknown_test.labels],
            nearest_class_id=outputs["nearest_class_id", rule.name],
            unknown_score=outputs["unknown_score", rule.name],
            min_distance=outputs["min_distance"],
            logits=outputs["logits"],
        )
        for rule in [model.score, *rules]
    }
    evaluation = by_score[model.score.name]
    measured = {name: _measures(each) for name, each in by_score.items()}
    own = measured[model.score.name]
    measures = {
        "dataset": dataset.name,
        "split_family": dataset.split_family,
        "trial": dataset.trial,
        "method": method,
        "score": model.score.name,
        "views": model.views,
        "class_names": list(dataset.class_names),
        "unknown_class_names": list(dataset.unknown_class_names),
        "counts": dataset.counts,
        "openness": dataset.openness,
        **evaluation.metrics,
        **own,
        **({} if _has_own_centres(model) else {"bhattacharyya": None}),
        "scores": {
            name: {key: values[key] for key in _COMPARABLE}
            for name, values in measured.items()
        },
        "microseconds_per_image": {
            name: round(1e6 * taken, 3) for name, taken in seconds.items()
        },
    }
    return dataclasses.replace(
        evaluation,
        metrics=measures,
        other_scores={
            rule.name: by_score[rule.name].unknown_score for rule in rules
        },
    )


# Those of the measures that every score has.
_COMPARABLE = ("auroc", "accuracy", "oscr", "ccr")


def _has_own_centres(model):
    """Whether distances to the centres mean anything to the model.

    Cross-entropy leaves the anchors without a part in the training.
    """
    return model.score.reads_distances or not model.distance_head.has_anchors


def fitted_scores(model, dataset, rules, batch_size=256):
    """Scores fitted to the known data of an experiment.

    One pass over the training data, and one over the validation data for
    scores that want data which was not trained on.

    Args:
        model: `OpenSetClassifier`.
        dataset: `OpenSetDataset`.
        rules: list of `scores.Score`; what is fitted stays as it is.
        batch_size: of the predictions.

    Returns:
        Those of the scores that can be used; a warning names each other one.
    """
    problems = {}
    if not model.has_features:
        problems = {
            rule.name: "it needs features, and the model has none to find"
            for rule in rules
            if rule.reads_features
        }
    for held_out, examples in (
        (False, dataset.train),
        (True, dataset.validation),
    ):
        fitted = [
            rule
            for rule in rules
            if rule.name not in problems
            and not rule.is_fitted
            and held_out == rule.WANTS_HELD_OUT_DATA
        ]
        if fitted:
            problems |= model.fit_scores(
                fitted, *examples, batch_size=batch_size
            )
    for name, problem in problems.items():
        warnings.warn(
            f"The score {name!r} is left out: {problem}", stacklevel=3
        )
    return [rule for rule in rules if rule.name not in problems]


def _outputs_of_test_data(model, dataset, rules, batch_size):
    """What the model and the scores say of the test data, in one pass.

    Returns:
        Dict of arrays, with those of the scores under pairs of what and name;
        and dict of the seconds that an image takes, in the network and in
        each score.
    """
    parts = collections.defaultdict(list)
    seconds = {}
    with_features = any(rule.reads_features for rule in rules)

    def network(images):
        return model.iterate_outputs(
            images,
            batch_size=batch_size,
            with_score=False,
            with_features=with_features,
        )

    for examples in (dataset.known_test, dataset.unknown_test):
        for outputs, _, images, _ in network(examples.images):
            parts["logits"].append(outputs["logits"])
            parts["min_distance"].append(outputs["distances"].min(axis=-1))
            for rule in rules:
                values = rule.arguments_of(outputs)
                parts["unknown_score", rule.name].append(
                    rule.of_arrays(*values)
                )
                parts["nearest_class_id", rule.name].append(
                    np.asarray(rule.nearest_class(outputs))
                )
                if rule.name not in seconds:
                    seconds[rule.name] = _seconds(rule.of_arrays, *values)
            if "network" not in seconds:
                seconds["network"] = _seconds(
                    lambda x: list(network(x)), images
                )
    return {k: np.concatenate(v) for k, v in parts.items()}, seconds


def _seconds(function, *arrays):
    """Seconds for each row of a batch, which was computed before.

    The median of a few calls: the first one may have compiled something.
    """
    taken = []
    for _ in range(_TIMED_CALLS):
        started = time.perf_counter()
        function(*arrays)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken)) / len(arrays[0])


def _measures(evaluation):
    is_known = evaluation.is_known
    known = evaluation.unknown_score[is_known]
    unknown = evaluation.unknown_score[~is_known]
    is_correct = evaluation.is_correct[is_known]
    measures = {
        "accuracy": metrics.accuracy(
            evaluation.labels[is_known], evaluation.nearest_class_id[is_known]
        ),
        "auroc": None,
        "oscr": None,
        "ccr": None,
        "bhattacharyya": None,
        "true_positive_rate": None,
        "false_positive_rate": None,
    }
    kept = evaluation.is_kept
    if kept is not None:
        measures["true_positive_rate"] = float(kept[is_known].mean())
        if unknown.size:
            measures["false_positive_rate"] = float(kept[~is_known].mean())
    if unknown.size:
        measures["auroc"] = metrics.auroc(known, unknown)
        measures["oscr"] = metrics.oscr(known, is_correct, unknown)
        measures["ccr"] = {
            str(rate): metrics.ccr_at_fpr(known, is_correct, unknown, rate)
            for rate in FALSE_POSITIVE_RATES
        }
        measures["bhattacharyya"] = metrics.bhattacharyya(
            evaluation.min_distance[is_known],
            evaluation.min_distance[~is_known],
        )
    return measures
