# SPDX-License-Identifier: Apache-2.0
"""What a training depends on to the last bit: seed, threads, kernels."""

import dataclasses
import os

import keras


@dataclasses.dataclass(frozen=True)
class Runtime:
    """How a process trains.

    The same seed gives the same weights only with the same number of threads
    (`intra_op_threads`), on the same kind of device and with the same
    versions. With other threads, a sum adds its terms in another order, on
    which floating-point sums depend.

    Example:

    >>> runtime = Runtime(seed=3)
    >>> runtime.start()
    >>> first = keras.random.normal([2], seed=keras.random.SeedGenerator())
    >>> runtime.start()
    >>> again = keras.random.normal([2], seed=keras.random.SeedGenerator())
    >>> bool(keras.ops.all(first == again))
    True
    >>> runtime.intra_op_threads > 0
    True
    """

    # Of initialisation, dropout and augmentation, in 0...2^32 - 1.
    seed: int
    # On TensorFlow: use operations that give the same bits each time, although
    # others may be faster. Once switched on, this stays on in the process. (JAX
    # has no others on a CPU.)
    deterministic: bool = True

    def start(self):
        """Seeds Python, NumPy and the backend; makes operations deterministic.

        Call it before the model is made, once for each model that must be the
        same.
        """
        keras.utils.set_random_seed(self.seed)
        if self.deterministic and keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()

    @property
    def intra_op_threads(self):
        """Largest number of threads that share one CPU operation (int)."""
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            chosen = tf.config.threading.get_intra_op_parallelism_threads()
            return chosen or usable_cores()
        if keras.backend.backend() == "jax":
            # XLA's own variable; it is read when JAX starts its CPU client.
            return int(os.environ.get("NPROC") or usable_cores())
        return usable_cores()


def usable_cores():
    """Number of CPU cores that this process may run on.

    Example:

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
