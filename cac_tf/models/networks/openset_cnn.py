# SPDX-License-Identifier: Apache-2.0
"""The benchmark's convolutional network (after Neal et al., ECCV 2018)."""

import keras
from keras import layers

from cac_tf.models.networks import network_parts
from cac_tf.models.networks.registry import register

# (filters, strides) of the nine convolutions, in three blocks; the last one
# of each block halves the map.
_BLOCKS = (
    ((64, 1), (64, 1), (128, 2)),
    ((128, 1), (128, 1), (128, 2)),
    ((128, 1), (128, 1), (128, 2)),
)


@register
def openset_cnn(
    num_classes: int,
    input_shape: tuple[int, int, int] = (32, 32, 3),
    dropout: float = 0.2,
    weight_decay: float = 0.0,
    seed: int | None = None,
    name: str = "openset_cnn",
) -> keras.Model:
    """The network of the paper's benchmark, ending in logits.

    Nine 3x3 convolutions without bias, each followed by batch normalization and
    leaky ReLU (slope 0.2); channel dropout after every third one; one dense
    layer. Padding and initialization are those of the paper's authors: one
    pixel on every side (Keras' "same" pads strided convolutions on the other
    side), He normal by fan-out, dense N(0, 0.01).

    Args:
        num_classes: number N of known classes.
        input_shape: (height, width, channels), e.g. 32x32 or 64x64.
        dropout: share of channels dropped after each block, in [0, 1).
        weight_decay: L2 penalty on all trainable weights, including batch norm
            and biases, as a gradient of `weight_decay * w`.
        seed: seed of initialization and dropout.
        name: name of the model.

    Returns:
        A functional `keras.Model`, (B, height, width, channels) ->
        (B, num_classes), its last layer in float32 under any policy.

    Example:

    >>> import cac_tf, numpy as np
    >>> net = cac_tf.models.openset_cnn(6)
    >>> sum(int(np.prod(w.shape)) for w in net.trainable_weights)
    1011398
    """
    penalty = network_parts.l2_penalty(weight_decay)
    seeds = network_parts.seed_sequence(seed)

    inputs = keras.Input(input_shape, name="images")
    x = inputs
    index = 0
    for block in _BLOCKS:
        for filters, strides in block:
            index += 1
            x = network_parts.normalized_convolution(
                x, filters, 3, strides, penalty, next(seeds), f"{{}}{index}"
            )
            x = layers.LeakyReLU(negative_slope=0.2, name=f"relu{index}")(x)
        x = layers.SpatialDropout2D(
            dropout, seed=next(seeds), name=f"dropout{index}"
        )(x)
    x = layers.Flatten(name="features")(x)
    logits = network_parts.logits_layer(num_classes, penalty, next(seeds))(x)
    return keras.Model(inputs, logits, name=name)
