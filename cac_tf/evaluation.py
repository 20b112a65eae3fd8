# SPDX-License-Identifier: Apache-2.0
"""A model and an experiment's test data to numbers (paper, section 4)."""

import dataclasses
import warnings

import numpy as np

from cac_tf import metrics
from cac_tf import scores as score_rules

FALSE_POSITIVE_RATES = (0.01, 0.05, 0.1)


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
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "metrics"
        }


def evaluate(model, dataset, method="cac", scores=(), batch_size=256):
    """Evaluates a classifier on the test data of an experiment.

    One pass over the test data serves all scores. Without unknown test data
    the evaluation is closed-set: what needs them is None.

    Args:
        model: `OpenSetClassifier` whose classes are those of the data set.
        dataset: `OpenSetDataset`.
        method: name of the method, for the record.
        scores: names of further scores to compare the model's own with. One
            that learns from training data is fitted to those of `dataset`,
            and left out with a warning where they are too few.
        batch_size: of the predictions.

    Returns:
        `Evaluation`.

    Raises:
        ValueError: class names or image shape of the model are not those of
            the data set.
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
    parts = [model.predict_scores(dataset.known_test.images, batch_size)]
    if dataset.unknown_test.size:
        parts.append(
            model.predict_scores(dataset.unknown_test.images, batch_size)
        )
    outputs = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in parts[0]._fields
    }
    num_known, num_unknown = dataset.known_test.size, dataset.unknown_test.size
    none = np.full(num_known, -1)
    evaluation = Evaluation(
        metrics={"threshold": model.threshold},
        labels=np.r_[dataset.known_test.labels, np.full(num_unknown, -1)],
        unknown_labels=np.r_[none, dataset.unknown_test.labels],
        nearest_class_id=outputs["nearest_class_id"],
        unknown_score=outputs["unknown_score"],
        min_distance=outputs["distances"].min(axis=-1),
        logits=outputs["logits"],
    )
    own = _measures(evaluation)
    measures = {
        "dataset": dataset.name,
        "split_family": dataset.split_family,
        "trial": dataset.trial,
        "method": method,
        "score": model.score.name,
        "class_names": list(dataset.class_names),
        "unknown_class_names": list(dataset.unknown_class_names),
        "counts": dataset.counts,
        "openness": dataset.openness,
        **evaluation.metrics,
        **own,
        **({} if _has_own_centres(model) else {"bhattacharyya": None}),
        "scores": {
            model.score.name: _comparable(own),
            **_other_scores(
                model, dataset, scores, outputs, evaluation, batch_size
            ),
        },
    }
    return dataclasses.replace(evaluation, metrics=measures)


def _has_own_centres(model):
    """Whether distances to the centres mean anything to the model.

    Cross-entropy leaves the anchors without a part in the training.
    """
    return model.score.NEEDS != "logits" or not model.distance_head.has_anchors


def _comparable(measures):
    """Those of the measures that every score has."""
    return {
        name: measures[name] for name in ("auroc", "accuracy", "oscr", "ccr")
    }


def _other_scores(model, dataset, names, outputs, evaluation, batch_size):
    """Measures by each score that is not the model's own."""
    training = None
    compared = {}
    for name in names:
        if name == model.score.name:
            continue
        rule = score_rules.get(name)
        if rule.IS_FITTED_TO_DATA:
            training = training or model.predict_scores(
                dataset.train.images, batch_size
            )
            try:
                rule.fit(getattr(training, rule.NEEDS), dataset.train.labels)
            except ValueError as error:
                warnings.warn(
                    f"The score {rule.name!r} is left out: {error}",
                    stacklevel=3,
                )
                continue
        class_scores = np.asarray(rule(outputs[rule.NEEDS]))
        by_score = dataclasses.replace(
            evaluation,
            unknown_score=class_scores.min(axis=-1),
            nearest_class_id=class_scores.argmin(axis=-1),
            metrics={"threshold": None},
        )
        compared[name] = _comparable(_measures(by_score))
    return compared


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
