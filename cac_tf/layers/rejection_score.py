# SPDX-License-Identifier: Apache-2.0
"""Rejection scores gamma (paper, equation 8)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.layers.precision import full_precision

_SMALLEST_NORMAL = float(np.finfo("float32").tiny)


def softmin(distances: Tensor) -> Tensor:
    """`softmax(-distances)`: the classes' shares in an input; rows sum to 1.

    Args:
        distances: (B, N) float tensor.

    Returns:
        (B, N) in [0, 1].

    Example:

    >>> import numpy as np
    >>> from cac_tf.layers.rejection_score import softmin
    >>> np.round(np.asarray(softmin([[0.0, 1.0, 100.0]])), 4)
    array([[0.7311, 0.2689, 0.    ]], dtype=float32)
    """
    return ops.softmax(-full_precision(distances), axis=-1)


def share_of_others(distances: Tensor) -> Tensor:
    """`1 - softmin(distances)`, precise even where a share rounds to 1.

    At most one share of a row exceeds one half; its complement is the sum of
    the others. Below one half, subtraction loses nothing.

    Args:
        distances: (B, N) float tensor.

    Returns:
        (B, N) in (0, 1]. Never 0, so that scores keep an order, by the
        distance alone, where the other centers are more than 87 farther away.
    """
    shares = softmin(distances)
    is_large = shares > 0.5
    others = ops.where(is_large, 0.0, shares)
    return ops.where(
        is_large,
        ops.maximum(ops.sum(others, axis=-1, keepdims=True), _SMALLEST_NORMAL),
        1.0 - shares,
    )


def rejection_scores(distances: Tensor) -> Tensor:
    r"""gamma: \\(d \circ (1 - \mathrm{softmin}(d))\\), equation 8.

    Small means "this class".

    Args:
        distances: (B, N) float tensor, >= 0. Half precision is computed in
            float32.

    Returns:
        (B, N) scores >= 0.

    Example:

    >>> import numpy as np
    >>> from cac_tf.layers.rejection_score import rejection_scores
    >>> np.round(np.asarray(rejection_scores([[1.0, 2.0]])), 4)
    array([[0.2689, 1.4621]], dtype=float32)
    """
    distances = full_precision(distances)
    return distances * share_of_others(distances)


@keras.saving.register_keras_serializable(package="CacTf")
class RejectionScore(keras.layers.Layer):
    """Rejection scores gamma of every class, from distances (equation 8).

    Call arguments:
        distances: (B, N), from `AnchoredDistance`.

    Returns:
        (B, N) float32; the unknown score of an input is the row's minimum.

    Example:

    >>> import numpy as np, cac_tf
    >>> gamma = cac_tf.layers.RejectionScore()(np.float32([[1.0, 2.0]]))
    >>> np.round(np.asarray(gamma), 4)
    array([[0.2689, 1.4621]], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**kwargs)

    def call(self, distances: Tensor) -> Tensor:
        return rejection_scores(distances)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
