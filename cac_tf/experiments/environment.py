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

from cac_tf.training import Runtime
from cac_tf.version import __version__


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


def _hardware():
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    model = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass
    return {
        "cpu": model,
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
