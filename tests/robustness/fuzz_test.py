# SPDX-License-Identifier: Apache-2.0
"""A short time of `fuzz`, the same cases each time."""

import pytest

from tests.robustness.fuzz import SUBJECTS
from tests.robustness.fuzz import fuzz
from tests.robustness.fuzz import print_outcome

SECONDS = {
    "hostile_files": 5,
    "random_flags": 5,
    "damaged_artefacts": 10,
    "concurrent_serving": 3,
    "random_kills": 8,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("subject", SUBJECTS)
def test_rough_use(subject):
    tried, failures = fuzz(subject, SECONDS[subject])
    print_outcome(subject, tried, failures)
    assert sum(tried.values()) > 0 or failures
    assert not failures, "\n".join(failures)
