# SPDX-License-Identifier: Apache-2.0
"""The handwritten digits that come with scikit-learn: no download."""

import numpy as np

from cac_tf import lazy
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register

datasets = lazy.module("sklearn.datasets")


@register
class Digits(DataSource):
    """scikit-learn's digits, split like MNIST."""

    NAME = TAKES = "digits"
    DATASETS = (NAME,)

    def load(self, dataset, classes):
        examples, class_names = load_digits()
        return LabelledParts(class_names, examples, white=WHITE)


def load_digits() -> tuple[Examples, tuple[str, ...]]:
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
