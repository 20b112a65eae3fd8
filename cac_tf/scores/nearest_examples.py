# SPDX-License-Identifier: Apache-2.0
"""What scores have in common that compare features with training examples."""

import numpy as np
from keras import ops
from sklearn.neighbors import NearestNeighbors

from cac_tf.precision import full_precision
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import ClassSamples
from cac_tf.scores.statistics import check_memory


class NearestExamplesScore(Score):
    """A score of the cosine similarity to the k-th most similar example.

    Features are compared with a bank of training examples, the same number
    of each class. A subclass defines `from_similarity(similarity, *others)`,
    which makes the unknown score, (B,), of that similarity, (B,), and of the
    values of `NEEDS` but for the features, its last.

    Args:
        neighbours: k, at least 1.
        bank_size: examples that the bank holds at most, evenly by class.
            Saved and exported with the model: 4 bytes for each of an
            example's features.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: k out of range; in `fit`, a bank that memory cannot hold,
            that has fewer examples than k, or a bank_size below the number of
            classes.
    """

    IS_FITTED_TO_DATA = True

    def __init__(self, neighbours, bank_size, **kwargs):
        super().__init__(**kwargs)
        if neighbours < 1 or neighbours > bank_size:
            raise ValueError(
                f"neighbours must be at least 1 and at most bank_size "
                f"({bank_size}); got {neighbours}."
            )
        self.neighbours, self.bank_size = int(neighbours), int(bank_size)

    def start_fit(self, num_classes):
        if num_classes > self.bank_size:
            raise ValueError(
                f"A bank of {self.bank_size} examples cannot hold one of "
                f"each of {num_classes} classes: choose a larger bank_size."
            )
        return ClassSamples(self.bank_size, num_classes)

    def add_batch(self, kept, batch):
        # What is collected may become twice the bank until it is pruned.
        rows = min(kept.size + len(batch.labels), 2 * self.bank_size)
        width = batch.features.shape[-1]
        check_memory(
            4 * (rows - min(kept.size, rows)) * width,
            f"A bank of {self.bank_size:,} examples of {width:,} features",
            "Choose a smaller bank_size.",
        )
        kept.add(batch.keys, batch.labels, batch.features)

    def finish_fit(self, kept, known):
        (bank,) = kept.arrays()
        # Zeros have no direction, and are similar to nothing.
        bank = bank[bank.any(axis=-1)]
        check_memory(
            # In float64, and as a weight.
            12 * bank.size,
            f"A bank of {len(bank):,} examples of {bank.shape[-1]:,} features",
            "Choose a smaller bank_size.",
        )
        if len(bank) < self.neighbours:
            raise ValueError(
                f"The bank holds {len(bank)} examples, fewer than the "
                f"{self.neighbours} neighbours that are asked for."
            )
        self.set_statistics(bank=_unit(np.float64(bank)))

    def call(self, *values):
        *others, features = values
        unit = full_precision(features)
        length = ops.sqrt(ops.sum(ops.square(unit), axis=-1, keepdims=True))
        unit = unit / ops.where(length > 0.0, length, 1.0)
        bank = self.statistic("bank")
        similarities = ops.matmul(unit, ops.transpose(bank))
        if self.neighbours == 1:
            return self.from_similarity(ops.max(similarities, axis=-1), *others)
        nearest, _ = ops.top_k(similarities, self.neighbours)
        return self.from_similarity(nearest[:, -1], *others)

    def of_arrays(self, *values):
        """By scikit-learn, which never holds all similarities at once."""
        *others, features = values
        search = NearestNeighbors(
            n_neighbors=self.neighbours, algorithm="brute"
        ).fit(ops.convert_to_numpy(self.statistic("bank")))
        distances, _ = search.kneighbors(_unit(np.float32(features)))
        # Of unit vectors: |a - b|^2 = 2 - 2 cos. Zeros are similar to nothing.
        similarity = 1.0 - distances[:, -1] ** 2 / 2.0
        similarity = np.where(features.any(axis=-1), similarity, 0.0)
        return ops.convert_to_numpy(
            self.from_similarity(np.float32(similarity), *others)
        )

    def get_config(self):
        return {
            **super().get_config(),
            "neighbours": self.neighbours,
            "bank_size": self.bank_size,
        }


def _unit(vectors):
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 0.0, length, 1.0)
