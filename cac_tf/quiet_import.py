# SPDX-License-Identifier: Apache-2.0
"""Packages are imported without what their libraries print meanwhile."""

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def is_wanted() -> bool:
    """Whether the user asks TensorFlow for its lines: 3 asks for none."""
    return os.environ.get(LEVEL, "3") in ("0", "1", "2")


def load(name: str) -> None:
    """Imports a package; what is printed meanwhile is shown if it fails.

    Libraries of TensorFlow print before they read any setting, about devices
    that are not there for example.
    """
    if name in sys.modules or is_wanted():
        return
    with tempfile.TemporaryFile() as printed, elsewhere(printed) as own:
        try:
            importlib.import_module(name)
        except BaseException:
            printed.seek(0)
            os.write(own, printed.read())
            raise


@contextlib.contextmanager
def elsewhere(file: IO[bytes]) -> Iterator[int]:
    """What goes to file 2 goes to another one; yields the number it had."""
    sys.stderr.flush()
    terminal = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield terminal
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
