# SPDX-License-Identifier: Apache-2.0
"""The float type in which distances, losses and scores are computed."""

import contextlib
from collections.abc import Iterator

import keras
from keras import ops

from cac_tf.annotations import Tensor


def full_precision(x: Tensor) -> Tensor:
    """Converts `x` to a float tensor of at least 32 bits.

    float32 and float64 stay as they are; half precision and integers become
    float32. Near a center a bfloat16 distance has steps of 0.06, which is
    more than the differences that the method has to resolve.
    """
    x = ops.convert_to_tensor(x)
    if keras.backend.standardize_dtype(x.dtype) in ("float32", "float64"):
        return x
    return ops.cast(x, "float32")


@contextlib.contextmanager
def dtype_policy(policy: str) -> Iterator[None]:
    """Layers that are made inside have this dtype policy of Keras.

    Example:

    >>> with dtype_policy("mixed_bfloat16"):
    ...     keras.layers.Dense(2).compute_dtype
    'bfloat16'
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
