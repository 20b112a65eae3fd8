# SPDX-License-Identifier: Apache-2.0
"""The example with texts."""

import numpy as np
import pytest

import cac_tf
from tests.conftest import ROOT
from tests.conftest import load_script
from tests.execution import BACKEND

pytestmark = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="texts need TensorFlow"
)


@pytest.fixture(scope="module")
def example():
    return load_script(ROOT / "examples" / "text" / "help_topics.py")


def test_texts_on_other_topics_are_rejected(example, tmp_path):
    found = example.main([f"--output_dir={tmp_path}"])
    assert found["accuracy"] > 0.9
    assert found["auroc"] > 0.85
    assert found["known texts rejected"] < 0.25
    assert found["unknown texts rejected"] > 0.5

    # What is kept answers texts alone.
    model = cac_tf.load_model(tmp_path / "model.keras")
    answers = model.predict_open_set(example.help_texts(["scipy.signal"]))
    assert np.mean(answers.label == "signals") > 0.8


def test_help_texts_have_no_repetitions(example):
    texts = example.help_texts(["shutil", "shutil", "os"])
    assert len(texts) == len(set(texts))
    assert any(text.startswith("Recursively delete") for text in texts)
    assert all(len(text.split()) >= 10 for text in texts)
