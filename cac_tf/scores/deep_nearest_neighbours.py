# SPDX-License-Identifier: Apache-2.0
"""Deep nearest neighbours (Sun et al., ICML 2022)."""

import keras

from cac_tf.scores.nearest_examples import NearestExamplesScore


@keras.saving.register_keras_serializable(package="CacTf")
class DeepNearestNeighbours(NearestExamplesScore):
    """Unknown score `1 - s_k`, in [0, 2].

    s_k is the cosine similarity of an input's features to those of the k-th
    most similar training example of the bank. (The authors take the Euclidean
    distance of unit vectors: the same order.)

    Args:
        neighbours: k.
        bank_size: this, further arguments and errors as of
            `NearestExamplesScore`.

    Example:

    >>> import numpy as np
    >>> score = DeepNearestNeighbours(neighbours=1)
    >>> score.fit([0, 1], features=np.float32([[1, 0], [0, 2]]))
    >>> np.asarray(score(np.float32([[5, 0], [-1, 0]])))
    array([0., 1.], dtype=float32)
    """

    NAME, NEEDS = "deep_nearest_neighbours", ("features",)
    IS_NON_NEGATIVE = True

    def __init__(self, neighbours=1, bank_size=10_000, **kwargs):
        super().__init__(neighbours, bank_size, **kwargs)

    def from_similarity(self, similarity):
        # A similarity may round to more than 1.
        return keras.ops.maximum(1.0 - similarity, 0.0)
