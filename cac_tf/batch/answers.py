# SPDX-License-Identifier: Apache-2.0
"""Answers for many files: read, classified, written as they come."""

import contextlib
import csv
import filecmp
import itertools
import json
import os
import re
import shutil
import typing

from cac_tf import atomic_files
from cac_tf.batch.file_classifier import FileAnswer

# Of a row: the path, and `FileAnswer` without the nearest classes.
COLUMNS = (
    "key",
    "label",
    "class_id",
    "is_unknown",
    "unknown_score",
    "threshold",
    "predicted_class",
    "error",
)
_BATCH = 32


class Counts(typing.NamedTuple):
    """How many files were accepted, rejected, and not readable."""

    accepted: int = 0
    rejected: int = 0
    failed: int = 0

    def and_one(self, answer):
        """The counts with one more `FileAnswer`."""
        if answer.error:
            return self._replace(failed=self.failed + 1)
        if answer.is_unknown:
            return self._replace(rejected=self.rejected + 1)
        return self._replace(accepted=self.accepted + 1)


def answer_files(classifier, paths, threshold=None):
    """Reads and classifies files, a batch at a time.

    A file that cannot be read has an answer with an error.

    Args:
        classifier: `FileClassifier`.
        paths: iterable of texts.
        threshold: as in `FileClassifier.classify`.

    Yields:
        Pairs of a path and its `FileAnswer`, in the order of the paths.
    """
    paths = iter(paths)
    while batch := list(itertools.islice(paths, _BATCH)):
        read = [_contents(path) for path in batch]
        files = [one for one in read if isinstance(one, bytes)]
        answers = iter(classifier.classify(files, threshold))
        for path, one in zip(batch, read, strict=True):
            is_read = isinstance(one, bytes)
            yield path, next(answers) if is_read else FileAnswer(error=one)


def _contents(path):
    """Bytes of a file, or the text of what went wrong."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        return error.strerror or type(error).__name__


def row_of(key, answer):
    """The values of `COLUMNS`, as a dict."""
    return {
        "key": key,
        **{name: getattr(answer, name) for name in COLUMNS[1:]},
    }


@contextlib.contextmanager
def rows_file(path):
    """Opens a file for rows, which appears when all are written.

    Args:
        path: ends in .csv or .jsonl.

    Yields:
        A function that takes a key and its `FileAnswer`.

    Raises:
        ValueError: another ending.
    """
    ending = os.path.splitext(path)[1]
    if ending not in (".csv", ".jsonl"):
        raise ValueError(f"output must end in .csv or .jsonl; got {path}.")
    with (
        atomic_files.replacing(path) as temporary,
        open(
            temporary,
            "w",
            newline="",
            encoding="utf-8",
            errors="surrogateescape",
        ) as file,
    ):
        yield csv_rows(file) if ending == ".csv" else _json_rows(file)


def csv_rows(file):
    """Writes the header of a CSV file.

    Args:
        file: open for text.

    Returns:
        A function that takes a key and its `FileAnswer`, and writes a row.
    """
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()

    def write(key, answer):
        writer.writerow(row_of(key, answer))

    return write


def _json_rows(file):
    def write(key, answer):
        file.write(json.dumps(row_of(key, answer), ensure_ascii=False) + "\n")

    return write


def copy_by_answer(path, answer, folder):
    """Copies a file into the folder of its answer; nothing is replaced.

    Args:
        path: of the file.
        answer: its `FileAnswer`.
        folder: gets a folder for each label, "unknown" among them. A file
            with an error is not copied, and no copy is made twice.

    Returns:
        Path of the copy, or None.
    """
    if answer.error:
        return None
    label = re.sub(r"[^\w. -]", "_", answer.label).strip(". ") or "_"
    target = os.path.join(folder, label)
    os.makedirs(target, exist_ok=True)
    stem, ending = os.path.splitext(os.path.basename(path))
    for number in itertools.count(1):
        more = "" if number == 1 else f"_{number}"
        copy = os.path.join(target, f"{stem}{more}{ending}")
        if not os.path.exists(copy):
            return shutil.copyfile(path, copy)
        if filecmp.cmp(path, copy, shallow=False):
            return copy
