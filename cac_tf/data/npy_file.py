# SPDX-License-Identifier: Apache-2.0
"""Arrays as NumPy writes them: `.npy` files, and the members of `.npz` ones."""

from typing import IO

import numpy as np

from cac_tf.annotations import Path
from cac_tf.data.regular_file import opened


def read_npy(path: Path) -> np.ndarray:
    """The array of an .npy file, which stays in the file until it is used.

    Raises:
        ValueError: no such file, a damaged one, or one of Python objects.
    """
    try:
        with opened(path):
            # It is a file, and no pipe.
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise ValueError(f"File not found: {path}.") from error
    # Damaged files make NumPy raise of any kind.
    except Exception as error:
        raise ValueError(
            f"{path} is not a readable .npy file: {error}"
        ) from error


def read_header(content: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Reads the start of an array.

    Args:
        content: opened file, or member of an archive.

    Returns:
        Shape; whether the first axis changes fastest; and type.

    Raises:
        ValueError: it is no array.
    """
    version = np.lib.format.read_magic(content)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(content)
    return np.lib.format.read_array_header_2_0(content)
