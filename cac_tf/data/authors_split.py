# SPDX-License-Identifier: Apache-2.0
"""The validation images that the paper's authors set apart.

Their released weights were trained on the others, so only these can calibrate
a threshold for them, and only the others give the class means of the paper.
"""

import random

import numpy as np

_SEED = 1000
_TRAINING_SHARE = 0.8


def authors_training_index(labels, counts_before):
    """Which training images of a data set the authors trained on.

    They shuffle the images of each class with Python's generator, which is
    seeded once, before the first data set.

    Args:
        labels: (n,) class ids in the published order of the data set.
        counts_before: images per class of the data sets that they split
            before this one, in their order.

    Returns:
        (n,) bool, True for training, False for validation.

    Example:

    >>> chosen = authors_training_index(np.repeat([0, 1], 10), [[5, 5]])
    >>> chosen.sum(), chosen[:10].sum()
    (np.int64(16), np.int64(8))
    """
    generator = random.Random(_SEED)
    for counts in counts_before:
        for count in counts:
            generator.shuffle(list(range(count)))
    is_training = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label).tolist()
        generator.shuffle(rows)
        is_training[rows[: int(_TRAINING_SHARE * len(rows))]] = True
    return is_training
