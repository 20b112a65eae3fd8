# SPDX-License-Identifier: Apache-2.0
"""The committed runs of benchmarks/vehicles_animals.py.

Each takes minutes; a short run of the same way is in tests/train.
"""

import json

import pytest

from tests.conftest import ROOT

RESULTS = sorted(
    (ROOT / "benchmarks" / "results").glob("vehicles_animals_seed*.json")
)


def test_more_than_one_seed_is_committed():
    assert len(RESULTS) >= 2


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_accuracy_and_auroc_of_the_committed_runs(path):
    result = json.loads(path.read_text())
    assert result["metrics"]["accuracy"] >= 0.75
    assert result["metrics"]["auroc"] >= 0.65
    assert result["metrics"]["class_names"] == ["train", "bus", "bicycle"]
    assert result["metrics"]["unknown_class_names"] == ["bear", "possum"]
    assert result["environment"]["commit"]
