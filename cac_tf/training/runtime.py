# SPDX-License-Identifier: Apache-2.0
"""How a process trains: seed, kernels, threads, devices."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import keras

from cac_tf.cores import usable_cores
from cac_tf.keras_private import placing_by_own_shape
from cac_tf.training.processes import Processes


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

    # Of initialization, dropout and augmentation, in 0...2^32 - 1.
    seed: int
    # On TensorFlow: use operations that give the same bits each time, although
    # others may be faster. Once switched on, this stays on in the process. (JAX
    # has no others on a CPU.)
    deterministic: bool = True
    # Each batch is divided among this many devices: the accelerators that the
    # backend finds first or, where it finds none, virtual ones of the CPU.
    devices: int = 1
    # Those that train together; each has that many devices.
    processes: Processes = dataclasses.field(default_factory=Processes)

    def __post_init__(self):
        if self.devices < 1:
            raise ValueError(f"devices must be at least 1; got {self.devices}.")

    def start(self) -> None:
        """Seeds Python, NumPy and the backend; makes operations deterministic.

        Call it before the model is made, once for each model that must be the
        same.
        """
        keras.utils.set_random_seed(self.seed)
        if self.deterministic and keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """All processes are connected inside; see `Processes.connected`."""
        if self.processes.num_processes > 1:
            _ask_for_cpu_devices(self.devices)
        with self.processes.connected():
            yield

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Models that are made and trained inside use all devices.

        The weights are those of one device, up to rounding. (On TensorFlow,
        with the same random numbers on each of them: a network with dropout or
        augmentation is trained as well as on one device, but not alike.) With
        several processes, use it inside `connected`; each of them computes
        the same outputs of the model, of all rows.

        Raises:
            ValueError: fewer devices than wanted; or, on TensorFlow, another
                number of them than before in this process.
        """
        if self.devices == self.processes.num_processes == 1:
            yield
        elif keras.backend.backend() == "tensorflow":
            with _mirrored_strategy(self.devices).scope():
                yield
        else:
            before = keras.distribution.distribution()
            keras.distribution.set_distribution(
                _data_parallel(_jax_devices(self.devices))
            )
            try:
                with placing_by_own_shape():
                    yield
            finally:
                keras.distribution.set_distribution(before)

    @property
    def intra_op_threads(self) -> int:
        """Largest number of threads that share one CPU operation (int)."""
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            chosen = tf.config.threading.get_intra_op_parallelism_threads()
            return chosen or usable_cores()
        if keras.backend.backend() == "jax":
            # XLA's own variable; it is read when JAX starts its CPU client.
            return int(os.environ.get("NPROC") or usable_cores())
        return usable_cores()


# The MirroredStrategy of this process: TensorFlow takes the messages of a
# second one for those of the first.
_strategies: dict[int, Any] = {}


def _mirrored_strategy(count):
    import tensorflow as tf

    if count not in _strategies:
        if _strategies:
            raise ValueError(
                f"devices={count} was requested, but "
                f"{next(iter(_strategies))} were used earlier in this "
                "process. TensorFlow needs a new process for each number of "
                "devices."
            )
        names = _tensorflow_devices(count)
        _strategies[count] = tf.distribute.MirroredStrategy(names)
    return _strategies[count]


def _tensorflow_devices(count):
    """Names of devices; virtual ones are made if needed."""
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return _first(tf.config.list_logical_devices("GPU"), count)
    (cpu,) = tf.config.list_physical_devices("CPU")
    with contextlib.suppress(RuntimeError):  # TensorFlow has started.
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    return _first(tf.config.list_logical_devices("CPU"), count)


def _jax_devices(count):
    """The first devices of each process."""
    import jax

    _ask_for_cpu_devices(count)
    return [
        device
        for process in range(jax.process_count())
        for device in _first(jax.local_devices(process), count)
    ]


def _ask_for_cpu_devices(count):
    import jax

    with contextlib.suppress(RuntimeError):  # JAX has started.
        jax.config.update("jax_num_cpu_devices", count)


def _first(devices, count):
    if len(devices) < count:
        raise ValueError(
            f"devices={count} was requested, but {keras.backend.backend()} "
            f"has {len(devices)} of this kind here. (Virtual CPU devices must "
            "be requested before anything is computed.)"
        )
    return devices[:count]


def _data_parallel(devices):
    class DataParallel(keras.distribution.DataParallel):
        """Every device computes the whole of a batch that does not divide.

        So no row is added or left out, and statistics of the batch are exact.
        """

        def get_data_layout(self, data_shape):
            if data_shape[0] % len(devices):
                axes = [None] * len(data_shape)
                return keras.distribution.TensorLayout(axes, self.device_mesh)
            return super().get_data_layout(data_shape)

    # Every process reads whole batches.
    return DataParallel(devices=devices, auto_shard_dataset=False)
