# SPDX-License-Identifier: Apache-2.0
"""The base of scores that compare features with training examples."""

from typing import Any

import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.arguments import whole_number
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import Sample
from cac_tf.scores.statistics import check_memory

# How many similarities are held at once.
_SIMILARITIES = 1 << 22


class NearestExamplesScore(Score):
    """A score based on the similarity to the k most similar examples.

    Features are compared with a bank of training examples, the same number
    of each class. Similarity is the cosine, times a weight of the example of
    the bank if a subclass defines `bank_weights`. A subclass also defines
    `from_similarities(nearest, *others)`, which computes the unknown score,
    (B,), from the k largest similarities, (B, k) from the largest on, and from
    the other outputs in `READS`, whose last entry is the features.

    Args:
        neighbours: k, at least 1.
        bank_size: largest number of examples in the bank, divided evenly among
            the classes. The bank is saved and exported with the model, at 4
            bytes per feature of each example.
        **kwargs: `name` of the score.

    Raises:
        ValueError: k is out of range; in `fit`, the bank does not fit into
            memory, it has fewer than k examples, or bank_size is below the
            number of classes.
    """

    IS_FITTED_TO_DATA = True
    # Of cosines near 1.
    RESOLUTION = 4 * float(np.finfo("float32").eps)

    def __init__(self, neighbours: int, bank_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.neighbours = whole_number("neighbours", neighbours)
        self.bank_size = whole_number("bank_size", bank_size)
        if self.neighbours > self.bank_size:
            raise ValueError(
                f"neighbours must be at most bank_size ({bank_size}); got "
                f"{neighbours}."
            )

    def start(self, context: Context) -> Any:
        if context.num_classes > self.bank_size:
            raise ValueError(
                f"A bank of {self.bank_size} examples cannot contain one of "
                f"each of the {context.num_classes} classes: choose a larger "
                "bank_size."
            )
        return Sample(self.bank_size, context.num_classes)

    def from_similarities(self, nearest: Tensor, *others: Tensor) -> Tensor:
        """(B,) unknown scores, for a subclass to define."""
        raise NotImplementedError

    def bank_weights(self, batch: KnownBatch) -> np.ndarray | None:
        """(n,) weights of the examples of a `KnownBatch`; None: all are 1."""

    def update(self, kept: Any, batch: KnownBatch) -> None:
        # Up to twice the bank is collected before it is pruned.
        rows = min(kept.seen + len(batch.labels), 2 * self.bank_size)
        width = batch["features"].shape[-1]
        check_memory(
            4 * (rows - min(kept.seen, rows)) * width,
            f"A bank of {self.bank_size:,} examples of {width:,} features",
            "Choose a smaller bank_size.",
        )
        weights = self.bank_weights(batch)
        more = () if weights is None else (weights,)
        kept.add(batch.keys, batch.labels, batch["features"], *more)

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        labels, bank, *weights = kept.arrays()
        scale = np.sqrt(np.einsum("ij,ij->i", bank, bank))
        # A zero vector has no direction and is similar to nothing.
        has_direction = scale != 0.0
        if not has_direction.all():
            bank, scale = bank[has_direction], scale[has_direction]
            labels = labels[has_direction]
        check_memory(
            # The weight.
            4 * bank.size,
            f"A bank of {len(bank):,} examples of {bank.shape[-1]:,} features",
            "Choose a smaller bank_size.",
        )
        if len(bank) < self.neighbours:
            raise ValueError(
                f"The bank contains {len(bank)} examples, fewer than the "
                f"{self.neighbours} neighbours requested."
            )
        factor = weights[0][has_direction] if weights else np.float32(1.0)
        bank *= (factor / scale)[:, None]
        return {"bank": bank, "labels": labels}

    def call(
        self, *values: Tensor, bank: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        *others, features = values
        similarities = similarities_to(features, bank)
        nearest = largest(similarities, self.neighbours)
        return self.from_similarities(nearest, *others)

    def of_arrays(  # type: ignore[override]
        self,
        *values: np.ndarray,
        bank: np.ndarray,
        labels: np.ndarray | None = None,
    ) -> np.ndarray:
        """By NumPy, part by part: never holds all similarities at once."""
        *others, features = values
        bank = ops.convert_to_numpy(bank)
        k, rows = self.neighbours, max(_SIMILARITIES // len(bank), 1)
        nearest = np.empty((len(features), k), "float32")
        for start in range(0, len(features), rows):
            part = unit(features[start : start + rows]) @ bank.T
            if k < len(bank):
                part = np.partition(part, len(bank) - k, axis=-1)[:, -k:]
            nearest[start : start + rows] = np.sort(part, axis=-1)[:, ::-1]
        others = [np.asarray(one, "float32") for one in others]
        return ops.convert_to_numpy(self.from_similarities(nearest, *others))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "neighbours": self.neighbours,
            "bank_size": self.bank_size,
        }


def similarities_to(features: Tensor, bank: Tensor) -> Tensor:
    """(B, M) similarities of (B, D) features to the M rows of a bank."""
    squared = ops.sum(ops.square(features), axis=-1, keepdims=True)
    length = ops.sqrt(squared)
    directions = features / ops.where(length > 0.0, length, 1.0)
    return ops.matmul(directions, ops.transpose(bank))


def largest(similarities: Tensor, count: int) -> Tensor:
    """(B, count): the largest of each row, descending."""
    if count == 1:
        return ops.max(similarities, axis=-1, keepdims=True)
    return ops.top_k(similarities, count)[0]


def unit(vectors: np.ndarray) -> np.ndarray:
    """(n, D) arrays at the length 1; zeros stay what they are."""
    vectors = np.asarray(vectors, "float32")
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 0.0, length, 1.0)
