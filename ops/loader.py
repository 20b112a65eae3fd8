# SPDX-License-Identifier: Apache-2.0
"""Which fused operations can be used here, if any."""

import contextlib
import contextvars
import functools
import importlib
import os
import pathlib
import re
import types
import warnings
from collections.abc import Iterator

from cac_tf import lazy
from cac_tf.annotations import Tensor
from cac_tf.version import __version__

keras = lazy.module("keras")

FOLDER = pathlib.Path(__file__).parent
BINDINGS = ("tensorflow", "jax")
_DTYPES = ("float32", "bfloat16", "float16")
# The kernels keep class indices in float32.
_MAX_CLASSES = 2**24

_is_enabled = True
_stock_only = contextvars.ContextVar("cac_tf_stock_operations", default=False)


def set_enabled(enabled: bool) -> None:
    """Switches the fused operations on or off for the whole process.

    Args:
        enabled: False to use stock operations in all that is traced from now
            on; True to use the fused ones again, where there are any.

    Example:

    >>> from cac_tf import ops
    >>> ops.set_enabled(False)
    >>> ops.binding() is None
    True
    >>> ops.set_enabled(True)
    """
    global _is_enabled
    _is_enabled = bool(enabled)


@contextlib.contextmanager
def stock_operations() -> Iterator[None]:
    """A context in which everything is traced with stock operations.

    For graphs that must run without the library. It applies only to this
    thread: for the replicas of `tf.distribute`, use `set_enabled(False)`.

    Example:

    >>> from cac_tf import ops
    >>> with ops.stock_operations():
    ...     print(ops.binding())
    None
    """
    token = _stock_only.set(True)
    try:
        yield
    finally:
        _stock_only.reset(token)


def binding() -> types.ModuleType | None:
    """The module with the fused operations of this backend, or None.

    None if they are switched off, not built, or built for another release, if
    the backend has no binding, or if there is an accelerator that the library
    was not built for. A library that exists but cannot be used here, or fails
    when it is run once, gives one warning.
    """
    is_disabled = os.environ.get("CAC_TF_DISABLE_FUSED_OPS", "0")
    if is_disabled not in ("", "0") or not _is_enabled or _stock_only.get():
        return None
    return _load(keras.backend.backend())


def binding_for(logits: Tensor) -> types.ModuleType | None:
    """`binding()`, if its operations take these logits; or None.

    Args:
        logits: (B, N) tensor; of 2 to 2**24 classes, and not of float64, as
            the operations compute in float32.
    """
    if isinstance(logits, keras.KerasTensor) or len(logits.shape) != 2:
        return None
    num_classes = logits.shape[1]
    if num_classes is None or not 2 <= num_classes <= _MAX_CLASSES:
        return None
    if keras.backend.standardize_dtype(logits.dtype) not in _DTYPES:
        return None
    return binding()


def library_path(name: str) -> pathlib.Path:
    """Path of the library of a binding, once it is built."""
    return FOLDER / f"anchored_cac_{name}.so"


def built_for(framework: str, with_cuda: bool) -> str:
    """The text inside a library that says what it was built for.

    It is looked for before the library is loaded: a library that was built for
    another release of TensorFlow could crash the process.

    Args:
        framework: name, and release if a library fits only that one.
        with_cuda: whether it holds kernels for CUDA devices.
    """
    kernels = "CPU and CUDA" if with_cuda else "CPU"
    return f"cac_tf {__version__} fused ops for {framework}, {kernels}."


def _has_cuda(content, framework):
    """Whether a library holds kernels for CUDA devices.

    Args:
        content: of its file.
        framework: what it must have been built for.

    Raises:
        ImportError: it was built for something else.
    """
    for with_cuda in (False, True):
        if built_for(framework, with_cuda).encode() in content:
            return with_cuda
    found = re.search(rb"cac_tf ([^ ]+) fused ops for ([\w .+-]+),", content)
    if found is None:
        raise ImportError("it does not state what it was built for")
    release, other = (text.decode() for text in found.groups())
    raise ImportError(
        f"it was built for cac_tf {release} and {other}, but this is cac_tf "
        f"{__version__} with {framework}"
    )


@functools.cache
def _load(backend):
    path = library_path(backend)
    if backend not in BINDINGS or not path.exists():
        return None
    try:
        module = importlib.import_module(f"cac_tf.ops.{backend}_binding")
        has_cuda = _has_cuda(path.read_bytes(), module.framework())
        if not module.runs_on_devices(has_cuda):
            raise ImportError(
                "it has no kernels for the accelerator here; kernels for "
                "CUDA devices are built only if nvcc is on the PATH"
            )
        module.load(path, has_cuda)
        # A GPU may be of another architecture, or its driver too old.
        module.run_once()
    except Exception as error:
        warnings.warn(
            f"The fused operations in {path.name} cannot be used: {error}. "
            "Stock operations are used instead. To rebuild them: python -m "
            "cac_tf.ops.build",
            stacklevel=3,
        )
        return None
    return module
