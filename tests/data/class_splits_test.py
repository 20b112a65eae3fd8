# SPDX-License-Identifier: Apache-2.0
import pytest

from cac_tf.data import class_split
from cac_tf.data import split_families


def test_both_families_ship_with_five_trials():
    assert split_families() == ("neal", "miller2020")
    for family in split_families():
        for dataset in ("digits", "mnist", "svhn", "cifar10"):
            for trial in range(5):
                known, unknown = class_split(dataset, family, trial)
                assert sorted([*known, *unknown]) == list(range(10))
                assert len(known) == 6


@pytest.mark.parametrize(
    "dataset, num_known, num_unknown",
    [("cifar+10", 4, 10), ("cifar+50", 4, 50), ("tinyimagenet", 20, 180)],
)
def test_the_larger_benchmarks(dataset, num_known, num_unknown):
    for family in split_families():
        for trial in range(5):
            split = class_split(dataset, family, trial)
            assert len(set(split.known)) == num_known
            assert len(set(split.unknown)) == num_unknown


def test_the_first_split_of_the_benchmark():
    split = class_split("cifar10", "neal", 0)
    assert split.known == (0, 1, 2, 4, 5, 9)
    assert split.unknown == (3, 6, 7, 8)


def test_bad_input():
    with pytest.raises(ValueError, match="splits for: digits, mnist"):
        class_split("letters")
    with pytest.raises(ValueError, match="there are: neal, miller2020"):
        class_split("mnist", "arpl")
    for trial in (5, -1):
        with pytest.raises(ValueError, match="from 0 to 4"):
            class_split("mnist", trial=trial)
