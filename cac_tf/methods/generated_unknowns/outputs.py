# SPDX-License-Identifier: Apache-2.0
"""Outputs of a network for many inputs."""

import keras
import numpy as np


def outputs_of(network, inputs, batch_size=32):
    """Like `keras.Model.predict`, also where several processes train.

    There, `predict` would give each process a part of every batch, and none
    could read the whole.

    Args:
        network: `keras.Model`.
        inputs: array of n rows, or a list of such arrays.
        batch_size: rows that are computed at once.

    Returns:
        Arrays of n rows, nested as the network's outputs are.

    Example:

    >>> outputs_of(keras.Sequential([keras.layers.ReLU()]),
    ...     np.float32([[-1], [2], [3]]), batch_size=2).tolist()
    [[0.0], [2.0], [3.0]]
    """
    several = isinstance(inputs, list)
    rows = len(inputs[0] if several else inputs)
    parts = []
    for start in range(0, rows, batch_size):
        stop = start + batch_size
        part = [x[start:stop] for x in (inputs if several else [inputs])]
        parts.append(network.predict_on_batch(part if several else part[0]))
    return keras.tree.map_structure(lambda *x: np.concatenate(x), *parts)
