# SPDX-License-Identifier: Apache-2.0
"""Thresholds by class in every format, as `predict_open_set` applies them.

(tests/export/saved_model_test.py asks every signature for them.)
"""

import numpy as np
import pytest

from tests.export import runtimes
from tests.serving import references


@pytest.fixture(scope="module")
def by_class(trained_pictures):
    model, pictures = trained_pictures
    return references.with_thresholds_by_class(model, pictures), pictures


@pytest.mark.parametrize("suffix", runtimes.LOAD)
def test_each_row_has_the_threshold_of_its_predicted_class(
    by_class, tmp_path, suffix
):
    model, pictures = by_class
    ask = runtimes.exported(model, tmp_path / f"model{suffix}")
    for rows in (slice(None), slice(30, 31)):
        answer = ask(np.float32(pictures[rows]))
        runtimes.assert_as_in_python(model, answer, pictures[rows])
        np.testing.assert_array_equal(
            answer["threshold"], model.threshold[answer["predicted_class_id"]]
        )
        np.testing.assert_array_equal(
            answer["is_unknown"],
            answer["unknown_score"] > answer["threshold"],
        )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", runtimes.LOAD)
@pytest.mark.parametrize("score", ["gamma", "max_logit"])
def test_rows_that_are_not_valid_show_the_first_threshold(
    by_class, tmp_path, suffix, score
):
    """In every runtime, whatever it makes of NaN; the others do not notice."""
    model, pictures = by_class
    model = model.with_score(score)
    model.calibrate(pictures, true_positive_rate=0.5, by_class=True)
    assert len(set(model.threshold)) == 3
    images = np.float32(pictures)
    images[::5, 4, 4] = np.nan
    images[2] = np.inf
    images[8] = -3e38
    valid = np.arange(len(images)) % 5 > 0
    valid[[2, 8]] = False
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(images)
    np.testing.assert_array_equal(answer["is_valid"], valid)
    assert answer["is_unknown"][~valid].all()
    assert set(answer["predicted_class_id"][~valid]) == {-1}
    assert set(answer["threshold"][~valid]) == {model.threshold[0]}
    of_valid = {name: value[valid] for name, value in answer.items()}
    runtimes.assert_as_in_python(model, of_valid, pictures[valid])


def test_with_threshold_takes_one_for_each_row(by_class, tmp_path):
    """In place of those of the classes; also where it is none."""
    model, pictures = by_class
    ask = runtimes.asking(model, tmp_path / "saved", "with_threshold")
    own = model.predict_open_set(pictures)
    thresholds = model.threshold[own.predicted_class_id]
    images = np.float32(pictures)
    answer = ask(images, threshold=thresholds)
    np.testing.assert_array_equal(answer["class_id"], own.class_id)
    # The other way round.
    thresholds[own.is_unknown] = 1e30
    thresholds[~own.is_unknown] = 0.0
    thresholds[3] = np.nan
    answer = ask(images, threshold=thresholds)
    expected = np.where(own.is_unknown, own.predicted_class_id, -1)
    expected[3] = -1
    np.testing.assert_array_equal(answer["class_id"], expected)
    assert answer["threshold"][3] == model.threshold[0]
    others = np.arange(len(images)) != 3
    np.testing.assert_array_equal(
        answer["threshold"][others], thresholds[others]
    )
    np.testing.assert_array_equal(answer["is_valid"], others)


def test_equal_thresholds_are_one(trained_pictures, tmp_path):
    """The graph of a model with one number, and its answers."""
    model, pictures = trained_pictures
    model = model.with_score("gamma")
    answers = []
    for i, threshold in enumerate((0.25, [0.25, 0.25, 0.25])):
        model.set_threshold(threshold)
        assert model.threshold == 0.25
        ask = runtimes.exported(model, tmp_path / f"{i}.saved")
        operations = [op.type for op in ask.signature.graph.get_operations()]
        answers.append((operations, ask(np.float32(pictures))))
    assert answers[0][0] == answers[1][0]
    for name, value in answers[0][1].items():
        np.testing.assert_array_equal(answers[1][1][name], value)
