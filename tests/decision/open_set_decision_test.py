# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf.decision import rule
from cac_tf.layers import OpenSetDecision
from tests import execution


def test_smallest_score_decides(mode):
    layer = OpenSetDecision(threshold=1.0)
    scores = np.float32([[0.5, 2.0], [3.0, 1.0], [1.1, 1.2], [np.nan, 0.0]])
    # On the boundary an input is kept: unknown only if score > the threshold.
    decisions = execution.compiled(layer, mode)(scores)
    np.testing.assert_array_equal(decisions, [0, 1, -1, -1])


def test_threshold_per_row(mode):
    decide = execution.compiled(OpenSetDecision(), mode)
    scores = np.float32([[0.5, 2.0]] * 3)
    thresholds = np.float32([0.4, 0.6, np.nan])
    np.testing.assert_array_equal(decide(scores, thresholds), [-1, 0, -1])


def test_without_a_threshold():
    with pytest.raises(ValueError, match="No threshold"):
        OpenSetDecision()(np.zeros((1, 2), "float32"))


def test_compiled_without_a_threshold_everything_is_unknown():
    for mode in set(execution.MODES) - {"eager"}:
        decide = execution.compiled(OpenSetDecision(), mode)
        assert decide(np.zeros((2, 2), "float32")).tolist() == [-1, -1]


@pytest.mark.parametrize("threshold", [np.nan, np.inf])
def test_bad_threshold(threshold):
    with pytest.raises(ValueError, match="finite"):
        OpenSetDecision(threshold=threshold)


def test_a_denormal_threshold_is_the_normal_number_next_to_it():
    """Python and an exported graph would differ about it."""
    tiny = np.finfo("float32").tiny
    given = [1e-40, -1e-40, 0.0, tiny, 0.5]
    expected = np.float32([tiny, -tiny, 0.0, tiny, 0.5])
    np.testing.assert_array_equal(rule.check_threshold(given), expected)
    assert OpenSetDecision(threshold=1e-40).threshold == tiny


def test_threshold_is_saved_with_a_model(tmp_path):
    inputs = keras.Input([2])
    model = keras.Model(inputs, OpenSetDecision(threshold=0.25)(inputs))
    model.layers[-1].threshold = 0.75
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].threshold == 0.75
    decisions = loaded.predict(np.float32([[0.5, 1.0]]), verbose=0)
    np.testing.assert_array_equal(decisions, [0])
