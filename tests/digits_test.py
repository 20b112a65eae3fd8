# SPDX-License-Identifier: Apache-2.0
"""The digits of scikit-learn by their preset: what must hold.

benchmarks/digits.py does the same for all trials and three seeds.
"""

import numpy as np

from tests.conftest import load_benchmark


def test_auroc_accuracy_and_accepted_fraction():
    run = load_benchmark("digits").run_trial(0, seed=0)
    assert run["auroc"] >= 0.96
    assert run["accuracy"] >= 0.985
    n_validation = run["counts"]["validation"]
    n_test = run["counts"]["known_test"]
    tolerance = 3 * np.sqrt(0.0475 * (1 / n_validation + 1 / n_test))
    assert abs(run["true_positive_rate"] - 0.95) <= tolerance
