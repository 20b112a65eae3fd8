# SPDX-License-Identifier: Apache-2.0
"""An array in an .npz file, of which few rows at a time are in memory."""

import contextlib
import dataclasses
import math
import typing
import zipfile
from collections.abc import Iterator

import numpy as np

from cac_tf.annotations import Path
from cac_tf.data.npy_file import read_header
from cac_tf.data.regular_file import opened


@dataclasses.dataclass(frozen=True)
class NpzRows:
    """An array in an opened .npz file.

    Attributes:
        name: of the array.
        shape, dtype: of the array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    _is_fortran: bool
    _content: typing.IO[bytes]

    def pieces(self, count: int) -> Iterator[np.ndarray]:
        """Yields all rows in order, at most `count` of them at a time."""
        if self._is_fortran:
            # A row's numbers are not together: all of them are read.
            array = self._read(self.shape[::-1]).T
            for start in range(0, len(array), count):
                yield array[start : start + count]
            return
        for start in range(0, self.shape[0], count):
            size = min(count, self.shape[0] - start)
            yield self._read((size, *self.shape[1:]))

    def _read(self, shape):
        size = math.prod(shape) * self.dtype.itemsize
        content = self._content.read(size)
        if len(content) < size:
            raise ValueError(f"the array {self.name} is truncated")
        return np.frombuffer(content, self.dtype).reshape(shape)


@contextlib.contextmanager
def opened_npz(path: Path, wanted: set[str]) -> Iterator[NpzRows]:
    """Opens the one array of an .npz file that has one of the wanted names.

    Args:
        path: of the file.
        wanted: names.

    Yields:
        `NpzRows`.

    Raises:
        ValueError: no such file, a damaged one, or another number of such
            arrays than one; also while rows are read.

    Example:

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
    >>> np.savez(path, x=np.arange(10).reshape(5, 2), y=np.arange(5))
    >>> with opened_npz(path, {"x"}) as array:
    ...     print(array.shape, [len(piece) for piece in array.pieces(2)])
    (5, 2) [2, 2, 1]
    """
    try:
        with opened(path) as archive, zipfile.ZipFile(archive) as file:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in file.infolist()
            }
            found = sorted(wanted & members.keys())
            if len(found) != 1:
                raise ValueError(
                    f"{path} must contain an array named "
                    f"{' or '.join(sorted(wanted))}; it contains "
                    f"{', '.join(sorted(members))}. Name one: {path}:NAME."
                )
            with file.open(members[found[0]]) as content:
                shape, dtype, is_fortran = _header(content)
                yield NpzRows(found[0], shape, dtype, is_fortran, content)
    except ValueError:
        raise
    # Damaged files make zipfile and zlib raise of any kind.
    except Exception as error:
        raise ValueError(
            f"{path} is not a readable .npz file: {error}"
        ) from error


def _header(content):
    """Shape, dtype, and whether the first axis changes fastest."""
    shape, is_fortran, dtype = read_header(content)
    if not shape:
        raise ValueError("the array is a single value, without rows")
    if dtype.hasobject:
        raise ValueError("the array contains Python objects, not numbers")
    return shape, dtype, is_fortran
