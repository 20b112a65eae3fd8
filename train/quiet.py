# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow prints reaches the terminal only if something fails."""

import contextlib
import importlib
import logging
import os
import sys
import tempfile
import warnings

from absl import logging as absl_logging

from cac_tf.train import terminal

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

# What is said where the package of the backend is missing.
_WITHOUT = {
    "tensorflow": "TensorFlow is not installed: pip install "
    "'cac-tf[tensorflow]'. Or set KERAS_BACKEND=jax, for which there is the "
    "extra jax.",
    "jax": "KERAS_BACKEND is jax, and JAX is not installed: pip install "
    "'cac-tf[jax]'.",
}


def _is_wanted():
    """Whether the user asks TensorFlow for its lines: 3 asks for none."""
    return os.environ.get(_LEVEL, "3") in ("0", "1", "2")


def say_little():
    """Of TensorFlow nothing is shown; warnings become notes.

    What fails raises an exception, whose message is shown: lines of the level
    "error" come from runs that succeed, too. It holds for the processes that
    this one starts as well. To be called before Keras is imported.
    """
    os.environ.setdefault(_LEVEL, "3")
    # Exports report every file that they write, predictions every tracing.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    absl_logging.set_verbosity(absl_logging.WARNING)  # unless a flag says
    warnings.showwarning = _show


def load_keras():
    """Imports Keras and its backend, as `load` does.

    Raises:
        ImportError: the backend is not installed.
    """
    try:
        load("keras")
        importlib.import_module("keras")
    except ModuleNotFoundError as error:
        if error.name not in _WITHOUT:
            raise
        raise ModuleNotFoundError(_WITHOUT[error.name]) from error


def load(name):
    """Imports a package; what is printed meanwhile is shown if it fails.

    Libraries of TensorFlow print before they read any setting, about devices
    that are not there for example.
    """
    if name in sys.modules or _is_wanted():
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


@contextlib.contextmanager
def without_lines_of_libraries():
    """What libraries in C print meanwhile is not shown; what Python prints is.

    libjpeg tells of damaged files which are answered anyway, without their
    names, and no setting of TensorFlow reaches it.
    """
    if _is_wanted():
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    # (Where Python's is not file 2, as in tests, it stays what it is.)
    shown, is_own = sys.stderr, sys.stderr is sys.__stderr__
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    if is_own:
        sys.stderr = open(  # noqa: SIM115
            terminal, "w", 1, shown.encoding, shown.errors, closefd=False
        )
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = shown
        os.dup2(terminal, 2)
        os.close(terminal)


def _show(message, category, filename, lineno, file=None, line=None):
    """A warning without the place in the code, unless it is about code."""
    lines = [f"note: {message}"]
    if not issubclass(category, UserWarning):
        text = warnings.formatwarning(message, category, filename, lineno, line)
        lines = text.splitlines()
    terminal.say(*lines, file=file or sys.stderr)
