# SPDX-License-Identifier: Apache-2.0
"""A network without a hidden layer, for vectors and tables of numbers."""

import keras

from cac_tf.models.networks import network_parts
from cac_tf.models.networks.registry import register


@register
def linear(
    num_classes: int,
    input_shape: tuple[int, ...],
    dropout: float = 0.0,
    weight_decay: float = 0.0,
    seed: int | None = None,
    name: str = "linear",
) -> keras.Model:
    """One dense layer: `z = W x + b`.

    Its features are its inputs: what a pretrained network makes of images
    still tells apart classes that a hidden layer, trained on the known ones,
    would map to the same place.

    Args:
        num_classes: number N of known classes.
        input_shape: of one input, any; (D,) for vectors.
        dropout: share of the inputs dropped in training, in [0, 1).
        weight_decay: L2 penalty on all weights, as a gradient of
            `weight_decay * w`.
        seed: seed of initialization and dropout.
        name: name of the model.

    Returns:
        A functional `keras.Model`, (B, *input_shape) -> (B, num_classes), its
        last layer in float32 under any policy.

    Example:

    >>> from cac_tf.models.networks.linear import linear
    >>> [tuple(w.shape) for w in linear(6, (1280,)).trainable_weights]
    [(1280, 6), (6,)]
    """
    return network_parts.network_of_vectors(
        num_classes, input_shape, None, dropout, weight_decay, seed, name
    )
