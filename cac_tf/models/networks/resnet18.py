# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 for small images (He et al., CVPR 2016; the paper's Table 3)."""

import keras
from keras import layers

from cac_tf.models.networks import network_parts
from cac_tf.models.networks.registry import register

# (filters, strides) of the four stages, two blocks each.
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


@register
def resnet18(
    num_classes: int,
    input_shape: tuple[int, int, int] = (32, 32, 3),
    dropout: float = 0.0,
    weight_decay: float = 0.0,
    seed: int | None = None,
    name: str = "resnet18",
) -> keras.Model:
    """ResNet-18 in its variant for 32x32 images, ending in logits.

    A 3x3 convolution at full resolution instead of the 7x7 one with pooling;
    four stages of two basic blocks; global average pooling.

    Args:
        num_classes: number N of known classes.
        input_shape: (height, width, channels).
        dropout: share of the pooled features dropped, in [0, 1).
        weight_decay: L2 penalty on all trainable weights, including batch norm
            and biases, as a gradient of `weight_decay * w`.
        seed: seed of initialization and dropout.
        name: name of the model.

    Returns:
        A functional `keras.Model`, (B, height, width, channels) ->
        (B, num_classes), its last layer in float32 under any policy.

    Example:

    >>> import cac_tf, numpy as np
    >>> net = cac_tf.models.resnet18(10)
    >>> sum(int(np.prod(w.shape)) for w in net.trainable_weights)
    11173962
    """
    penalty = network_parts.l2_penalty(weight_decay)
    seeds = network_parts.seed_sequence(seed)

    def convolution(x, filters, size, strides, place):
        return network_parts.normalized_convolution(
            x, filters, size, strides, penalty, next(seeds), f"{place}_{{}}"
        )

    inputs = keras.Input(input_shape, name="images")
    x = layers.ReLU(name="relu1")(convolution(inputs, 64, 3, 1, "first"))
    for stage, (filters, strides) in enumerate(_STAGES, 1):
        for block, block_strides in ((1, strides), (2, 1)):
            place = f"stage{stage}_block{block}"
            shortcut = x
            if block_strides == 2:
                shortcut = convolution(x, filters, 1, 2, f"{place}_shortcut")
            x = convolution(x, filters, 3, block_strides, f"{place}_1")
            x = layers.ReLU(name=f"{place}_relu1")(x)
            x = convolution(x, filters, 3, 1, f"{place}_2")
            x = layers.Add(name=f"{place}_add")([x, shortcut])
            x = layers.ReLU(name=f"{place}_relu2")(x)
    x = layers.GlobalAveragePooling2D(name="features")(x)
    if dropout:
        x = layers.Dropout(dropout, seed=next(seeds), name="dropout")(x)
    logits = network_parts.logits_layer(num_classes, penalty, next(seeds))(x)
    return keras.Model(inputs, logits, name=name)
