# SPDX-License-Identifier: Apache-2.0
"""Opens files, and nothing that looks like one and may never end."""

import errno
import os
import stat
from typing import BinaryIO

from cac_tf.annotations import Path

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def opened(path: Path) -> BinaryIO:
    """A file, opened to read its bytes.

    A pipe that nobody writes to would be waited for, a device read for ever.

    Raises:
        OSError: the system does not open it, or it is no file; `strerror` says
            why.

    Example:

    >>> opened("/dev/null")
    Traceback (most recent call last):
    OSError: [Errno 22] It is a device, not a file: '/dev/null'
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    if kind != stat.S_IFREG:
        file.close()
        raise OSError(
            errno.EINVAL,
            f"It is {_KINDS.get(kind, 'something else')}, not a file",
            os.fspath(path),
        )
    return file


def _without_waiting(path, flags):
    return os.open(path, flags | os.O_NONBLOCK)
