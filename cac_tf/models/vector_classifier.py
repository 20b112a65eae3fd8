# SPDX-License-Identifier: Apache-2.0
"""A classifier of inputs that are no images, from normalization and network."""

import keras
import numpy as np
from numpy.typing import ArrayLike

from cac_tf.models.backbone_checks import by_name


def vector_classifier(
    mean: ArrayLike, std: ArrayLike, network: keras.Model
) -> keras.Model:
    """A classifier of raw numbers: `network((x - mean) / std)`.

    Args:
        mean, std: of the shape of an input.
        network: Keras model of normalized inputs.

    Returns:
        A functional `keras.Model`.

    Example:

    >>> network = keras.Sequential([keras.Input([2]), keras.layers.Dense(3)])
    >>> classifier = vector_classifier([0, 10], [1, 5], network)
    >>> x = np.float32([[1, 20]])
    >>> same = network(np.float32([[1, 2]])) - classifier(x)
    >>> float(keras.ops.max(keras.ops.abs(same))) < 1e-6
    True
    """
    mean, variance = np.asarray(mean), np.square(np.asarray(std, "float64"))
    inputs = keras.Input(mean.shape, name="inputs")
    normalize = keras.layers.Normalization(
        axis=tuple(range(1, mean.ndim + 1)),
        mean=mean.tolist(),
        variance=variance.tolist(),
        # Under any policy, as numbers may be large.
        dtype="float32",
        name="normalization",
    )
    outputs = network(normalize(inputs))
    if isinstance(outputs, dict):
        outputs = by_name(outputs, network.name)
    return keras.Model(inputs, outputs, name="classifier")
