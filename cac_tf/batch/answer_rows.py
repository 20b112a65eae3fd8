# SPDX-License-Identifier: Apache-2.0
"""Answers that were written, read again as they come: a file, or a pipe."""

from __future__ import annotations

import csv
import hashlib
import json
import typing
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.plain_text import for_spreadsheet

_NEEDED = ("class_id", "p_value")
# Bytes of a line, and lines of a record. No answer has so many.
_LONGEST = 1 << 20


class Position(typing.NamedTuple):
    """How far a file was read, and a digest that tells it from others."""

    records: int = 0  # rows, and the header
    digest: str = ""  # of the last one


class AnswerRows(typing.NamedTuple):
    """Some answers that were read at once."""

    class_id: list[int]
    p_value: list[float]
    failed: int  # how many inputs between them have none
    position: Position  # behind them


_BEGIN = Position()


def read_answers(
    pieces: Iterable[bytes],
    name: str,
    class_names: Sequence[str],
    after: Position = _BEGIN,
) -> Iterator[AnswerRows]:
    """Reads what `rows_file` and `csv_rows` write, CSV or a JSON object a line.

    A last line without an end is left out: somebody may be writing it. So are
    the headers of further files of CSV behind the first.

    Args:
        pieces: of the content, as they come.
        name: of the file, for messages.
        class_names: of the model.
        after: what was read before is passed over.

    Yields:
        `AnswerRows` of each piece.

    Raises:
        ValueError: no such file, answers of another model, or not the file
            that was read before.

    Example:

    >>> pieces = [b"key,class_id,p_value,error\\n1,0,0.5,\\n2,", b",,bad\\n3,"]
    >>> for rows in read_answers(pieces, "answers.csv", ["cat"]):
    ...     print(rows.class_id, rows.p_value, rows.failed, rows.position[0])
    [0] [0.5] 0 2
    [] [] 1 3
    """
    parse, last = None, _BEGIN
    for records in _whole_records(pieces, name):
        if not records:
            continue
        if parse is None:
            parse = _parser(records[0], name, class_names)
        start, last = last.records, _position(last.records, records)
        if start < after.records <= last.records:
            end = after.records - start
            if _position(start, records[:end]) != after:
                raise ValueError(_other_file(name, after))
        records = records[max(after.records - start, 0) :]
        if records:
            rows = [*parse(records, last.records - len(records))]
            good = [row for row in rows if row is not None]
            yield AnswerRows(
                [class_id for class_id, _ in good],
                [p_value for _, p_value in good],
                len(rows) - len(good),
                last,
            )
    if last.records < after.records:
        raise ValueError(_other_file(name, after))


def _position(start, records):
    digest = hashlib.sha256(records[-1]).hexdigest()[:16]
    return Position(start + len(records), digest)


def _other_file(name, after):
    return (
        f"{name} is not the file whose first {after.records:,} records were "
        "read before: it has changed, or another file now has its name. "
        "Rename it."
    )


def _whole_records(pieces, name):
    """Lists of bytes, each with its end; in CSV one may be of several lines."""
    rest, lines, is_json, is_quoted = b"", [], None, False
    for piece in pieces:
        *ended, rest = (rest + piece).split(b"\n")
        found = []
        for line in ended:
            if is_json is None:
                line = line.removeprefix(b"\xef\xbb\xbf")
                is_json = line.startswith(b"{")
            lines.append(line + b"\n")
            # Within quotes of CSV, a line's end is no record's.
            is_quoted ^= not is_json and line.count(b'"') % 2 == 1
            if not is_quoted:
                found.append(b"".join(lines))
                lines = []
        if len(rest) > _LONGEST or len(lines) > _LONGEST:
            raise ValueError(
                f"{name} is not a CSV or JSONL file written by cac-predict."
            )
        yield found


def _parser(first, name, class_names):
    """A function from records and their place to answers, or None for each."""
    labels = [*class_names, UNKNOWN_NAME]  # unknown is -1

    def answer(row, number):
        if row.get("error"):
            return None
        where = f"{name}, record {number:,}: "
        try:
            # (As texts, as they are in CSV: JSON has other kinds.)
            class_id = int(str(row["class_id"]))
            p_value = float(str(row["p_value"]))
        except (KeyError, ValueError):
            wrong = {one: row.get(one) for one in _NEEDED}
            raise ValueError(
                f"{where}class_id must be an integer and p_value a number; "
                f"got {wrong}."
            ) from None
        if not UNKNOWN <= class_id < len(class_names):
            raise ValueError(
                f"{where}the class id is {class_id}, but this model has "
                f"{len(class_names)} classes: these answers are from another "
                "model."
            )
        label = labels[class_id]
        if row.get("label", label) not in (label, for_spreadsheet(label)):
            raise ValueError(
                f"{where}the class id {class_id} is {row['label']!r}, but "
                f"{label!r} in this model: these answers are from another "
                "model."
            )
        return class_id, p_value

    if first.startswith(b"{"):

        def of_json(records, start):
            for number, record in enumerate(records, start + 1):
                try:
                    row = json.loads(record)
                except ValueError:
                    row = None
                if record.isspace():
                    continue
                if not isinstance(row, dict):
                    raise ValueError(
                        f"{name}, record {number:,}: not a JSON object."
                    )
                yield answer(row, number)

        return of_json

    header = next(_csv_rows([first], name, 0))[1]
    missing = [one for one in _NEEDED if one not in header]
    if missing:
        raise ValueError(
            f"{name} has no column {' and no '.join(missing)}: it must be a "
            "CSV or JSONL file written by cac-predict."
        )

    def of_csv(records, start):
        for number, row in _csv_rows(records, name, start):
            # (Files of CSV behind each other.)
            if not row or row == header:
                continue
            if len(row) != len(header):
                raise ValueError(
                    f"{name}, record {number:,}: found {len(row)} fields, but "
                    f"the header has {len(header)}."
                )
            yield answer(dict(zip(header, row, strict=True)), number)

    return of_csv


def _csv_rows(records, name, start):
    texts = (record.decode("utf-8", "surrogateescape") for record in records)
    try:
        yield from enumerate(csv.reader(texts), start + 1)
    except csv.Error as error:
        raise ValueError(f"{name} is not a valid CSV file: {error}.") from error
