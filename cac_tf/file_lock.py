# SPDX-License-Identifier: Apache-2.0
"""A file that one process at a time may write."""

import json
import os
import socket

try:
    import fcntl
except ImportError:  # Windows has no such locks: nothing is locked there.
    fcntl = None  # type: ignore[assignment]


class LockedError(ValueError):
    """Another process holds the lock of a file.

    Attributes:
        holder: who does, as a text.
    """

    def __init__(self, path, holder):
        super().__init__(f"{path} is being written by {holder}.")
        self.holder = holder


def open_locked(path):
    """Opens a file for reading and writing, and locks it.

    The operating system frees the lock when the file is closed or its process
    ends, however that ends. (File systems that are shared by hosts must support
    `flock`, as NFS 4 does.) A new file is empty, an old one has its content.

    Raises:
        LockedError: another process (or another opened file of this one) holds
            the lock.
        OSError: the file cannot be opened.
    """
    while True:
        # Never truncated before it is locked.
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        file = os.fdopen(handle, "r+", encoding="utf-8")
        if fcntl is None:
            return file
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                raise LockedError(path, _holder(file)) from None
        # It may have been deleted or renamed before it was locked.
        if is_in_place(file, path):
            return file
        file.close()


def is_in_place(file, path):
    """Whether an opened file is still the one that `path` names."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(file.fileno()))


def write_holder(file):
    """Writes into a locked file which process holds it."""
    holder = {"host": socket.gethostname(), "pid": os.getpid()}
    file.truncate(0)
    json.dump(holder, file)
    file.flush()


def _holder(file):
    try:
        holder = json.load(file)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        # It has the lock, and has not written its name, or never does.
        return "another process"
