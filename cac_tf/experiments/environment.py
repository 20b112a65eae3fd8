# SPDX-License-Identifier: Apache-2.0
"""What a result was made with: versions, hardware, threads, commit, date."""

import os
import pathlib
import platform
import subprocess
import time
from typing import Any

import keras
import numpy as np

from cac_tf.training.runtime import Runtime
from cac_tf.version import __version__

PROCESSORS = "/proc/cpuinfo"


def environment() -> dict[str, Any]:
    """Versions, hardware and source that a run was made with."""
    packages = {"cac_tf": __version__, "keras": keras.__version__}
    packages["numpy"] = np.__version__
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow

        packages["tensorflow"] = tensorflow.__version__
    elif backend == "jax":
        import jax

        packages["jax"] = jax.__version__
    return {
        "backend": backend,
        "versions": packages,
        "python": platform.python_version(),
        "hardware": _hardware(),
        "intra_op_threads": Runtime(seed=0).intra_op_threads,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def bfloat16_is_slow() -> bool:
    """Whether float32 is known to be much faster on this machine.

    x86 processors with AVX-512 BF16 or AMX multiply bfloat16. On others,
    TensorFlow's library for CPUs (oneDNN) emulates it, where there is AVX-512
    at all, or TensorFlow does without the library; both are several times
    slower than float32. False where nothing is known.
    """
    flags = _processor().get("flags", "").split()
    return (
        bool(flags)
        and not {"avx512_bf16", "amx_bf16"} & set(flags)
        and keras.backend.backend() == "tensorflow"
        and _accelerator() is None
    )


def _processor():
    """What Linux says of the first processor, by name; empty elsewhere."""
    try:
        text = pathlib.Path(PROCESSORS).read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = text.split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _hardware():
    generic = platform.processor() or platform.machine()
    return {
        "cpu": _processor().get("model name", generic),
        "cpu_count": os.cpu_count(),
        "accelerator": _accelerator(),
    }


def _accelerator():
    """Name of the device that Keras computes on, or None for the CPU."""
    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU"):
            details = tf.config.experimental.get_device_details(device)
            return details.get("device_name", "GPU")
    return None


def _commit():
    """Commit of the checkout that holds this package, or None if installed.

    With "-dirty" where its files differ, other than the results, which the
    scripts that ask for this are about to change.
    """
    here = pathlib.Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    commit = _git(here, "rev-parse", "HEAD")
    changed = _git(
        here,
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":!benchmarks/results",
    )
    return f"{commit}-dirty" if commit and changed else commit


def _git(folder, *arguments):
    """What git prints, or None where it fails or is missing."""
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return result.stdout.strip() or None
