# SPDX-License-Identifier: Apache-2.0
"""The lock that lets one process at a time write into a folder."""

import contextlib
import json
import os
import socket

try:
    import fcntl
except ImportError:  # Windows has no such locks: nothing is locked there.
    fcntl = None

_NAME = ".cac_tf-lock"


class FolderIsLockedError(ValueError):
    """Another process holds the lock of a folder."""


class FolderLock:
    """A folder's lock, held from `acquire` to `release`.

    The operating system frees it when its process ends, however that ends. So
    a lock file whose process is gone is taken over. The file says which
    process on which host holds the lock. (File systems that are shared by
    hosts must support `flock`, as NFS 4 does.)

    Args:
        folder: path of an existing folder.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> lock = FolderLock(folder)
    >>> lock.acquire()
    >>> try:
    ...     FolderLock(folder).acquire()
    ... except FolderIsLockedError as error:
    ...     print("is being written by process" in str(error))
    True
    >>> lock.release()
    >>> FolderLock(folder).acquire()
    """

    def __init__(self, folder):
        self._folder = os.fspath(folder)
        self._path = os.path.join(self._folder, _NAME)
        self._file = None

    def acquire(self):
        """Takes the lock, or says who holds it.

        Raises:
            FolderIsLockedError: another process (or another `FolderLock` of
                this one) holds it.
            OSError: the folder does not exist or cannot be written.
        """
        while self._file is None:
            self._file = self._opened()
        if fcntl is None:
            return
        holder = {"host": socket.gethostname(), "pid": os.getpid()}
        self._file.truncate(0)
        json.dump(holder, self._file)
        self._file.flush()

    def _opened(self):
        """The locked file; None if it was deleted at the same time."""
        # Never truncated before it is locked: it names the holder.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        file = os.fdopen(handle, "r+", encoding="utf-8")
        if fcntl is None:
            return file
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                holder = _holder(file)
            raise FolderIsLockedError(
                f"{self._folder} is being written by {holder}. Wait until it "
                "ends, stop it, or choose another folder."
            ) from None
        if not self._is_in_place(handle):
            file.close()
            return None
        return file

    def _is_in_place(self, handle):
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(handle))

    @property
    def is_in_place(self):
        """Whether the lock is held and its folder was not deleted since."""
        return self._file is not None and self._is_in_place(self._file.fileno())

    def release(self):
        """Frees the lock and deletes its file; does nothing if it is free."""
        if self._file is None:
            return
        if self.is_in_place:
            # Before it is freed: afterwards it may be another process's.
            with contextlib.suppress(PermissionError):  # Windows, as it is open
                os.unlink(self._path)
        self._file.close()
        self._file = None


def is_lock(name):
    """Whether a file of this name is a folder's lock."""
    return name == _NAME


def _holder(file):
    try:
        holder = json.load(file)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        # It has the lock, and has not written its name yet.
        return "another process"
