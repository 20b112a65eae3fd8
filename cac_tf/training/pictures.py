# SPDX-License-Identifier: Apache-2.0
"""Rows of images that a training leaves for its report."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import atomic_files
from cac_tf.annotations import Path

# More images of a row are not shown.
PICTURES_IN_A_ROW = 12


def add_rows(path: Path, rows: Mapping[str, ArrayLike]) -> None:
    """Adds rows of images to a file, or replaces those of the same name.

    Args:
        path: of the file; made if it does not exist.
        rows: (n, H, W, C) images, values 0...255, by the row's name.

    Example:

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "samples.npz")
    >>> add_rows(path, {"epoch 1": np.zeros((2, 8, 8, 1))})
    >>> add_rows(path, {"epoch 2": np.full((2, 8, 8, 1), 255.0)})
    >>> {name: int(images.max()) for name, images in read_rows(path).items()}
    {'epoch 1': 0, 'epoch 2': 255}
    """
    kept = read_rows(path) if os.path.exists(path) else {}
    kept |= {
        name: np.clip(np.rint(np.asarray(images)), 0, 255).astype("uint8")
        for name, images in rows.items()
    }
    # Names may hold what the name of a file in an archive may not.
    arrays: dict[str, Any] = {
        f"row{index}": images for index, images in enumerate(kept.values())
    }
    arrays["names"] = np.array(list(kept))
    with (
        atomic_files.replacing(path) as temporary,
        open(temporary, "wb") as file,
    ):
        np.savez_compressed(file, **arrays)


def read_rows(path: Path) -> dict[str, np.ndarray]:
    """The rows of a file of `add_rows`: (n, H, W, C) uint8, by name."""
    with np.load(path) as arrays:
        return {
            str(name): arrays[f"row{index}"]
            for index, name in enumerate(arrays["names"])
        }
