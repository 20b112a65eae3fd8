# SPDX-License-Identifier: Apache-2.0
"""The digits of scikit-learn, five trials, three seeds: what must hold."""

import numpy as np
import pytest

from tests.conftest import load_benchmark


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_auroc_accuracy_and_kept_fraction(seed):
    benchmark = load_benchmark("digits")
    runs = [benchmark.run_trial(trial, seed) for trial in range(5)]
    assert np.mean([run["auroc"] for run in runs]) >= 0.95
    assert np.mean([run["accuracy"] for run in runs]) >= 0.985
    for run in runs:
        n_validation = run["counts"]["validation"]
        n_test = run["counts"]["known_test"]
        tolerance = 3 * np.sqrt(0.0475 * (1 / n_validation + 1 / n_test))
        assert abs(run["true_positive_rate"] - 0.95) <= tolerance
