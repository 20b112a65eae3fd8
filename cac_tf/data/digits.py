# SPDX-License-Identifier: Apache-2.0
"""The handwritten digits that come with scikit-learn: no download."""

import numpy as np
from sklearn import datasets

from cac_tf.data.open_set_dataset import Examples


def load_digits():
    """1,797 grey images of 8x8 pixels of the digits 0 to 9.

    Returns:
        `Examples` (images uint8, (1797, 8, 8, 1), from 17 grey levels) and
        the ten class names.

    Example:

    >>> examples, names = load_digits()
    >>> examples.images.shape, examples.images.max(), names[:3]
    ((1797, 8, 8, 1), np.uint8(255), ('0', '1', '2'))
    """
    digits = datasets.load_digits()
    images = np.rint(digits.images * (255.0 / 16.0)).astype("uint8")
    return (
        Examples(images[..., None], digits.target.astype("int64")),
        tuple(str(name) for name in digits.target_names),
    )
