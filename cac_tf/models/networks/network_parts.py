# SPDX-License-Identifier: Apache-2.0
"""The parts that the benchmark's networks are made of."""

import keras
import numpy as np
from keras import layers

from cac_tf.layers.batch_normalization import BatchNormalization


def seed_sequence(seed):
    """Yields whole numbers: the same ones for the same seed.

    Example:

    >>> one, two = seed_sequence(7), seed_sequence(7)
    >>> [next(one), next(one)] == [next(two), next(two)]
    True
    """
    generator = keras.random.SeedGenerator(seed)
    while True:
        number = keras.random.randint((), 0, 2**31 - 1, seed=generator)
        yield int(keras.ops.convert_to_numpy(number))


def network_of_vectors(
    num_classes, input_shape, hidden, dropout, weight_decay, seed, name
):
    """A dense layer of logits, behind a hidden layer of ReLUs or none.

    Args:
        hidden: width of the hidden layer; None: there is none.
        (The others are those of `mlp` and `linear`.)
    """
    penalty = l2_penalty(weight_decay)
    seeds = seed_sequence(seed)
    inputs = keras.Input(input_shape, name="inputs")
    x = layers.Flatten(name="flatten")(inputs) if input_shape[1:] else inputs
    if hidden is not None:
        x = layers.Dense(
            hidden,
            activation="relu",
            kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
            kernel_regularizer=penalty,
            bias_regularizer=penalty,
            name="features",
        )(x)
    if dropout:
        x = layers.Dropout(dropout, seed=next(seeds), name="dropout")(x)
    logits = logits_layer(num_classes, penalty, next(seeds))(x)
    return keras.Model(inputs, logits, name=name)


def l2_penalty(weight_decay):
    """Regularizer with the gradient `weight_decay * w`, or None for 0."""
    # Keras' L2(l) has the gradient 2 l w.
    return keras.regularizers.L2(weight_decay / 2) if weight_decay else None


def normalized_convolution(x, filters, size, strides, penalty, seed, name):
    """A convolution without bias, padded as in PyTorch, and its batch norm.

    Args:
        x: (B, H, W, C) Keras tensor.
        filters, size, strides: of the convolution.
        penalty: regularizer of all weights, or None.
        seed: seed of the initialization, He normal by fan-out.
        name: name of the layers, with a placeholder for their kind, e.g.
            "{}1".

    Returns:
        Keras tensor.
    """
    padding = "same" if strides == 1 else "valid"
    if strides > 1 and size == 3:
        # "same" would pad a strided convolution on one side only.
        x = layers.ZeroPadding2D(1, name=name.format("pad"))(x)
    x = layers.Conv2D(
        filters,
        size,
        strides=strides,
        padding=padding,
        use_bias=False,
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=np.sqrt(2.0 / (size**2 * filters)), seed=seed
        ),
        kernel_regularizer=penalty,
        name=name.format("conv"),
    )(x)
    return BatchNormalization(
        momentum=0.9,
        epsilon=1e-5,
        beta_regularizer=penalty,
        gamma_regularizer=penalty,
        name=name.format("norm"),
    )(x)


def logits_layer(num_classes, penalty, seed, name="logits"):
    """The last layer: dense, N(0, 0.01), in float32 under any policy."""
    return layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=0.01, seed=seed
        ),
        kernel_regularizer=penalty,
        bias_regularizer=penalty,
        # Near 10 a bfloat16 logit has steps of 0.06.
        dtype="float32",
        name=name,
    )
