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

# Raised when the meaning of config.json or metrics.json changes.
FORMAT = 3


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
    def open(cls, path, settings, data, overwrite=False):
        """Starts a run in a folder, or goes on with the same one.

        Args:
            path: the folder; made if it does not exist.
            settings: JSON-able dict of everything that decides the result.
            data: JSON-able dict that says which data the settings led to.
            overwrite: start afresh: what an earlier run left is deleted.

        Returns:
            `RunFolder`.

        Raises:
            RunFolderError: as `find`, without `overwrite`; the data are
                other ones than when the run began; or the folder cannot be
                written.
        """
        folder = None if overwrite else cls.find(path, settings)
        if folder is not None:
            folder._check_same_data(json.loads(json.dumps(data)))
        try:
            if folder is None:
                folder = cls(os.fspath(path))
                os.makedirs(folder.path, exist_ok=True)
                if overwrite:
                    folder._clear()
                config = {
                    "format": FORMAT,
                    "settings": settings,
                    "data": data,
                    "environment": environment(),
                }
                atomic_files.write_json(folder.file("config.json"), config)
            atomic_files.remove_leftovers(folder.path)
        except OSError as error:
            raise RunFolderError(
                f"{path} cannot be written: {error}"
            ) from error
        return folder

    def _check_same(self, settings):
        earlier = read_config(self.path)["settings"]
        changes = _changes(earlier, settings)
        if changes:
            raise RunFolderError(
                f"{self.path} holds a run with another configuration "
                f"({changes}). Choose another --output_dir, or pass "
                "--overwrite to delete that run and start afresh."
            )

    def _check_same_data(self, data):
        changes = _changes(read_config(self.path)["data"], data)
        if changes:
            raise RunFolderError(
                f"{self.path} holds a run that began with other data "
                f"({changes}). Restore them, or pass --overwrite to delete "
                "that run and start afresh."
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
    "history.json",
    "scores.npz",
    "report.html",
    "serving",
    "scores",
    "config.json",
)


def _changes(earlier, now):
    """What differs between two dicts, as a text; empty if nothing does."""
    return "; ".join(
        f"{key}: {earlier.get(key)!r} there, {now.get(key)!r} now"
        for key in sorted({*earlier, *now})
        if earlier.get(key) != now.get(key)
    )


def read_config(path):
    """The `config.json` of a run's folder.

    Raises:
        RunFolderError: it is no run's configuration, or that of another
            version of cac_tf.
    """
    return _read(os.path.join(path, "config.json"))


def read_metrics(path):
    """The `metrics.json` of a run's folder.

    Raises:
        RunFolderError: it holds no run's numbers, or those of another version
            of cac_tf.
    """
    return _read(os.path.join(path, "metrics.json"))


def _read(path):
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise RunFolderError(f"{path} is no JSON file: {error}") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise RunFolderError(
            f"{path} was not written by this version of cac_tf (its format is "
            f"{found}, this version's {FORMAT}). Run it again in another "
            "--output_dir, or with --overwrite."
        )
    return content


def data_summary(dataset):
    """Which data a run uses, for `config.json`.

    Args:
        dataset: `OpenSetDataset`.

    Returns:
        JSON-able dict: classes, counts, normalisation, and the SHA-256 of the
        validation images, by which a resumed run knows that they were chosen
        again as before.
    """
    mean, std = dataset.channel_statistics
    return {
        "class_names": list(dataset.class_names),
        "class_ids": [int(i) for i in dataset.class_ids],
        "unknown_class_names": list(dataset.unknown_class_names),
        "unknown_class_ids": [int(i) for i in dataset.unknown_class_ids],
        "counts": dataset.counts,
        "mean": mean,
        "std": std,
        "validation_sha256": dataset.validation_digest,
    }


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
