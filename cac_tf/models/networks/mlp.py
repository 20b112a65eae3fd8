# SPDX-License-Identifier: Apache-2.0
"""A network with one hidden layer, for vectors and tables of numbers."""

import math

import keras

from cac_tf.models.networks import network_parts
from cac_tf.models.networks.registry import register

# Inputs of more numbers get the wider hidden layer.
_NARROW, _WIDE, _MOST_OF_NARROW = 256, 512, 512


@register
def mlp(
    num_classes: int,
    input_shape: tuple[int, ...],
    dropout: float = 0.0,
    weight_decay: float = 0.0,
    seed: int | None = None,
    name: str = "mlp",
) -> keras.Model:
    """A hidden layer of ReLUs between the input and the logits.

    `z = W2 relu(W1 x + b1) + b2`, with 256 hidden units for inputs of at most
    512 numbers and 512 for others.

    Args:
        num_classes: number N of known classes.
        input_shape: of one input, any; (D,) for vectors.
        dropout: share of the hidden units dropped in training, in [0, 1).
        weight_decay: L2 penalty on all weights, as a gradient of
            `weight_decay * w`.
        seed: seed of initialization and dropout.
        name: name of the model.

    Returns:
        A functional `keras.Model`, (B, *input_shape) -> (B, num_classes), its
        last layer in float32 under any policy.

    Example:

    >>> import cac_tf
    >>> net = cac_tf.models.mlp(6, (384,))
    >>> [tuple(w.shape) for w in net.trainable_weights]
    [(384, 256), (256,), (256, 6), (6,)]
    """
    is_wide = math.prod(input_shape) > _MOST_OF_NARROW
    return network_parts.network_of_vectors(
        num_classes,
        input_shape,
        _WIDE if is_wide else _NARROW,
        dropout,
        weight_decay,
        seed,
        name,
    )
