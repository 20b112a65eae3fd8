# SPDX-License-Identifier: Apache-2.0
"""Arrays that are computed once from files and kept beside them."""

import contextlib
import hashlib
import json
import os
import zipfile

import numpy as np

from cac_tf import atomic_files
from cac_tf import file_lock
from cac_tf.data.regular_file import opened

# Hidden, so that it is no class and no data set.
FOLDER = ".cac_tf"
# Raised when the meaning of what is kept changes.
_FORMAT = 3


def kept_beside(folder, name, listing, compute):
    """The arrays of `compute`, or those that were kept for the same files.

    Where the folder cannot be written, they are computed at each start.

    Args:
        folder: folder of the files.
        name: of what is kept, a part of a file's name.
        listing: JSON-able: which files they are and all that decides what is
            computed, see `listing_of`.
        compute: returns a dict of arrays, without Python objects.

    Returns:
        The dict.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> def compute():
    ...     print("computing")
    ...     return {"squares": np.arange(3) ** 2}
    >>> for _ in range(2):
    ...     print(kept_beside(folder, "squares", [3], compute)["squares"])
    computing
    [0 1 4]
    [0 1 4]
    """
    key = hashlib.sha256(json.dumps([_FORMAT, listing]).encode()).hexdigest()
    path = os.path.join(folder, FOLDER, f"{name}.npz")
    try:
        with (
            opened(path) as content,
            np.load(content, allow_pickle=False) as file,
        ):
            if str(file["key"]) == key:
                return {n: file[n] for n in file.files if n != "key"}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # Not there, or damaged.
    arrays = compute()
    with contextlib.suppress(OSError, file_lock.LockedError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # If another process is writing the same, nothing is lost.
        with atomic_files.replacing_alone(path) as temporary:
            np.savez(temporary, key=key, **arrays)
    return arrays


def listing_of(folder, paths):
    """Names, sizes and times of change of files, as a list.

    Args:
        folder: where the files are, at any depth.
        paths: of the files.
    """
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:  # A link that leads nowhere, or to itself.
            status = os.lstat(path)
        # As bytes: a name need not be valid text.
        name = os.fsencode(os.path.relpath(path, folder)).hex()
        found.append((name, status.st_size, status.st_mtime_ns))
    return found
