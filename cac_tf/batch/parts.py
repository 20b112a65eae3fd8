# SPDX-License-Identifier: Apache-2.0
"""A large result in parts, made by one process or many, whatever is killed.

A part is either not there or whole. It is written under a temporary name of its
own, which a later attempt uses again, so when all parts are there, no killed
process has left anything.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.batch import answers
from cac_tf.batch.classifier import Answer

MANIFEST = "manifest.json"
FORMAT = 2


class Parts:
    """A folder with one file for each block of inputs.

    Args:
        folder: path; created if it does not exist.
        blocks: of `blocks_of`; every process names the same ones.
        ending: of the files, one of `FORMATS`.
        settings: dict for JSON: what else the answers depend on, such as the
            digest of the model.

    Raises:
        ValueError: the folder holds something else than parts, or those of
            other inputs or settings.

    Example:

    >>> import tempfile
    >>> from cac_tf.batch import blocks_of
    >>> blocks = blocks_of(["a.png", "b.png", "c.png"], block_size=2)
    >>> parts = Parts(tempfile.mkdtemp(), blocks, "csv", {"threshold": 0.5})
    >>> with writing(parts.path(1)) as write:
    ...     write("c.png", Answer(error="No such file"))
    >>> parts.is_finished(0), parts.is_finished(1), parts.counts(1).failed
    (False, True, 1)
    """

    def __init__(
        self,
        folder: Path,
        blocks: Iterable[Any],
        ending: str,
        settings: Mapping[str, Any],
    ) -> None:
        self.folder, self.blocks = os.path.abspath(folder), list(blocks)
        self._ending = ending
        os.makedirs(self.folder, exist_ok=True)
        self._check_manifest(
            {
                "format": FORMAT,
                "parts": len(self.blocks),
                "ending": ending,
                "inputs": _digest(self.blocks),
                **settings,
            }
        )

    def _check_manifest(self, wanted):
        path = os.path.join(self.folder, MANIFEST)
        others = [n for n in os.listdir(self.folder) if n[:1] != "."]
        # Only now: parts that another process makes come after its manifest.
        if others and not os.path.exists(path):
            raise ValueError(
                f"{self.folder} contains other files (such as "
                f"{sorted(others)[0]}). Choose a new folder for the answers."
            )

        def write(temporary):
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(wanted, file, indent=2)

        # Then it is compared, whoever wrote it.
        atomic_files.write_once(path, write)
        try:
            with open(path, encoding="utf-8") as file:
                there = json.load(file)
            names = [n for n in wanted if wanted[n] != there.get(n)]
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path} is damaged: {error}.") from error
        if names:
            differences = "; ".join(
                f"{name}: {there.get(name)} there, {wanted[name]} now"
                for name in names
            )
            raise ValueError(
                f"{self.folder} contains answers from another model, other "
                f"inputs or other settings ({differences}). Choose another "
                "folder, or delete this one."
            )

    def of_shard(self, number: int = 1, count: int = 1) -> range:
        """Positions of the blocks that one of `count` processes answers."""
        return range(number - 1, len(self.blocks), count)

    def path(self, position: int) -> str:
        """Path of the file for the block at a position."""
        name = f"part-{position + 1:05}-of-{len(self.blocks):05}"
        return os.path.join(self.folder, f"{name}.{self._ending}")

    def is_finished(self, position: int) -> bool:
        """Whether the part is there, and not to be written again."""
        path = self.path(position)
        if not os.path.exists(path) or os.path.exists(self._mark(position)):
            return False
        atomic_files.unlock_killed(path)
        return True

    def mark(self, position: int, is_to_be_repeated: bool) -> None:
        """Says whether the part is to be written again.

        To be called before the part appears, so that it never counts as
        finished by mistake.
        """
        if is_to_be_repeated:
            with open(self._mark(position), "w", encoding="utf-8"):
                pass
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._mark(position))

    def _mark(self, position):
        # Hidden, so that who reads the whole folder does not read it.
        folder, name = os.path.split(self.path(position))
        return os.path.join(folder, f".{name}.again")

    def counts(self, position: int) -> answers.Counts:
        """`Counts` of a finished part."""
        return answers.counts_in(self.path(position))


def rejected_path(path: str) -> str:
    """Path of the `Rejected` of a part, where they are kept.

    To be written before the part appears, so that no part is without them.
    """
    # Hidden, so that who reads the whole folder does not read it.
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.rejected.npz")


@contextlib.contextmanager
def writing(path: str) -> Iterator[Callable[[str, Answer], None]]:
    """Opens a part, which appears when its rows are written.

    Args:
        path: of `Parts.path`.

    Yields:
        A function that takes a key and its `Answer`.

    Raises:
        LockedError: another process is writing this part.
    """
    with (
        atomic_files.replacing_alone(path) as temporary,
        answers.open_rows(temporary) as write,
    ):
        yield write


def _digest(blocks):
    """SHA-256 of what tells one list of inputs from another.

    Of each file the path as it was given, which is a part of its answers' keys,
    and where that leads, its size, and when it was changed.
    """
    digest = hashlib.sha256()
    for block in blocks:
        # Of an array its name, which is no part of the file's path.
        line = [getattr(block, "name", "")]
        for path in block.files:
            line.append([path, os.path.abspath(path)])
            # ValueError: a NUL in the path.
            with contextlib.suppress(OSError, ValueError):
                status = os.stat(path)
                line.append([status.st_size, status.st_mtime_ns])
        digest.update(json.dumps(line).encode())
    return digest.hexdigest()
