# SPDX-License-Identifier: Apache-2.0
"""Running a function eagerly, as a graph and under XLA, on either backend."""

import contextlib

import keras
import numpy as np

BACKEND = keras.backend.backend()
MODES = {
    "tensorflow": ("eager", "graph", "xla"),
    # Eagerly, JAX compiles the same operations one by one, for minutes.
    "jax": ("jit",),
}[BACKEND]


def compiled(function, mode):
    """`function` as `mode` runs it; takes and gives NumPy arrays."""
    if mode == "eager":
        run = function
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        run = tf.function(function, jit_compile=mode == "xla")
    else:
        import jax

        run = jax.jit(function)

    def call(*arrays):
        return np.asarray(run(*map(keras.ops.convert_to_tensor, arrays)))

    return call


def float64():
    """A context in which the backend computes float64 inputs in float64."""
    if BACKEND == "jax":
        import jax

        return jax.enable_x64(True)
    return contextlib.nullcontext()


def gradient(function, mode="eager"):
    """Gradient of the sum of `function(x, *rest)` by x, as NumPy arrays."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def by_x(x, *rest):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(function(x, *rest))
            return tape.gradient(total, x)
    else:
        import jax

        by_x = jax.grad(lambda x, *rest: function(x, *rest).sum())
    return compiled(by_x, mode)
