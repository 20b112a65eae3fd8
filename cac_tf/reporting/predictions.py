# SPDX-License-Identifier: Apache-2.0
"""The answer to each test image, as a table."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.plain_text import for_spreadsheet

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset

_COLUMNS = (
    *("key", "true_class", "is_known", "label", "is_unknown"),
    *("unknown_score", "threshold", "predicted_class"),
)


def write_predictions(
    path: Path, evaluation: Any, dataset: OpenSetDataset
) -> None:
    """Writes a CSV file with a row for each test image, known ones first.

    The columns have the names that a batch of predictions has: `key` is the
    name of the image's file, or its part and place in the data set, such as
    "unknown_test/7"; `label` is the answer, a class or "unknown";
    `predicted_class` is that before rejection. Besides, `true_class` is the
    image's own class and `is_known` whether it was trained on. Without a
    threshold, nothing is rejected and `threshold` is empty.

    Args:
        path: of the file.
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` that was evaluated on.
    """
    accepted, thresholds = evaluation.is_accepted, evaluation.thresholds
    if thresholds is None:
        thresholds = np.full(len(evaluation.labels), "")
        accepted = np.full(len(evaluation.labels), True)
    with (
        atomic_files.replacing(path) as temporary,
        # The other bytes of a file's name stay what they are.
        open(
            temporary,
            "w",
            newline="",
            encoding="utf-8",
            errors="surrogateescape",
        ) as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row, (key, truth) in enumerate(_images(dataset)):
            answer = dataset.class_names[evaluation.predicted_class_id[row]]
            writer.writerow(
                (
                    for_spreadsheet(key),
                    for_spreadsheet(truth),
                    bool(evaluation.is_known[row]),
                    for_spreadsheet(answer) if accepted[row] else UNKNOWN_NAME,
                    not accepted[row],
                    evaluation.unknown_score[row],
                    thresholds[row],
                    for_spreadsheet(answer),
                )
            )


def _images(dataset):
    """Key and true class of each test image, in an evaluation's order."""
    for part, class_names in (
        ("known_test", dataset.class_names),
        ("unknown_test", dataset.unknown_class_names),
    ):
        examples = getattr(dataset, part)
        names = examples.names
        for row, label in enumerate(examples.labels):
            key = f"{part}/{row}" if names is None else names[row]
            yield key, class_names[label]
