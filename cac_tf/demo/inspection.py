# SPDX-License-Identifier: Apache-2.0
"""What a classifier says of one image, and why."""

from __future__ import annotations

import copy
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.demo.score_scale import ScoreScale
from cac_tf.models import prediction
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.scores.score import OF_CENTERS

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.models.open_set_classifier import OpenSetClassifier

neighbours = lazy.module("sklearn.neighbors")

# Training images that are compared with an image; test images that are scored.
_MOST_COMPARED, _MOST_SCORED = 5000, 1000
_NUM_NEIGHBOURS = 6


class Inspection(typing.NamedTuple):
    """What a network gives for one image; no threshold is needed for it."""

    image: np.ndarray  # (H, W, C) uint8
    # (1, ...) by name: what classes, old and new, are told apart by.
    outputs: dict[str, np.ndarray]
    scores: prediction.OpenSetScores  # of one input
    vector: np.ndarray  # (D,) float32, which images are compared by
    neighbours: np.ndarray  # (k,) rows of `Inspector.training`, nearest first
    similarities: np.ndarray  # (k,) float32, cosines

    @property
    def unknown_score(self) -> float:
        return float(self.scores.unknown_score[0])

    @property
    def predicted_class_id(self) -> int:
        return int(self.scores.predicted_class_id[0])

    def nearest_classes(self, count: int = 3) -> list[tuple[int, float]]:
        """Pairs of a class id and the distance to its center."""
        distances = self.scores.distances[0]
        order = np.argsort(distances, kind="stable")[:count]
        return [(int(i), float(distances[i])) for i in order]


class Inspector:
    """A classifier with the data that it was trained and tested on.

    Args:
        model: `OpenSetClassifier` with a threshold.
        dataset: `OpenSetDataset` of its run; None: there are no neighbours
            and no examples.

    Attributes:
        model, dataset: as given.
        training: `Examples` that images are compared with: at most 5,000 of
            the training images, evenly spread; None without data.
        center: (D,) mean vector of these; None without data.
        test_outputs: under "known" and "unknown", `ComputedOutputs` of at most
            1,000 test images each; empty without data.
        known_scores, unknown_scores: (n,) float32 unknown scores of these.
        scale: `ScoreScale` of these scores and the threshold.

    Raises:
        ValueError: a model without a threshold, or data whose images or
            classes are not the model's.

    Example:

    >>> import keras, cac_tf
    >>> digits = cac_tf.data.load_open_set_dataset("digits")
    >>> network = keras.Sequential([keras.Input([8, 8, 1]),
    ...     keras.layers.Flatten(), keras.layers.Dense(6)])
    >>> model = cac_tf.OpenSetClassifier(network, digits.class_names)
    >>> model.set_threshold(1e-3)
    >>> inspector = Inspector(model, digits)
    >>> seen = inspector.inspect(digits.train.images[7])
    >>> int(seen.neighbours[0]), round(float(seen.similarities[0]), 3)
    (7, 1.0)
    >>> inspector.decide(seen, seen.unknown_score - 1.0).label[0]
    np.str_('unknown')
    """

    def __init__(
        self, model: OpenSetClassifier, dataset: OpenSetDataset | None = None
    ) -> None:
        model.require_threshold()
        self.model, self.dataset = model, dataset
        self._compared = "logits"
        if "features" in model.network.names_of_outputs:
            self._compared = "features"
        score = model.score
        needed = {"logits", self._compared, *score.READS}
        needed |= {*score.reads_for_prediction}
        self._needed = sorted(needed - {*OF_CENTERS})
        self.training = self._neighbours = self.center = None
        self.test_outputs: dict[str, ComputedOutputs] = {}
        self._test_scores: dict[str, prediction.OpenSetScores] = {}
        if dataset is not None:
            self._compare_with(dataset)
        self._set_scale()

    def _compare_with(self, dataset):
        names = self.model.class_names
        trained = names[: len(names) - len(self.model.enrolled_classes)]
        if dataset.class_names != trained:
            raise ValueError(
                "The data have the known classes "
                f"{', '.join(dataset.class_names)}; the model has "
                f"{', '.join(trained)}."
            )
        self.training = evenly_spread(dataset.train, _MOST_COMPARED)
        outputs, _ = self._outputs(self.training.images)
        vectors = outputs[self._compared]
        self.center = vectors.mean(axis=0)
        self._neighbours = neighbours.NearestNeighbors(
            n_neighbors=min(_NUM_NEIGHBOURS, len(vectors)),
            metric="cosine",
            algorithm="brute",
        ).fit(vectors)
        for kind, examples in (
            ("known", dataset.known_test),
            ("unknown", dataset.unknown_test),
        ):
            if examples.size:
                images = evenly_spread(examples, _MOST_SCORED).images
                outputs, self._test_scores[kind] = self._outputs(images)
                self.test_outputs[kind] = ComputedOutputs(outputs)

    def _set_scale(self):
        scores = {k: v.unknown_score for k, v in self._test_scores.items()}
        empty = np.empty(0, "float32")
        self.known_scores = scores.get("known", empty)
        self.unknown_scores = scores.get("unknown", empty)
        self.scale = ScoreScale(
            np.r_[self.known_scores, self.unknown_scores],
            self.model.require_threshold(),
        )

    def _outputs(self, images):
        """What the network gives by name, and `OpenSetScores`."""
        names = (*prediction.OpenSetScores._fields, *self._needed)
        batches = list(self.model.iterate_outputs(images, names=names))
        outputs = {
            name: np.concatenate([one[name] for one, *_ in batches])
            for name in self._needed
        }
        return outputs, prediction.scores_of(batches)

    def with_model(self, model: OpenSetClassifier) -> Inspector:
        """The same data with another version of the model.

        Args:
            model: made of this one by `enroll`, `remove`, `merge`: its network
                is the same, and is not asked again.
        """
        other = copy.copy(self)
        other.model = model
        other._test_scores = {
            kind: model.predict_scores(outputs)
            for kind, outputs in self.test_outputs.items()
        }
        other._set_scale()
        return other

    def inspect(self, image: ArrayLike) -> Inspection:
        """Applies the network to an image.

        Args:
            image: (H, W, C) uint8 array.

        Returns:
            `Inspection`.

        Raises:
            ValueError: an image of another shape than the model takes.
        """
        image = np.asarray(image)
        outputs, scores = self._outputs(image[np.newaxis])
        vectors = outputs[self._compared]
        rows = similarities = np.empty(0)
        if self._neighbours is not None:
            distances, rows = self._neighbours.kneighbors(vectors)
            rows, similarities = rows[0], 1.0 - distances[0]
        return Inspection(
            image,
            outputs,
            scores,
            vectors[0],
            rows.astype("int64"),
            similarities.astype("float32"),
        )

    def again(self, inspections: Sequence[Inspection]) -> list[Inspection]:
        """Images that another version of the model has inspected, by this one.

        The network is not asked again.
        """
        if not inspections:
            return []
        outputs = {
            name: np.concatenate([one.outputs[name] for one in inspections])
            for name in self._needed
        }
        scores = self.model.predict_scores(ComputedOutputs(outputs))
        return [
            one._replace(
                scores=prediction.OpenSetScores(
                    *(values[row : row + 1] for values in scores)
                )
            )
            for row, one in enumerate(inspections)
        ]

    def decide(
        self, inspection: Inspection, threshold: ArrayLike
    ) -> prediction.OpenSetPrediction:
        """The decision about an image; the network is not asked again.

        Args:
            inspection: `Inspection`.
            threshold: a number or one for each class.

        Returns:
            `OpenSetPrediction` of one input.
        """
        return self.model.decide(inspection.scores, threshold)


def evenly_spread(examples, count):
    """At most `count` of the examples, evenly spread over their labels.

    Example:

    >>> from cac_tf.data.open_set_dataset import Examples
    >>> labels = np.array([0, 1, 0, 1, 2, 2])
    >>> evenly_spread(Examples(np.zeros((6, 2, 2, 1)), labels), 3).labels
    array([0, 1, 2])
    """
    if examples.size <= count:
        return examples
    order = np.argsort(examples.labels, kind="stable")
    # The middle of each of `count` equal parts.
    places = (np.arange(count) + 0.5) * examples.size / count
    return examples.take(order[places.astype("int64")])
