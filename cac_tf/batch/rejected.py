# SPDX-License-Identifier: Apache-2.0
"""Features of rejected inputs, kept while a block of inputs is answered."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING
from typing import Any
from typing import Self

import numpy as np

from cac_tf import atomic_files
from cac_tf.annotations import Path

if TYPE_CHECKING:
    from cac_tf.batch.chunks import Chunk
    from cac_tf.batch.classifier import Answer
    from cac_tf.batch.classifier import Classifier

# Features that are held at once, 512 MiB: 100,000 inputs of 1,280 features.
# What is rejected after these is in no group.
MOST_NUMBERS = 1 << 27
# Of the accepted inputs of a block, so many tell where the known ones are.
_ACCEPTED = 64


class Rejected(typing.NamedTuple):
    """The rejected inputs of a block, R of them."""

    rows: np.ndarray  # (R,) places in the block, ascending
    keys: np.ndarray  # (R,) texts
    predicted_class: np.ndarray  # (R,) texts
    unknown_score: np.ndarray  # (R,)
    features: np.ndarray  # (F, E) float32, of the first F <= R
    known_sum: np.ndarray  # (E,) of the features of some accepted inputs
    known_count: np.ndarray  # () how many these are

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file of `save`."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{name: arrays[name] for name in cls._fields})

    def save(self, path: Path) -> None:
        """Writes an .npz file."""
        with (
            atomic_files.replacing(path) as temporary,
            open(temporary, "wb") as file,
        ):
            np.savez(file, **self._asdict())


class RejectedSoFar:
    """Collects the rejected inputs of a block, chunk by chunk.

    Memory: the features of rejected inputs, at most `MOST_NUMBERS`.

    Args:
        classifier: `Classifier`, loaded with features.
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._row, self._known = 0, 0
        self._sum: Any = 0.0
        self._found: list[tuple[Any, ...]] = []
        self._features: list[np.ndarray] = []

    def add(self, chunk: Chunk, answers: list[Answer]) -> None:
        """Adds a chunk of the block and its answers."""
        places: list[int] = []
        accepted: list[int] = []
        for place, answer in enumerate(answers):
            if answer.error:
                continue
            if answer.is_unknown:
                places.append(place)
                found = (answer.predicted_class, answer.unknown_score)
                self._found.append(
                    (self._row + place, str(chunk.keys[place]), *found)
                )
            elif self._known + len(accepted) < _ACCEPTED:
                accepted.append(place)
        self._row += len(answers)
        is_full = sum(part.size for part in self._features) >= MOST_NUMBERS
        if (places or accepted) and not is_full:
            features = self._classifier.features(
                _taken(chunk.values, places + accepted)
            )
            self._features.append(features[: len(places)])
            known = features[len(places) :].astype("float64")
            self._sum = self._sum + known.sum(axis=0)
            self._known += len(accepted)

    def finish(self) -> Rejected:
        """All of the block."""
        columns = list(zip(*self._found, strict=True)) or [()] * 4
        rows, keys, predicted, scores = columns
        features = self._features or [np.zeros((0, 0), "float32")]
        return Rejected(
            np.array(rows, "int64"),
            np.array(keys, "str"),
            np.array(predicted, "str"),
            np.array(scores, "float64"),
            np.concatenate(features),
            np.asarray(self._sum, "float64"),
            np.array(self._known),
        )


def _taken(values, places):
    if isinstance(values, list):
        return [values[place] for place in places]
    return values[places]
