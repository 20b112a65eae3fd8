# SPDX-License-Identifier: Apache-2.0
"""NNGuide: energy guided by nearest neighbours (Park et al., ICCV 2023)."""

import keras
from keras import ops

from cac_tf.precision import full_precision
from cac_tf.scores.nearest_examples import NearestExamplesScore


@keras.saving.register_keras_serializable(package="CacTf")
class NNGuide(NearestExamplesScore):
    r"""Unknown score \\(-s_k \log \sum_j e^{z_j}\\).

    s_k is the cosine similarity of an input's features to those of the k-th
    most similar training example of the bank. (The authors average over the k
    nearest, each weighted by its own energy.) Logits whose log-sum-exp may be
    below 0 turn the guidance round.

    Args:
        neighbours: k.
        bank_size: this, further arguments and errors as of
            `NearestExamplesScore`.

    Example:

    >>> import numpy as np
    >>> score = NNGuide(neighbours=1)
    >>> logits = np.float32([[9, 0], [0, 9]])
    >>> score.fit([0, 1], logits=logits, features=logits)
    >>> np.asarray(score(logits, np.float32([[1, 0], [1, 1]]))).round(2)
    array([-9.  , -6.36], dtype=float32)
    """

    NAME, NEEDS = "nnguide", ("logits", "features")

    def __init__(self, neighbours=10, bank_size=10_000, **kwargs):
        super().__init__(neighbours, bank_size, **kwargs)

    def from_similarity(self, similarity, logits):
        return -similarity * ops.logsumexp(full_precision(logits), axis=-1)
