# SPDX-License-Identifier: Apache-2.0
"""Several processes, on one host or on several, that train one model."""

import contextlib
import dataclasses
import json
import pathlib
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from cac_tf.annotations import Path

# Seconds without a sign of life after which a process counts as lost. (Mostly
# it is found at once, by its closed connections.)
_HEARTBEAT = 20


class ProcessLostError(RuntimeError):
    """Another process of the training has ended or cannot be reached."""


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes that train one model together, and this one's id.

    All of them run the same program, each with its own `process_id`, on the
    same data. Only the first writes to the run's folder. Needs JAX: Keras 3's
    `fit` does not work under TensorFlow's MultiWorkerMirroredStrategy.

    Args:
        coordinator: "host:port" of the process with id 0, which opens that port
            for the others. Not needed for a single process.
        num_processes: number of processes, at least 1.
        process_id: id of this process, 0...num_processes - 1.

    Raises:
        ValueError: a value out of range, or several processes on a backend
            other than JAX.

    Example:

    >>> from cac_tf.training import Processes
    >>> Processes("10.0.0.1:9876", num_processes=2, process_id=2)
    Traceback (most recent call last):
    ...
    ValueError: process_id must be in 0...1; got 2.
    """

    coordinator: str | None = None
    num_processes: int = 1
    process_id: int = 0

    def __post_init__(self):
        if self.num_processes < 1:
            raise ValueError(
                f"num_processes must be at least 1; got {self.num_processes}."
            )
        if not 0 <= self.process_id < self.num_processes:
            raise ValueError(
                f"process_id must be in 0...{self.num_processes - 1}; got "
                f"{self.process_id}."
            )
        if self.num_processes == 1 and self.coordinator is None:
            return
        if self.num_processes == 1:
            raise ValueError(
                "coordinator has no effect with num_processes=1: leave it "
                "out, or set the number of processes."
            )
        if not re.fullmatch(r".+:\d{1,5}", self.coordinator or ""):
            raise ValueError(
                "coordinator must be host:port, such as 10.0.0.1:9876; got "
                f"{self.coordinator!r}."
            )
        if keras.backend.backend() != "jax":
            raise ValueError(
                "Training with several processes needs JAX "
                f"(KERAS_BACKEND=jax); on {keras.backend.backend()}, use "
                "several devices of one machine: devices=N."
            )

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes the results."""
        return self.process_id == 0

    @contextlib.contextmanager
    def connected(self, timeout: int = 300) -> Iterator[None]:
        """Context manager that connects this process with the others.

        Use it before JAX computes anything, and only once per process.

        Args:
            timeout: seconds to wait for all processes.

        Raises:
            ProcessLostError: the first process cannot be reached, or one was
                lost meanwhile. JAX then ends this process soon after; an
                interrupted run resumes once all are restarted.
        """
        if self.num_processes == 1:
            yield
            return
        import jax

        if not self.is_first:
            _wait_for(self.coordinator, timeout)
        # `keras.distribution.initialize` does the same, but hands on neither
        # the timeout nor how soon a lost process is found.
        jax.distributed.initialize(
            self.coordinator,
            self.num_processes,
            self.process_id,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=_HEARTBEAT,
        )
        try:
            yield
        except Exception as error:  # JAX has several types for it.
            if "Gloo" not in str(error) and "NCCL" not in str(error):
                raise
            raise ProcessLostError(
                f"Process {self.process_id} of {self.num_processes} lost its "
                "connection to another process, which has failed or was "
                "stopped; see its messages. Start all of them again with the "
                "same commands: the run continues from the last finished "
                "epoch."
            ) from error
        jax.distributed.shutdown()

    @contextlib.contextmanager
    def own_folder(self, path: Path) -> Iterator[Path]:
        """Where this process may write.

        Yields:
            `path` in the first process; in others, a temporary folder.
        """
        if self.is_first:
            yield path
        else:
            with tempfile.TemporaryDirectory(prefix="cac_tf_") as folder:
                yield folder

    def of_first(self, value: Any) -> Any:
        """The first process's value, a JSON-able one, in all of them."""
        return json.loads(self._bytes_of_first(json.dumps(value).encode()))

    def share(self, folder: Path) -> None:
        """Gives all of them the arrays in a folder of the first one."""
        folder = pathlib.Path(folder)
        found = [path.name for path in sorted(folder.glob("*.np[yz]"))]
        for name in self.of_first(found):
            mine = folder / name
            content = self._bytes_of_first(
                mine.read_bytes() if self.is_first else b""
            )
            if not self.is_first:
                folder.mkdir(exist_ok=True)
                mine.write_bytes(content)

    def _bytes_of_first(self, content):
        if self.num_processes == 1:
            return content
        from jax.experimental import multihost_utils

        length = multihost_utils.broadcast_one_to_all(np.int32(len(content)))
        array = np.zeros(length, "uint8")
        if self.is_first:
            array[:] = np.frombuffer(content, "uint8")
        return np.asarray(multihost_utils.broadcast_one_to_all(array)).tobytes()


def _wait_for(address, timeout):
    """Returns once a port takes connections. JAX would end the process."""
    host, port = address.rsplit(":", 1)
    until = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5):
                return
        except (OSError, OverflowError) as error:  # Ports end at 65535.
            if time.monotonic() > until or isinstance(error, OverflowError):
                raise ProcessLostError(
                    f"Cannot reach the first process at {address}: {error}."
                ) from error
            time.sleep(0.2)
