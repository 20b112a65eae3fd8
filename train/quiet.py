# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow prints reaches the terminal only if something fails."""

import contextlib
import importlib
import logging
import os
import sys
import warnings

from absl import logging as absl_logging

from cac_tf import quiet_import
from cac_tf.train import terminal

# What is said where the package of the backend is missing.
_WITHOUT = {
    "tensorflow": "TensorFlow is not installed: pip install "
    "'cac-tf[tensorflow]'. Or use JAX: pip install 'cac-tf[jax]' and set "
    "KERAS_BACKEND=jax.",
    "jax": "KERAS_BACKEND is jax, but JAX is not installed: pip install "
    "'cac-tf[jax]'.",
}


def say_little():
    """Of TensorFlow nothing is shown; warnings become notes.

    What fails raises an exception, whose message is shown: lines of the level
    "error" come from runs that succeed, too. It holds for the processes that
    this one starts as well. To be called before Keras is imported.
    """
    os.environ.setdefault(quiet_import.LEVEL, "3")
    # Exports report every file that they write, predictions every tracing.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    absl_logging.set_verbosity(absl_logging.WARNING)  # unless a flag says
    warnings.showwarning = _show


def load(package):
    """Imports Keras with its backend, or TensorFlow, without what they print.

    Without AVX-512, TensorFlow takes oneDNN only where the environment says
    so, although it is faster there as well.

    Args:
        package: "keras" or "tensorflow".

    Raises:
        ImportError: the package, or Keras' backend, is not installed.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    try:
        quiet_import.load(package)
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name not in _WITHOUT:
            raise
        raise ModuleNotFoundError(_WITHOUT[error.name]) from error


@contextlib.contextmanager
def without_lines_of_libraries():
    """What libraries in C print meanwhile is not shown; what Python prints is.

    libjpeg tells of damaged files which are answered anyway, without their
    names, and no setting of TensorFlow reaches it.
    """
    if quiet_import.is_wanted():
        yield
        return
    # (Where Python's is not file 2, as in tests, it stays what it is.)
    shown, is_own = sys.stderr, sys.stderr is sys.__stderr__
    with (
        open(os.devnull, "wb") as nowhere,
        quiet_import.elsewhere(nowhere) as own,
    ):
        if is_own:
            sys.stderr = open(  # noqa: SIM115
                own, "w", 1, shown.encoding, shown.errors, closefd=False
            )
        try:
            yield
        finally:
            sys.stderr.flush()
            sys.stderr = shown


def _show(message, category, filename, lineno, file=None, line=None):
    """A warning without the place in the code, unless it is about code."""
    lines = [f"note: {message}"]
    if not issubclass(category, UserWarning):
        text = warnings.formatwarning(message, category, filename, lineno, line)
        lines = text.splitlines()
    terminal.say(*lines, file=file or sys.stderr)
