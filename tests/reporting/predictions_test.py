# SPDX-License-Identifier: Apache-2.0
import csv
import dataclasses

import numpy as np

from cac_tf.data import Examples
from cac_tf.reporting.predictions import write_predictions
from tests.reporting.report_test import by_class
from tests.reporting.report_test import example


def rows_of(path):
    with open(
        path, newline="", encoding="utf-8", errors="surrogateescape"
    ) as file:
        return list(csv.DictReader(file))


def test_each_test_image_has_a_row(rng, tmp_path):
    evaluation, dataset = example(rng)
    path = tmp_path / "predictions.csv"
    write_predictions(path, evaluation, dataset)
    rows = rows_of(path)
    assert len(rows) == len(evaluation.labels)
    assert rows[0]["key"] == "known_test/0"
    assert rows[60]["key"] == "unknown_test/0"
    accepted = evaluation.unknown_score <= 0.5
    for row, label, answer, score, is_accepted in zip(
        rows,
        evaluation.labels,
        evaluation.predicted_class_id,
        evaluation.unknown_score,
        accepted,
        strict=True,
    ):
        name = dataset.class_names[answer]
        assert row["true_class"] == (*dataset.class_names, "bear")[label]
        assert row["is_known"] == str(label >= 0)
        assert row["predicted_class"] == name
        assert row["label"] == (name if is_accepted else "unknown")
        assert row["is_unknown"] == str(not is_accepted)
        assert np.float32(row["unknown_score"]) == score
        assert row["threshold"] == "0.5"


def test_no_name_is_a_formula(rng, tmp_path):
    evaluation, dataset = example(rng)
    names = ("=1+1", *dataset.class_names[1:])
    path = tmp_path / "predictions.csv"
    write_predictions(
        path, evaluation, dataclasses.replace(dataset, class_names=names)
    )
    found = {row["predicted_class"] for row in rows_of(path)}
    assert found == {"'=1+1", *names[1:]}


def test_thresholds_by_class_and_none(rng, tmp_path):
    evaluation, dataset = example(rng)
    path = tmp_path / "predictions.csv"
    thresholds = [0.25, 0.75, 0.125]
    write_predictions(path, by_class(evaluation, thresholds), dataset)
    for row in rows_of(path):
        threshold = thresholds[
            dataset.class_names.index(row["predicted_class"])
        ]
        assert float(row["threshold"]) == threshold
        is_unknown = float(row["unknown_score"]) > threshold
        assert row["is_unknown"] == str(is_unknown)
    evaluation, dataset = example(rng, threshold=None)
    write_predictions(path, evaluation, dataset)
    assert {(r["threshold"], r["is_unknown"]) for r in rows_of(path)} == {
        ("", "False")
    }


def test_names_of_files_are_keys(rng, tmp_path):
    evaluation, dataset = example(rng)
    names = [f"cat, and\n{i}.png" for i in range(60)]
    # A byte that is no UTF-8.
    names[7] = b"\xff.png".decode("utf-8", "surrogateescape")
    known = dataset.known_test
    dataset = dataclasses.replace(
        dataset, known_test=Examples(known.images, known.labels, names)
    )
    path = tmp_path / "predictions.csv"
    write_predictions(path, evaluation, dataset)
    rows = rows_of(path)
    assert [row["key"] for row in rows[:60]] == names
    assert rows[60]["key"] == "unknown_test/0"
