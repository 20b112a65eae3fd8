# SPDX-License-Identifier: Apache-2.0
"""From a model and test data to numbers (paper, section 4)."""

from __future__ import annotations

import collections
import dataclasses
import functools
import time
import warnings
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import metrics
from cac_tf import scores as score_rules
from cac_tf.decision import rule
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.methods.known_data import known_examples
from cac_tf.scores.fitting import require_different_names

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.models.open_set_classifier import OpenSetClassifier

FALSE_POSITIVE_RATES = (0.01, 0.05, 0.1)
_TIMED_CALLS = 3
_TIMED_SECONDS = 1
# Rows of outputs that are scored together.
_BLOCK = 2048


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measures of a model, and what they were computed from.

    `metrics` is what `metrics.json` holds. The arrays cover the known test
    examples followed by the unknown ones.
    """

    metrics: dict
    labels: np.ndarray  # (n,) int64 class index, -1 for unknown examples
    unknown_labels: np.ndarray  # (n,) int64 unknown class's index, or -1
    predicted_class_id: np.ndarray  # (n,) int32, before rejection
    unknown_score: np.ndarray  # (n,) float32
    min_distance: np.ndarray  # (n,) float32, to the closest center
    logits: np.ndarray  # (n, N) float32
    # Unknown scores, (n,) float32, by name, of scores besides the model's own.
    other_scores: dict = dataclasses.field(default_factory=dict)

    @property
    def is_known(self) -> np.ndarray:
        """(n,) bool: whether the example's class was trained on."""
        return self.labels >= 0

    @property
    def is_correct(self) -> np.ndarray:
        """(n,) bool: whether the predicted class is the example's own."""
        return self.predicted_class_id == self.labels

    @property
    def thresholds(self) -> np.ndarray | None:
        """(n,) float32: each example's threshold; None where there is none."""
        threshold = self.metrics["threshold"]
        if threshold is None:
            return None
        own = rule.threshold_of_rows(
            np.float32(threshold), self.predicted_class_id
        )
        return np.broadcast_to(own, self.labels.shape)

    @property
    def is_accepted(self) -> np.ndarray | None:
        """(n,) bool: which examples are accepted; None without a threshold."""
        thresholds = self.thresholds
        if thresholds is None:
            return None
        return rule.accepts(self.unknown_score, thresholds)

    def arrays(self) -> dict[str, np.ndarray]:
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


def evaluate(
    model: OpenSetClassifier,
    dataset: OpenSetDataset,
    method: str | None = "cac",
    scores: Sequence[Any] | Mapping[Any, Any] = (),
    batch_size: int = 256,
    unknown_data: Mapping[str, Any] | None = None,
    asked: float | None = None,
) -> Evaluation:
    """Evaluates a classifier on the test data of an experiment.

    One pass over the test data serves all scores, and one over the training
    data serves those that learn from it. Without unknown test data the
    evaluation is closed-set, and metrics that need such data are None.

    Args:
        model: `OpenSetClassifier` whose classes are those of the data set.
        dataset: `OpenSetDataset`.
        method: name of the method, to be recorded; None if not known.
        scores: scores to compare with the model's own: names, or `scores.Score`
            objects, which are fitted to the known data; or the result of
            `fitted_scores`. A score that cannot be used with this model or
            fitted to these data is left out with a warning.
        batch_size: batch size of the predictions.
        unknown_data: dict from a name to additional unknown images. Each set is
            measured separately against the known test data, in
            `metrics["unknown_data"]`.
        asked: the true-positive rate that the model was calibrated for, to be
            recorded; None if not known.

    Returns:
        `Evaluation`.

    Raises:
        ValueError: the model's class names or image shape do not match the data
            set's; two scores have the same name.
    """
    if tuple(model.class_names) != tuple(dataset.class_names):
        raise ValueError(
            f"The model knows the classes {list(model.class_names)}, but the "
            f"known classes of the data set are {list(dataset.class_names)}."
        )
    _check_image_shape(model.inputs_taken, dataset.image_shape)
    others = [
        score_rules.get(score)
        for score in scores
        if score is not model.score and score != model.score.name
    ]
    require_different_names([model.score, *others])
    fitted = scores
    if not isinstance(scores, Mapping):
        fitted = fitted_scores(model, dataset, others, batch_size)
    rules = {model.score: model.statistics}
    rules.update((one, fitted[one]) for one in fitted if one is not model.score)
    unknown_data = unknown_data or {}
    (known, unknown, *further), seconds = _outputs_of_parts(
        model,
        [
            dataset.known_test.images,
            dataset.unknown_test.images,
            *unknown_data.values(),
        ],
        rules,
        batch_size,
    )
    by_score = _by_score(
        model, rules, dataset, known, unknown, dataset.unknown_test.labels
    )
    evaluation = by_score[model.score.name]
    measured = {name: _measures(each) for name, each in by_score.items()}
    own = measured[model.score.name]
    measures = {
        "dataset": dataset.name,
        "split_family": dataset.split_family,
        "trial": dataset.trial,
        "method": method,
        "score": model.score.name,
        "tta": model.tta,
        "class_names": list(dataset.class_names),
        **_enrolled(model),
        "unknown_class_names": list(dataset.unknown_class_names),
        "inputs": dataset.kind_of_inputs,
        "counts": dataset.counts,
        "openness": dataset.openness,
        **evaluation.metrics,
        **own,
        **({} if _has_own_centers(model) else {"bhattacharyya": None}),
        **_decisions(evaluation, dataset.class_names),
        "calibration": _calibration(model, asked),
        "intervals": _intervals(evaluation),
        "auroc_differences": _auroc_differences(model, by_score),
        "scores": _comparable(measured),
        "microseconds_per_image": {
            name: round(1e6 * taken, 3) for name, taken in seconds.items()
        },
    }
    if unknown_data:
        measures["unknown_data"] = {
            name: _measures_with(model, rules, dataset, known, other, len(x))
            for (name, x), other in zip(
                unknown_data.items(), further, strict=True
            )
        }
    return dataclasses.replace(
        evaluation,
        metrics=measures,
        other_scores={
            one.name: by_score[one.name].unknown_score
            for one in rules
            if one is not model.score
        },
    )


def _enrolled(model):
    """How many examples the classes that were not trained are made of."""
    enrolled = model.enrolled_classes
    return {"enrolled_classes": enrolled} if enrolled else {}


def _check_image_shape(taken, image_shape):
    fits = len(taken.shape) == len(image_shape) and all(
        size in (None, other)
        for size, other in zip(taken.shape, image_shape, strict=True)
    )
    if len(image_shape) != 3 or len(taken.shape) != 3:
        if not fits:
            raise ValueError(
                f"The model expects inputs of shape {tuple(taken.shape)}; "
                f"those of the data set have shape {tuple(image_shape)}."
            )
    elif not fits or taken.size not in (None, tuple(image_shape[:2])):
        shape = (*(taken.size or taken.shape[:-1]), taken.shape[-1])
        raise ValueError(
            f"The model expects images of shape {shape}; the data set has "
            f"{image_shape} (height, width, channels)."
        )


def _by_score(model, rules, dataset, known, unknown, unknown_labels):
    """An `Evaluation` by each score, of known test data and unknown ones."""
    parts = [part for part in (known, unknown) if part]
    outputs = {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}
    labels = dataset.known_test.labels
    threshold = model.threshold
    if isinstance(threshold, np.ndarray):
        threshold = threshold.tolist()
    return {
        one.name: Evaluation(
            metrics={"threshold": threshold if one is model.score else None},
            labels=np.r_[labels, np.full(len(unknown_labels), -1)],
            unknown_labels=np.r_[np.full(len(labels), -1), unknown_labels],
            predicted_class_id=outputs["predicted_class_id", one.name],
            unknown_score=outputs["unknown_score", one.name],
            min_distance=outputs["min_distance"],
            logits=outputs["logits"],
        )
        for one in rules
    }


def _measures_with(model, rules, dataset, known, other, number):
    """What `metrics["unknown_data"]` has of one set of unknown images."""
    no_labels = np.zeros(number, "int64")
    by_score = _by_score(model, rules, dataset, known, other, no_labels)
    measured = {name: _measures(each) for name, each in by_score.items()}
    return {
        "images": number,
        "false_positive_rate": measured[model.score.name][
            "false_positive_rate"
        ],
        "scores": _comparable(measured),
    }


def _comparable(measured):
    return {
        name: {key: values[key] for key in COMPARABLE}
        for name, values in measured.items()
    }


# The measures that every score has.
COMPARABLE = (
    "auroc",
    "fpr_at_95_tpr",
    "aupr_known",
    "aupr_unknown",
    "accuracy",
    "oscr",
    "ccr",
)


def _has_own_centers(model):
    """Whether distances to the centers have a meaning for the model.

    Training with cross-entropy does not use the anchors.
    """
    return model.score.reads_distances or not model.has_anchors


def fitted_scores(model, dataset, rules, batch_size=256):
    """Scores fitted to the known data of an experiment.

    One pass over the training data, and one over the validation data for
    scores that want data not used for training. Returns a dict from those of
    the scores that can be used to their statistics; a warning names each
    other one.
    """
    statistics, problems = {}, {}
    for one in rules:
        try:
            model.require_outputs_for(one)
            statistics[one.name] = {}
        except ValueError as error:
            problems[one.name] = error
    for held_out, examples in (
        (False, dataset.train),
        (True, dataset.validation),
    ):
        learning = [
            one
            for one in rules
            if one.name not in problems
            and one.IS_FITTED_TO_DATA
            and held_out == (known_examples(one, dataset) is not dataset.train)
        ]
        if learning:
            found, failed = model.fit_scores(
                learning, *examples, batch_size=batch_size
            )
            statistics |= found
            problems |= failed
    for name, problem in problems.items():
        warnings.warn(f"The score {name!r} is skipped: {problem}", stacklevel=3)
    return {
        one: statistics[one.name] for one in rules if one.name not in problems
    }


def _outputs_of_parts(model, images_of_parts, rules, batch_size):
    """Outputs and scores of several parts of the test data, in one pass each.

    Returns:
        List of a dict of arrays for each part, in which the keys of the
        scores' arrays are pairs of kind and name, empty for a part without
        images; and dict of the seconds per image, of the network and of each
        score.
    """
    found, seconds = [], {}
    names = dict.fromkeys(
        name for one in rules for name in one.reads_for_prediction
    )

    def network(images):
        return model.iterate_outputs(images, batch_size=batch_size, names=names)

    for part in images_of_parts:
        arrays = collections.defaultdict(list)
        for outputs, images in _blocks(network(part)):
            arrays["logits"].append(outputs["logits"])
            arrays["min_distance"].append(outputs["distances"].min(axis=-1))
            for one, statistics in rules.items():
                values = one.arguments_of(outputs)
                of_arrays = functools.partial(one.of_arrays, **statistics)
                arrays["unknown_score", one.name].append(of_arrays(*values))
                arrays["predicted_class_id", one.name].append(
                    np.asarray(one.predicted_class(outputs, **statistics))
                )
                if one.name not in seconds:
                    seconds[one.name] = _seconds(of_arrays, *values)
            if "network" not in seconds:
                seconds["network"] = _seconds(
                    lambda x: list(network(x)), images
                )
        found.append({k: np.concatenate(v) for k, v in arrays.items()})
    return found, seconds


def seconds_of_network(model: OpenSetClassifier, images: np.ndarray) -> float:
    """Seconds per image that a model's network takes."""

    def network(x):
        return list(model.iterate_outputs(x, names=("logits",)))

    network(images)  # Which compiles it.
    return _seconds(network, images)


def _blocks(batches):
    """Outputs of about `_BLOCK` rows at once, and the inputs of a batch.

    A score with a bank of examples fetches the bank once for each.
    """
    held, rows = [], 0
    for outputs, _, inputs, _ in batches:
        held.append(outputs)
        rows += len(inputs)
        if rows >= _BLOCK:
            yield _joined(held), inputs
            held, rows = [], 0
    if held:
        yield _joined(held), inputs


def _joined(outputs):
    return {
        name: np.concatenate([one[name] for one in outputs])
        for name in outputs[0]
    }


def _seconds(function, *arrays):
    """Seconds per row of arrays that were computed before.

    The median of a few calls, as the first one may have compiled something;
    slow ones, which search large banks, are called once.
    """
    taken = []
    while len(taken) < _TIMED_CALLS and sum(taken) < _TIMED_SECONDS:
        started = time.perf_counter()
        function(*arrays)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken)) / len(arrays[0])


def _calibration(model, asked):
    """What the threshold accepts of the known inputs that it comes from."""
    share = model.accepted_shares.get("known")
    if share is None:
        return None
    return {
        **({} if asked is None else {"asked": asked}),
        **share._asdict(),
        "rate": share.rate,
        "interval": list(share.interval),
    }


def _intervals(evaluation):
    """95 % intervals by the bootstrap; None without unknown test data."""
    is_known = evaluation.is_known
    if is_known.all():
        return None
    scores = evaluation.unknown_score
    intervals = metrics.bootstrap_intervals(scores[is_known], scores[~is_known])
    return {name: list(limits) for name, limits in intervals.items()}


def _auroc_differences(model, by_score):
    """Intervals of each other score's AUROC less that of the model's own.

    All of them hold together with a probability of 95 % (Bonferroni): the
    best of many scores is ahead by chance. None without unknown test data.
    """
    own = by_score[model.score.name]
    is_known = own.is_known
    if is_known.all():
        return None

    def parts(evaluation):
        scores = evaluation.unknown_score
        return scores[is_known], scores[~is_known]

    others = {k: other for k, other in by_score.items() if other is not own}
    confidence = 1.0 - 0.05 / max(len(others), 1)
    return {
        name: [
            round(limit, 6)
            for limit in metrics.auroc_difference_interval(
                *parts(other), *parts(own), confidence
            )
        ]
        for name, other in others.items()
    }


def _decisions(evaluation, class_names):
    """Measures of the decisions over the known classes and "unknown"."""
    accepted = evaluation.is_accepted
    if accepted is None:
        return {"macro_f1": None, "by_class": None, "confusion": None}
    decided = np.where(accepted, evaluation.predicted_class_id, UNKNOWN)
    asked = (evaluation.labels, decided, len(class_names))
    found = metrics.by_class(*asked)
    return {
        "macro_f1": float(found.f1.mean()),
        "by_class": {
            name: dict(
                zip(found._fields, (one.item() for one in row), strict=True)
            )
            for name, row in zip(
                (*class_names, UNKNOWN_NAME),
                zip(*found, strict=True),
                strict=True,
            )
        },
        # Rows: true classes, in the order above; columns: decisions.
        "confusion": metrics.confusion_matrix(*asked).tolist(),
    }


def _measures(evaluation):
    is_known = evaluation.is_known
    known = evaluation.unknown_score[is_known]
    unknown = evaluation.unknown_score[~is_known]
    is_correct = evaluation.is_correct[is_known]
    measures = dict.fromkeys(
        (
            *(*COMPARABLE, "bhattacharyya"),
            *("true_positive_rate", "false_positive_rate"),
        )
    )
    measures["accuracy"] = metrics.accuracy(
        evaluation.labels[is_known], evaluation.predicted_class_id[is_known]
    )
    accepted = evaluation.is_accepted
    if accepted is not None:
        measures["true_positive_rate"] = float(accepted[is_known].mean())
        if unknown.size:
            measures["false_positive_rate"] = float(accepted[~is_known].mean())
    if unknown.size:
        measures["auroc"] = metrics.auroc(known, unknown)
        measures["fpr_at_95_tpr"] = metrics.fpr_at_tpr(known, unknown)
        for positive in ("known", "unknown"):
            measures[f"aupr_{positive}"] = metrics.aupr(
                known, unknown, positive
            )
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
