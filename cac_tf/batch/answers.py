# SPDX-License-Identifier: Apache-2.0
"""Answers for many inputs: read, classified, written as they come."""

import contextlib
import csv
import filecmp
import hashlib
import json
import os
import re
import shutil
import typing
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import TextIO

from cac_tf import atomic_files
from cac_tf import lazy
from cac_tf.batch.classifier import Answer
from cac_tf.batch.classifier import Classifier
from cac_tf.batch.inputs import blocks_of
from cac_tf.batch.inputs import said_of
from cac_tf.batch.paths import paths_of
from cac_tf.batch.rejected import RejectedSoFar
from cac_tf.counted import counted
from cac_tf.plain_text import for_spreadsheet

arrow = lazy.module("pyarrow", extra="parquet")
parquet = lazy.module("pyarrow.parquet", extra="parquet")

# The key, and the fields of an `Answer` without the probabilities.
COLUMNS = ("key", *Answer._fields[:-1])
FORMATS = ("csv", "jsonl", "parquet")
_ROW_GROUP = 1 << 16


class Counts(typing.NamedTuple):
    """How many inputs were accepted, rejected, and not readable."""

    accepted: int = 0
    rejected: int = 0
    failed: int = 0

    def and_one(self, answer: Answer) -> "Counts":
        """The counts with one more `Answer`."""
        if answer.error:
            return self._replace(failed=self.failed + 1)
        if answer.is_unknown:
            return self._replace(rejected=self.rejected + 1)
        return self._replace(accepted=self.accepted + 1)

    def and_those(self, others: "Counts") -> "Counts":
        """The sum of two counts."""
        return Counts(*map(sum, zip(self, others, strict=True)))

    def in_words(self) -> str:
        """A sentence for a person.

        Example:

        >>> Counts(accepted=7, rejected=2).in_words()
        '9 inputs: 7 of known classes, 2 unknown, 0 unreadable.'
        """
        return (
            f"{counted(sum(self), 'input')}: {self.accepted} of known classes, "
            f"{self.rejected} unknown, {self.failed} unreadable."
        )


def classify_files(
    classifier: Classifier,
    inputs: Iterable[str],
    threshold: float | None = None,
) -> Iterator[tuple[str, Answer]]:
    """Reads and classifies files in chunks, as `cac-predict` does.

    Args:
        classifier: `Classifier`.
        inputs: paths, folders and patterns of photos, or of files that hold
            many inputs and end in .npz, .npy, .csv, .parquet, .tfrecord,
            .jsonl or .txt (texts).
        threshold: a number that replaces the model's own.

    Yields:
        Pairs of a key and its `Answer`, in the order of the inputs. A photo's
        key is its path; in a file of many inputs, each has its own key.
        Unreadable inputs have an answer with an error.

    Raises:
        ValueError: a folder without files, or a pattern that matches none.

    Example:

    >>> import os, tempfile, keras, numpy as np, cac_tf
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.npy")
    >>> np.save(path, np.float32([[0, 9], [9, 0], [np.nan, 0]]))
    >>> network = keras.Sequential([keras.Input([2]), keras.layers.ReLU()])
    >>> model = cac_tf.OpenSetClassifier(network, ["left", "right"])
    >>> model.set_threshold(1e6)
    >>> model.save(path.replace("rows.npy", "model.keras"))
    >>> classifier = Classifier.load(os.path.dirname(path))
    >>> for _, answer in classify_files(classifier, [path]):
    ...     print(answer.label or answer.error)
    right
    left
    it contains NaN or infinity; inputs must be finite
    """
    for block in blocks_of(paths_of(inputs)):
        yield from answers_of(classifier, block, threshold)


def answers_of(
    classifier: Classifier,
    block: Any,
    threshold: float | None = None,
    rejected: RejectedSoFar | None = None,
) -> Iterator[tuple[str, Answer]]:
    """Reads and classifies a block of inputs, a chunk at a time.

    An input that cannot be read gets an answer with an error. If the rest of a
    file cannot be read, it gets one such answer, whose key is the file's path.

    Args:
        classifier: `Classifier`.
        block: one of `blocks_of`.
        threshold: as in `Classifier.classify`.
        rejected: collects the block's rejected inputs.

    Yields:
        Pairs of a key and its `Answer`, in the order of the inputs.
    """
    chunks = block.chunks(classifier)
    while True:
        try:
            chunk = next(chunks)
        except StopIteration:
            return
        # Readers of damaged files raise of any kind; other files come after.
        except Exception as error:
            yield block.files[0], Answer(error=said_of(error))
            return
        answers = answers_of_chunk(classifier, chunk, threshold)
        if rejected is not None:
            rejected.add(chunk, answers)
        yield from zip(chunk.keys, answers, strict=True)


def answers_of_chunk(
    classifier: Classifier,
    chunk: Any,
    threshold: float | None = None,
) -> list[Answer]:
    """List of an `Answer` for each row of a `Chunk`."""
    # (Then there may be no size that the model takes.)
    if len(chunk.errors) == len(chunk.keys):
        return [Answer(error=chunk.errors[i]) for i in range(len(chunk.keys))]
    answers = classifier.classify(chunk.values, threshold)
    for place, error in chunk.errors.items():
        answers[place] = Answer(error=error)
    return answers


@contextlib.contextmanager
def rows_file(path: str) -> Iterator[Callable[[str, Answer], None]]:
    """Opens a file for rows, which appears when all are written.

    Args:
        path: ends in .csv, .jsonl or .parquet.

    Yields:
        A function that takes a key and its `Answer`.

    Raises:
        ValueError: another ending, or another process is writing the file.
    """
    check_ending(path)
    with (
        atomic_files.replacing_alone(path) as temporary,
        open_rows(temporary) as row,
    ):
        yield row


def check_ending(path: str) -> None:
    """Raises ValueError for a path of which `open_rows` makes no file."""
    if os.path.splitext(path)[1][1:] not in FORMATS:
        raise ValueError(
            f"output must end in .csv, .jsonl or .parquet; got {path}."
        )


@contextlib.contextmanager
def open_rows(path: str) -> Iterator[Callable[[str, Answer], None]]:
    """Opens a file for rows, in place.

    Args:
        path: ends in .csv, .jsonl or .parquet.

    Yields:
        A function that takes a key and its `Answer`.
    """
    if path.endswith(".parquet"):
        with _parquet_rows(path) as row:
            yield row
        return
    # Bytes of a path that are no text: as they are in CSV; JSON is always text,
    # and has an escape for them.
    is_csv = path.endswith(".csv")
    errors = "surrogateescape" if is_csv else "backslashreplace"
    with open(path, "w", newline="", encoding="utf-8", errors=errors) as file:
        yield csv_rows(file) if is_csv else _json_rows(file)


def csv_rows(file: TextIO) -> Callable[[str, Answer], None]:
    """Writes the header of a CSV file, whose texts are `for_spreadsheet`.

    Args:
        file: open for text.

    Returns:
        A function that takes a key and its `Answer`, and writes a row.
    """
    writer = csv.writer(file)
    writer.writerow(COLUMNS)

    def write(key, answer):
        row = (key, *answer[:-1])
        writer.writerow(
            for_spreadsheet(one) if isinstance(one, str) else one for one in row
        )

    return write


def _json_rows(file):
    def write(key, answer):
        row = dict(zip(COLUMNS, (key, *answer[:-1]), strict=True))
        file.write(json.dumps(row, ensure_ascii=False) + "\n")

    return write


@contextlib.contextmanager
def _parquet_rows(path):
    kinds = {
        "class_id": arrow.int32(),
        "is_unknown": arrow.bool_(),
        "unknown_score": arrow.float64(),
        "p_value": arrow.float64(),
        "threshold": arrow.float64(),
    }
    schema = arrow.schema(
        [(name, kinds.get(name, arrow.string())) for name in COLUMNS]
    )
    rows = []
    with parquet.ParquetWriter(path, schema) as writer:

        def flush():
            columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
            arrays = [
                arrow.array(values, field.type)
                for values, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(arrow.table(arrays, schema=schema))
            rows.clear()

        def write(key, answer):
            rows.append(tuple(map(_storable, (key, *answer[:-1]))))
            if len(rows) == _ROW_GROUP:
                flush()

        yield write
        flush()


def _storable(value):
    """Parquet has no lone surrogates, which stand for bytes of file names."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def counts_in(path: str) -> Counts:
    """The `Counts` of the rows in a file of `rows_file`."""
    if path.endswith(".parquet"):
        table = parquet.read_table(path, columns=["is_unknown", "error"])
        rows = table.to_pylist()
        return _counts((row["error"], row["is_unknown"]) for row in rows)
    with open(
        path, newline="", encoding="utf-8", errors="surrogateescape"
    ) as file:
        if path.endswith(".csv"):
            return _counts(
                (row["error"], row["is_unknown"] == "True")
                for row in csv.DictReader(file)
            )
        rows = map(json.loads, file)
        return _counts((row["error"], row["is_unknown"]) for row in rows)


def _counts(rows):
    counts = Counts()
    for error, is_unknown in rows:
        counts = counts.and_one(Answer(error=error, is_unknown=is_unknown))
    return counts


# Of the second file of a name, in characters: no name becomes too long.
_LONGEST_STEM = 50
# Of folders, in bytes. File systems take 255.
_LONGEST_FOLDER = 240


def _folder_name(label):
    """What a label is called as a folder; no two are called the same.

    Example:

    >>> _folder_name("cat"), _folder_name("cat/dog")
    ('cat', 'cat_dog_c9102ea6')
    """
    name = re.sub(r"[^\w. -]", "_", label).encode()[:_LONGEST_FOLDER]
    name = name.decode(errors="ignore").strip(". ")
    if name == label:
        return name
    digest = hashlib.sha256(label.encode("utf-8", "surrogateescape"))
    return f"{name}_{digest.hexdigest()[:8]}"


def copy_by_answer(path: str, answer: Answer, folder: str) -> str | None:
    """Copies a file into the folder of its answer; nothing is replaced.

    Copies are whole, whatever is killed and however many processes make them.
    The second file of the same name gets a part of its SHA-256 into its name.

    Args:
        path: of the file.
        answer: its `Answer`.
        folder: gets a folder for each label, "unknown" among them; where a
            label cannot be a folder's name, with a part of its SHA-256. A file
            with an error is not copied, and no copy is made twice.

    Returns:
        Path of the copy, or None.

    Raises:
        OSError: the file cannot be read any more, or not be written there.
    """
    if answer.error:
        return None
    target = os.path.join(folder, _folder_name(answer.label))
    os.makedirs(target, exist_ok=True)
    name = os.path.basename(path)
    copy = os.path.join(target, name)
    if os.path.exists(copy) and filecmp.cmp(path, copy, shallow=False):
        return copy
    # First under a name that no other content has, so that nothing is lost if
    # two processes write it.
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    stem, ending = os.path.splitext(name)
    own = os.path.join(target, f"{stem[:_LONGEST_STEM]}_{digest}{ending}")
    atomic_files.write_once(own, lambda to: shutil.copyfile(path, to))
    try:
        # Unlike renaming, this does not replace a file.
        os.link(own, copy)
    except OSError:  # It exists, or the file system has no hard links.
        return own
    os.unlink(own)
    return copy
