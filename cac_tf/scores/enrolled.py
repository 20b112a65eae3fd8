# SPDX-License-Identifier: Apache-2.0
"""A score of a model to which classes were added without training."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Tensor
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.scores.score import Context
from cac_tf.scores.score import Score


@keras.saving.register_keras_serializable(package="CacTf")
class Enrolled(Score):
    """The score of K trained classes, which M enrolled ones compete with.

    An enrolled class takes an input from the class that the model gave it if
    the input is nearer to it than to that class, in the score's own measure:
    the distance to a center or a mean, or to the nearest example. The unknown
    score is then this distance. Every other input keeps its class and its
    score, bit for bit (of a score that reads distances, up to the rounding of
    their product), and without the enrolled classes the model is the same as
    before.

    Args:
        score: of the trained classes, one that `ENROLLS`.
        num_trained: K.
        examples: how many examples each enrolled class was made of.
        rows: how many rows of the statistic `enrolled` each has.
        **kwargs: `name`; default: that of the score.

    Raises:
        ValueError: a score to which no class can be added.
    """

    def __init__(
        self,
        score: Score,
        num_trained: int,
        examples: Sequence[int],
        rows: Sequence[int],
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", score.name)
        super().__init__(**kwargs)
        score.require_enrolling()
        self.score, self.num_trained = score, num_trained
        self.examples, self.rows = tuple(examples), tuple(rows)
        own = ("logits", "distances")
        self.READS = tuple(dict.fromkeys((*score.READS, *own)))
        self.IS_FITTED_TO_DATA = score.IS_FITTED_TO_DATA
        self.IS_NON_NEGATIVE = score.IS_NON_NEGATIVE
        self.RESOLUTION = score.RESOLUTION

    def call(self, *values: Tensor, **statistics: Tensor) -> Tensor:
        outputs = dict(zip(self.READS, values, strict=True))
        return self._decided(outputs, statistics)[0]

    def predicted_class(self, outputs: Outputs, **statistics: Tensor) -> Tensor:
        return self._decided(outputs, statistics)[1]

    @property
    def reads_for_prediction(self) -> tuple[str, ...]:
        return self.READS

    def start(self, context: Context) -> Any:
        raise ValueError(
            f"The score {self.name!r} has enrolled classes and cannot be "
            "fitted: fit the original score, then enroll."
        )

    def require_statistics(self, statistics: Mapping[str, Any]) -> None:
        others = dict(statistics)
        enrolled = others.pop("enrolled", None)
        self.score.require_statistics(others)
        wide = {
            np.shape(one)[-1] for one in others.values() if np.ndim(one) > 1
        }
        shape = (sum(self.rows), max(wide, default=0))
        found = shape if enrolled is None else np.shape(enrolled)
        if found[0] != shape[0] or (wide and found[1] not in wide):
            raise ValueError(
                f"The enrolled classes belong to another model: {shape[0]} "
                f"rows of {shape[1]} numbers were enrolled; got {found}."
            )

    def _decided(self, outputs, statistics):
        others = dict(statistics)
        classes = self.classes_of(others.pop("enrolled", None))
        before, predicted = self.of_trained(outputs, **others)
        apart = self.apart(outputs, predicted, classes, **others)
        return self.competed(before, predicted, apart)

    def classes_of(self, enrolled: Any) -> list[Any]:
        """The rows of each enrolled class, of the statistic `enrolled`."""
        if enrolled is None:
            return [np.zeros((1, 0), "float32") for _ in self.rows]
        ends = np.cumsum(self.rows)
        return [
            enrolled[end - count : end]
            for count, end in zip(self.rows, ends, strict=True)
        ]

    def of_trained(
        self, outputs: Outputs, **statistics: Any
    ) -> tuple[Tensor, Tensor]:
        """(B,) scores and (B,) predicted classes without the enrolled ones.

        Args:
            outputs: dict of tensors, with `distances`, (B, K + M).
            **statistics: of the score of the trained classes.
        """
        distances = outputs["distances"][:, : self.num_trained]
        gamma = rejection_scores(distances)
        outputs = {**outputs, "distances": distances, "gamma": gamma}
        values = self.score.arguments_of(outputs)
        return (
            self.score(*values, **statistics),
            self.score.predicted_class(outputs, **statistics),
        )

    def apart(
        self,
        outputs: Outputs,
        predicted: Tensor,
        classes: Sequence[Any],
        **statistics: Any,
    ) -> Tensor:
        """(B, 1 + M): how far inputs are from a class, and from enrolled ones.

        Args:
            outputs: as of `of_trained`.
            **statistics: as of `of_trained`.
            predicted: (B,) the class, a trained one.
            classes: of each enrolled class its rows, (r, W).
        """
        gamma = rejection_scores(outputs["distances"])
        values = self.score.arguments_of({**outputs, "gamma": gamma})
        values = [ops.cast(one, "float32") for one in values]
        return self.score.compare(values, predicted, classes, **statistics)

    def competed(
        self, before: Tensor, predicted: Tensor, apart: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(B,) scores and (B,) classes, of those without and the enrolled."""
        smallest = ops.min(apart[:, 1:], axis=-1)
        winner = nearest_class(apart[:, 1:]) + self.num_trained
        wins = smallest < apart[:, 0]
        return (
            ops.where(wins, smallest, before),
            ops.where(wins, winner, predicted),
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "score": keras.saving.serialize_keras_object(self.score),
            "num_trained": self.num_trained,
            "examples": list(self.examples),
            "rows": list(self.rows),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        config = dict(config)
        config["score"] = keras.saving.deserialize_keras_object(config["score"])
        return cls(**config)
