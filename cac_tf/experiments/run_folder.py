# SPDX-License-Identifier: Apache-2.0
"""The folder of one run: its settings, its progress, its results."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import os
from collections.abc import Iterator
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import Self

from cac_tf import atomic_files
from cac_tf import file_lock
from cac_tf.annotations import Path
from cac_tf.experiments.environment import environment

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset

# Says which process writes into the folder.
LOCK = ".cac_tf-lock"
# Raised when the meaning of config.json or metrics.json changes.
FORMAT = 4

# The files that a run writes, as patterns; `*` also stands for sub-folders.
# config.json keeps this list, and nothing else is ever deleted. In this order:
# without metrics.json a run is not finished, and as long as config.json exists,
# the other files have an owner.
_OF_ANY_RUN = (
    "metrics.json",
    "checkpoints/*.npz",
    "checkpoints/*.npy",
    "pictures/*.npz",
    "model.keras",
    "history.json",
    "scores.npz",
    "predictions.csv",
    "report.html",
    "MODEL_CARD.md",
    "serving/1/*",
    "serving/requests/*.json",
    "serving/README.md",
    "serving/*.config",
    "tensorboard/*events.out.tfevents.*",
    "config.json",
)
# A comparison of more scores, in a sub-folder, is of this run's model.
_FILES = (
    *_OF_ANY_RUN[:-1],
    *(f"scores/{pattern}" for pattern in _OF_ANY_RUN),
    _OF_ANY_RUN[-1],
)


class RunFolderError(ValueError):
    """A folder that cannot hold the wanted run.

    Args:
        problem: what is wrong, a sentence.
        remedy: what to do, a sentence.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem} {remedy}".rstrip())
        self.problem = problem


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of a run: its paths and its state.

    A run is finished when its `metrics.json` is whole: it is written last.
    """

    path: str
    # What happened as it was opened, for the user.
    notes: tuple = ()

    def file(self, *names: str) -> str:
        """Path of a file in the folder."""
        return os.path.join(self.path, *names)

    @property
    def checkpoints(self) -> str:
        """Folder with one checkpoint for each training of the run."""
        return self.file("checkpoints")

    @property
    def is_finished(self) -> bool:
        """Whether all results are there."""
        try:
            read_metrics(self.path)
        except (FileNotFoundError, RunFolderError):
            # A file that is cut off is written anew.
            return False
        return True

    @property
    def serving(self) -> str:
        return self.file("serving")

    @classmethod
    def find(cls, path: Path, settings: Mapping[str, Any]) -> Self | None:
        """The folder of exactly this run, begun or finished, or None.

        `settings` is a JSON-able dict of everything that decides the result.

        Raises:
            RunFolderError: the folder holds a run with other settings, or
                files that do not belong to a run.
        """
        folder = cls(os.fspath(path))
        if not folder.holds_a_run():
            return None
        differences = changes(read_config(path)["settings"], settings)
        if differences:
            raise RunFolderError(
                f"{path} contains a run with a different configuration "
                f"({differences}).",
                "Choose another folder, move that run away, or pass "
                "overwrite=True to delete it and start over.",
            )
        return folder

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        path: Path,
        settings: Mapping[str, Any],
        data: Mapping[str, Any],
        overwrite: bool = False,
    ) -> Iterator[Self]:
        """Starts a run in a folder, or resumes the same one.

        A context manager: within it no other process can open the folder.

        Args:
            path: the folder; made if it does not exist.
            settings: JSON-able dict of everything that decides the result.
            data: JSON-able dict that says which data the settings led to.
            overwrite: start afresh: the files of an earlier run are deleted.

        Yields:
            `RunFolder`. Its `notes` say what differs from when the run began
            without making it another one, such as the number of threads.

        Raises:
            RunFolderError: as in `find`, without `overwrite`; the data
                differ from those when the run began; the folder holds files
                of others where a run's would be deleted; it cannot be
                written; another process writes it; or it was deleted.
        """
        is_new = not os.path.isdir(path)
        with contextlib.ExitStack() as at_the_end:
            if is_new:
                at_the_end.callback(_remove_if_empty, path)
            lock = file_lock.writing(path, os.path.join(path, LOCK))
            try:
                os.makedirs(path, exist_ok=True)
                is_in_place = at_the_end.enter_context(lock)
            except file_lock.LockedError as error:
                raise RunFolderError(
                    str(error),
                    "Wait until it finishes, stop it, or choose another "
                    "folder.",
                ) from None
            except OSError as error:
                raise RunFolderError(
                    f"{path} cannot be written: {error}"
                ) from error
            try:
                yield cls._opened(path, settings, data, overwrite)
            except Exception as error:
                if is_in_place():
                    raise
                raise RunFolderError(
                    f"{path} was deleted while this run was writing to it. "
                    "Run the same command again to restart."
                ) from error

    @classmethod
    def _opened(cls, path, settings, data, overwrite):
        folder = cls(os.fspath(path))
        if overwrite:
            if folder.holds_a_run():
                folder.delete_files("*")
        elif cls.find(path, settings):
            earlier = read_config(path)
            differences = changes_of_data(earlier["data"], data)
            if differences:
                raise RunFolderError(
                    f"{path} contains a run that was started with different "
                    f"data ({differences}). Restore the data, or pass "
                    "overwrite=True to delete that run and start over."
                )
            # (A run may last longer than a day.)
            differences = changes(
                {**earlier["environment"], "date": None},
                {**environment(), "date": None},
            )
            atomic_files.remove_leftovers(path)
            if differences:
                note = (
                    "This run was started in a different environment "
                    f"({differences}), so its numbers may differ from those "
                    "of an uninterrupted run."
                )
                folder = dataclasses.replace(folder, notes=(note,))
            return folder
        folder.begin(settings, data)
        atomic_files.remove_leftovers(path)
        return folder

    def begin(
        self, settings: Mapping[str, Any], data: Mapping[str, Any]
    ) -> None:
        """Writes `config.json`, of the present environment.

        The run is not finished any more, if it was, and has no model.
        """
        for name in ("metrics.json", "model.keras", "MODEL_CARD.md"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.file(name))
        config = {
            "format": FORMAT,
            "settings": settings,
            "data": data,
            "environment": environment(),
            "files": list(_FILES),
        }
        atomic_files.write_json(self.file("config.json"), config)

    def holds_a_run(self) -> bool:
        """Whether there is a config.json; False for an empty folder.

        Raises:
            RunFolderError: there are files, but no config.json.
        """
        if os.path.exists(self.file("config.json")):
            return True
        names = os.listdir(self.path) if os.path.isdir(self.path) else ()
        if not all(n == LOCK or atomic_files.is_leftover(n) for n in names):
            raise RunFolderError(
                f"{self.path} is not empty but contains no run (no "
                "config.json).",
                "Choose another folder.",
            )
        return False

    def delete_files(self, pattern: str) -> None:
        """Deletes the files of the run that match a pattern.

        Raises:
            RunFolderError: the folder is not of a run, or one of the run's
                sub-folders holds a file of somebody else; nothing is deleted.
        """
        patterns = _patterns_of(self.path)
        owned_folders = {p.split("/")[0] for p in patterns if "/" in p}
        found: dict[str, list[str]] = {}
        foreign = []
        for name in _files_under(self.path):
            owner = next(
                (p for p in patterns if fnmatch.fnmatchcase(name, p)), None
            )
            if not fnmatch.fnmatchcase(name, pattern):
                continue
            if owner is not None:
                found.setdefault(owner, []).append(name)
            elif name.split("/")[0] in owned_folders:
                foreign.append(name)
        if foreign:
            raise RunFolderError(
                f"{self.path} contains files that do not belong to the run: "
                f"{', '.join(sorted(foreign)[:3])}"
                f"{', ...' * (len(foreign) > 3)}. Move them away, or choose "
                "another folder."
            )
        for owner in patterns:
            for name in found.get(owner, ()):
                os.unlink(self.file(name))
        _remove_empty_folders(self.path, owned_folders)

    def remove_if_nothing_was_trained(self) -> None:
        """Deletes the configuration where there is no checkpoint yet."""
        if not os.path.isdir(self.checkpoints):
            self.delete_files("*")


def _files_under(path):
    """Files of a folder, relative to it, by "/"; leftovers are left out."""
    for parent, folders, files in os.walk(path):
        folders[:] = [n for n in folders if not atomic_files.is_leftover(n)]
        for name in files:
            if not (atomic_files.is_leftover(name) or name == LOCK):
                whole = os.path.relpath(os.path.join(parent, name), path)
                yield whole.replace(os.sep, "/")


def _remove_empty_folders(path, names):
    for name in names:
        for parent, *_ in os.walk(os.path.join(path, name), topdown=False):
            atomic_files.remove_leftovers(parent)
            _remove_if_empty(parent)


def _remove_if_empty(path):
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _patterns_of(path):
    """The list of files in a run's config.json, of any version."""
    try:
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            content = json.load(file)
        patterns = content["files"]
        if content["settings"] is not None and isinstance(patterns, list):
            return [str(pattern) for pattern in patterns]
    except (ValueError, KeyError, TypeError):
        pass
    raise RunFolderError(
        f"{path} contains a config.json that does not list the files of its "
        "run, so nothing is deleted.",
        "Choose another folder.",
    )


def changes(earlier, now, places=("there", "now")):
    """What differs between two dicts, as a text; empty if nothing does."""
    earlier, now = _flat(earlier), _flat(json.loads(json.dumps(now)))
    return "; ".join(
        f"{key}: {earlier.get(key)!r} {places[0]}, {now.get(key)!r} {places[1]}"
        for key in sorted({*earlier, *now})
        if earlier.get(key) != now.get(key)
    )


def changes_of_data(earlier, now):
    """As `changes`, with the names of the parts instead of digests."""
    before, after = earlier.get("sha256", {}), now.get("sha256", {})
    parts = [name for name in after if before.get(name) != after[name]]
    differences = changes({**earlier, "sha256": {}}, {**now, "sha256": {}})
    if parts:
        which = f"different inputs or labels in: {', '.join(parts)}"
        differences = "; ".join(filter(None, [which, differences]))
    return differences


def _flat(values):
    """The entries of nested dicts, by their own names only."""
    flat = {}
    for name, value in values.items():
        flat.update(_flat(value) if isinstance(value, dict) else {name: value})
    return flat


def read_config(path: Path) -> dict[str, Any]:
    """The `config.json` of a run's folder.

    Raises:
        RunFolderError: it is not a run's configuration, or it is that of
            another version of cac_tf.
    """
    content = _read(os.path.join(path, "config.json"))
    missing = {"settings", "data", "environment", "files"} - set(content)
    if missing:
        raise RunFolderError(
            f"{path} contains a config.json that does not belong to a run: it "
            f"lacks {', '.join(sorted(missing))}."
        )
    return content


def read_metrics(path: Path) -> dict[str, Any]:
    """The `metrics.json` of a run's folder.

    Raises:
        RunFolderError: it does not hold a run's numbers, or it holds those of
            another version of cac_tf.
    """
    return _read(os.path.join(path, "metrics.json"))


def _read(path):
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise RunFolderError(
                f"{path} is not a valid JSON file: {error}."
            ) from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise RunFolderError(
            f"{path} was not written by this version of cac_tf (its format is "
            f"{found}; this version uses {FORMAT}).",
            "Choose another folder.",
        )
    return content


def data_summary(dataset: OpenSetDataset) -> dict[str, Any]:
    """Which data a run uses, for `config.json`.

    Args:
        dataset: `OpenSetDataset`.

    Returns:
        JSON-able dict: classes, counts, normalization, and the SHA-256 of each
        part's images and labels, by which a resumed run checks that they are
        the same.
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
        "input_columns": list(dataset.input_columns),
        "sha256": dataset.digests,
    }
