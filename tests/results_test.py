# SPDX-License-Identifier: Apache-2.0
"""The committed results of the longer runs, and the README's tables of them.

benchmarks/vehicles_animals.py takes minutes a seed; a short run of the same
way is in tests/train.
"""

import json

import pytest

from tests.conftest import ROOT
from tests.conftest import load_benchmark

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


@pytest.mark.parametrize("name", ["digits_table", "vehicles_animals_table"])
def test_the_readme_shows_the_committed_numbers(name):
    table = getattr(load_benchmark("tables"), name)()
    assert table in (ROOT / "README.md").read_text()
