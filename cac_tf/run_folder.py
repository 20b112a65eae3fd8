# SPDX-License-Identifier: Apache-2.0
"""The folder of one run: what was asked, how far it is, what came out."""

import dataclasses
import json
import os
import platform
import shutil
import subprocess

import keras
import numpy as np

from cac_tf import atomic_files
from cac_tf.version import __version__


class RunFolderError(ValueError):
    """A folder that cannot take the run that was asked for."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Paths in the folder of a run, and its life.

    A run is finished when `metrics.json` is there: it is written last.
    """

    path: str

    def file(self, *names):
        """Path of a file in the folder."""
        return os.path.join(self.path, *names)

    @property
    def checkpoint(self):
        return self.file("checkpoints", "latest.npz")

    @property
    def is_finished(self):
        return os.path.exists(self.file("metrics.json"))

    @property
    def serving(self):
        return self.file("serving")

    @classmethod
    def find(cls, path, settings):
        """The folder of this very run, begun or finished, or None.

        Args:
            path: the folder.
            settings: JSON-able dict of everything that decides the result.

        Returns:
            `RunFolder`, or None where there is no run.

        Raises:
            RunFolderError: the folder holds a run with other settings, or
                files that are no run's.
        """
        folder = cls(os.fspath(path))
        if os.path.exists(folder.file("config.json")):
            folder._check_same(json.loads(json.dumps(settings)))
            return folder
        if os.path.isdir(folder.path):
            names = [
                name
                for name in os.listdir(folder.path)
                if not atomic_files.is_leftover(name)
            ]
            if names:
                raise RunFolderError(
                    f"{path} is not empty and holds no run (no config.json). "
                    "Choose another --output_dir."
                )
        return None

    @classmethod
    def open(cls, path, settings, overwrite=False):
        """Starts a run in a folder, or goes on with the same one.

        Args:
            path: the folder; made if it does not exist.
            settings: JSON-able dict of everything that decides the result.
            overwrite: start afresh: what an earlier run left is deleted.

        Returns:
            `RunFolder`.

        Raises:
            RunFolderError: as `find`, without `overwrite`; or the folder
                cannot be written.
        """
        folder = None if overwrite else cls.find(path, settings)
        try:
            if folder is None:
                folder = cls(os.fspath(path))
                os.makedirs(folder.path, exist_ok=True)
                if overwrite:
                    folder._clear()
                config = {"settings": settings, "environment": environment()}
                atomic_files.write_json(folder.file("config.json"), config)
            atomic_files.remove_leftovers(folder.path)
            os.makedirs(folder.file("checkpoints"), exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"{path} cannot be written: {error}"
            ) from error
        return folder

    def _check_same(self, settings):
        try:
            earlier = read_config(self.path)["settings"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{self.file('config.json')} is no run's configuration."
            ) from error
        different = sorted(
            key
            for key in {*earlier, *settings}
            if earlier.get(key) != settings.get(key)
        )
        if different:
            changes = "; ".join(
                f"{key}: {earlier.get(key)!r} there, {settings.get(key)!r} now"
                for key in different
            )
            raise RunFolderError(
                f"{self.path} holds a run with another configuration "
                f"({changes}). Choose another --output_dir, or pass "
                "--overwrite to delete that run and start afresh."
            )

    def _clear(self):
        for name in RUN_FILES:
            path = self.file(name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)

    def write_scores(self, evaluation):
        """Writes `scores.npz`."""
        with atomic_files.replacing(self.file("scores.npz")) as temporary:
            np.savez_compressed(temporary, **evaluation.arrays())


# In this order: without metrics.json a run is not finished, and as long as
# config.json is there, what is left has an owner.
RUN_FILES = (
    "metrics.json",
    "checkpoints",
    "model.keras",
    "scores.npz",
    "report.html",
    "serving",
    "config.json",
)


def read_config(path):
    """The `config.json` of a run's folder."""
    with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def environment():
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
        "commit": _commit(),
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
    return {"cpu": model, "cpu_count": os.cpu_count()}


def _commit():
    """Commit of the checkout this package lies in, or None when installed."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.exists(os.path.join(here, ".git")):
        return None
    command = ["git", "-C", here, "describe", "--always", "--dirty"]
    try:
        result = subprocess.run(
            [*command, "--abbrev=40"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:  # There is no git here.
        return None
    return result.stdout.strip() or None
