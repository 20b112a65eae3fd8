# SPDX-License-Identifier: Apache-2.0
"""An export in TensorFlow's own C++ loader, as TensorFlow Serving loads it."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.conftest import load_benchmark
from tests.serving import references

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="there is no C++ compiler"
)


SOURCE = ROOT / "tests" / "serving" / "saved_model_check.cc"


@pytest.mark.slow
def test_the_loader_of_tensorflow_serving(
    trained_pictures, served_pictures, tmp_path
):
    """References, warm-up, 32 threads, and 10,000 of each bad request."""
    model, pictures = trained_pictures
    folder = served_pictures / "3"
    cases = list(references.cases(model, pictures, 3))
    references.write_cases(tmp_path / "references", cases)
    program = tmp_path / "saved_model_check"
    load_benchmark("serving").build(SOURCE, program)
    result = subprocess.run(
        [program, folder, tmp_path / "references", "32", "6", "10000"],
        capture_output=True,
        text=True,
        check=False,
    )
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    answers = [answer for _, _, answer in cases if answer]
    is_bad = [not a.get("is_valid", np.ones(1)).any() for a in answers]
    num_refused = len(cases) - len(answers)
    assert num_refused >= 16
    assert sum(is_bad) >= 20
    assert result.stdout.count("refused 10000 times") == num_refused
    rejected = re.findall(r"^rejected 10\d{3} bad rows", result.stdout, re.M)
    assert len(rejected) == sum(is_bad)
    assert "warm-up: 10 requests answered" in result.stdout
    for when in ("before", "after"):
        assert f"{when}: {len(answers)} requests answered" in result.stdout
