# SPDX-License-Identifier: Apache-2.0
"""What one process at a time may write, and who does."""

import contextlib
import os
import socket
from collections.abc import Callable
from collections.abc import Iterator

import filelock

from cac_tf.annotations import Path


class LockedError(ValueError):
    """Another process writes what only one may write.

    Attributes:
        holder: who does, as a text.
    """

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is being written by {holder}.")
        self.holder = holder


@contextlib.contextmanager
def writing(
    path: Path, lock_file: Path, waits: bool = False
) -> Iterator[Callable[[], bool]]:
    """A context in which no other process writes the same.

    The operating system frees the lock when its process ends, however that
    ends. So a lock file that a killed process left stops nobody.

    Args:
        path: what is written, for the error.
        lock_file: path of a file that says so; deleted at the end.
        waits: until another process is done, instead of the error.

    Yields:
        A function: whether the lock file is still there, or was deleted, as
        with its folder.

    Raises:
        LockedError: another process, or another context of this one, writes.
        OSError: the lock file cannot be written.

    Example:

    >>> import tempfile
    >>> lock_file = os.path.join(tempfile.mkdtemp(), "lock")
    >>> with writing("notes", lock_file), writing("notes", lock_file):
    ...     pass  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    cac_tf.file_lock.LockedError: notes is being written by process ... on ...
    """
    lock = filelock.FileLock(
        lock_file, timeout=-1 if waits else 0, thread_local=False
    )
    try:
        held = lock.acquire()
    except filelock.Timeout:
        raise LockedError(path, _holder(lock_file)) from None
    with held:
        # Where a file system has no locks, one by the file's existence stands
        # in, whose file says by itself who holds it, in the same two lines.
        if not isinstance(lock, filelock.SoftFileLock):
            with open(lock_file, "w", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n{socket.gethostname()}\n")
        ours = os.stat(lock_file)

        def is_in_place():
            try:
                return os.path.samestat(os.stat(lock_file), ours)
            except FileNotFoundError:
                return False

        try:
            yield is_in_place
        finally:
            if is_in_place():
                # Before it is freed: afterwards it may be another process's.
                os.unlink(lock_file)


def _holder(lock_file):
    try:
        with open(lock_file, encoding="utf-8") as file:
            process, host = file.read().split()[:2]
    except (OSError, ValueError):
        # It has the lock, and has not written its name yet.
        return "another process"
    return f"process {process} on {host}"
