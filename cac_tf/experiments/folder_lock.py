# SPDX-License-Identifier: Apache-2.0
"""The lock that lets one process at a time write into a folder."""

import contextlib
import os

from cac_tf import file_lock

_NAME = ".cac_tf-lock"


class FolderIsLockedError(ValueError):
    """Another process holds the lock of a folder."""


class FolderLock:
    """A folder's lock, held from `acquire` to `release`.

    The operating system frees it when its process ends, however that ends. So
    a lock file whose process is gone is taken over. The file says which
    process on which host holds the lock.

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
        if self._file is not None:
            return
        try:
            self._file = file_lock.open_locked(self._path)
        except file_lock.LockedError as error:
            raise FolderIsLockedError(
                f"{self._folder} is being written by {error.holder}. Wait "
                "until it ends, stop it, or choose another folder."
            ) from None
        file_lock.write_holder(self._file)

    @property
    def is_in_place(self):
        """Whether the lock is held and its folder was not deleted since."""
        return self._file is not None and file_lock.is_in_place(
            self._file, self._path
        )

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
