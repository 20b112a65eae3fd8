# SPDX-License-Identifier: Apache-2.0
"""Packages are imported without what their libraries print meanwhile."""

import importlib
import os
import sys
import tempfile

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
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            importlib.import_module(name)
        except BaseException:
            printed.seek(0)
            os.write(own, printed.read())
            raise
        finally:
            os.dup2(own, 2)
            os.close(own)
