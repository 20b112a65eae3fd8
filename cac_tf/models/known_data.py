# SPDX-License-Identifier: Apache-2.0
"""What a trained classifier learns from known data: class means, statistics.

The functions take an iterator of a classifier's outputs and make one pass.
"""

import warnings

import numpy as np

from cac_tf import scores as score_rules
from cac_tf.labels import check_labels
from cac_tf.scores.fitting import Fitting
from cac_tf.scores.statistics import ClassMoments


class CenterEstimate:
    """Class means of the logits of correctly classified examples.

    "Correctly" means relative to the anchors, by the largest logit. So
    computing the means twice changes nothing.

    Args:
        class_names: N names, for warnings.
    """

    def __init__(self, class_names):
        self._class_names = class_names
        self._moments = ClassMoments(len(class_names))
        self._total = np.zeros(len(class_names), "int64")

    def add(self, batch):
        """Adds a `KnownBatch`."""
        right = batch.is_correct
        self._moments.add(batch["logits"][right], batch.labels[right])
        self._total += np.bincount(batch.labels, minlength=len(self._total))

    @property
    def counts(self):
        """(N,) int64, the number of examples in each mean."""
        return self._moments.counts

    def centers(self, otherwise):
        """(N, D) class means; rows of `otherwise` where there are none."""
        is_there = self.counts[:, None] > 0
        return np.where(is_there, self._moments.means, otherwise)

    def warn_of_absent_classes(self):
        """Warns of each class that keeps its center."""
        for index in np.flatnonzero(self.counts == 0):
            reason = (
                f"none of its {self._total[index]} examples is classified "
                "correctly"
                if self._total[index]
                else "it has no example"
            )
            warnings.warn(
                f"Class {self._class_names[index]!r} keeps its anchor as "
                f"center: {reason}.",
                stacklevel=3,
            )


def learn(model, what, scores, data, estimate=None):
    """Makes one pass over known data, for scores and class means.

    Args:
        model: `OpenSetClassifier`. If its own score is fitted anew, its theta
            becomes invalid.
        what: what needs the data, for messages.
        scores: list of `Score`; those that learn from data are fitted.
        data: inputs, labels and batch size, as `iterate_outputs` takes them.
        estimate: `CenterEstimate` to add the examples to, or None.

    Returns:
        Dict from the name of each score that cannot be fitted to its error.
    """
    num_classes = len(model.class_names)
    fitting = Fitting(scores, num_classes)
    if fitting.problems and not fitting:
        return fitting.problems
    batches = model.iterate_outputs(
        *data,
        names=dict.fromkeys(("logits", "distances", *fitting.reads)),
        # Images as they are, without test-time augmentation: the outputs with
        # it are compared with these statistics.
        single_view=True,
    )
    for batch in known_batches(
        what,
        batches,
        num_classes,
        has_anchors=model.distance_head.trains_with_anchors,
    ):
        fitting.add(batch)
        if estimate is not None:
            estimate.add(batch)
    fitting.finish(
        score_rules.Known(model.class_names, model.network.last_layer)
    )
    is_refitted = model.score in scores and model.score.IS_FITTED_TO_DATA
    if is_refitted and model.score.name not in fitting.problems:
        model.decision.threshold = None
    return fitting.problems


def known_batches(what, batches, num_classes, has_anchors=True):
    """`KnownBatch`es of an iterator of outputs.

    Args:
        what: what needs them, for messages.
        batches: iterator of (outputs, labels, inputs, place).
        num_classes: N.
        has_anchors: as of `KnownBatch`.

    Raises:
        ValueError: no example, no labels or invalid ones, or logits that are
            probabilities or their logarithms.
    """
    # What the rows of all batches may be.
    kinds = None
    for outputs, labels, inputs, place in batches:
        if labels is None:
            raise ValueError(f"{what} needs labels: pass y.")
        yield score_rules.KnownBatch(
            check_labels(labels, num_classes, where=place),
            inputs,
            outputs,
            has_anchors,
            num_classes,
        )
        own = _kinds_of_probabilities(outputs["logits"])
        kinds = own if kinds is None else kinds & own
    if kinds is None:
        raise ValueError(f"{what} needs at least one example.")
    if kinds:
        raise ValueError(
            f"The backbone gives {kinds.pop()}, not logits: remove the softmax "
            "at its end."
        )


def _kinds_of_probabilities(logits):
    """What every row is, other than logits, as a set of texts."""
    found = set()
    if (logits >= 0).all() and _is_close_to_1(logits.sum(axis=-1)):
        found.add("probabilities (they are not negative and sum to 1)")
    if (logits <= 0).all() and _is_close_to_1(np.exp(logits).sum(axis=-1)):
        found.add("log-probabilities (exponentiated, they sum to 1)")
    return found


def _is_close_to_1(sums):
    return np.allclose(sums, 1.0, atol=1e-3)
