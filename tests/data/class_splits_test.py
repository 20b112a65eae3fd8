# SPDX-License-Identifier: Apache-2.0
import pytest

from cac_tf.data import class_split
from cac_tf.data.class_splits import split_families


@pytest.mark.parametrize(
    "dataset, num_known, num_unknown",
    [
        *((name, 6, 4) for name in ("digits", "mnist", "svhn", "cifar10")),
        *(("cifar+10", 4, 10), ("cifar+50", 4, 50), ("tinyimagenet", 20, 180)),
    ],
)
def test_both_families_ship_with_five_trials(dataset, num_known, num_unknown):
    assert split_families() == ("neal", "miller2020")
    for family in split_families():
        for trial in range(5):
            known, unknown = class_split(dataset, family, trial)
            assert len(set(known)) == num_known
            assert len(set(unknown)) == num_unknown
            if num_known == 6:
                assert sorted([*known, *unknown]) == list(range(10))


def test_the_first_split_of_the_benchmark():
    split = class_split("cifar10", "neal", 0)
    assert split.known == (0, 1, 2, 4, 5, 9)
    assert split.unknown == (3, 6, 7, 8)


def test_bad_input():
    with pytest.raises(ValueError, match="only for: digits, mnist"):
        class_split("letters")
    with pytest.raises(
        ValueError, match="Available: neal, miller2020, and random<n>"
    ):
        class_split("mnist", "arpl")
    for trial in (5, -1):
        with pytest.raises(ValueError, match="numbered 0 to 4"):
            class_split("mnist", trial=trial)


@pytest.mark.parametrize(
    "dataset, total", [("digits", 10), ("tinyimagenet", 200)]
)
def test_drawn_splits(dataset, total):
    """As many unknown classes as known ones: openness 1 - sqrt(2 / 3)."""
    for size in (2, total // 2):
        drawn = [class_split(dataset, f"random{size}", t) for t in range(5)]
        for known, unknown in drawn:
            assert len(set(known)) == len(set(unknown)) == size
            assert not set(known) & set(unknown)
            assert {*known, *unknown} <= set(range(total))
        assert len(set(drawn)) == 5
    with pytest.raises(ValueError, match=f"n must be 2 to {total // 2}"):
        class_split(dataset, f"random{total // 2 + 1}")


def test_drawn_splits_that_do_not_fit():
    with pytest.raises(ValueError, match="random1: mnist has 10 classes"):
        class_split("mnist", "random1")
    with pytest.raises(ValueError, match="from another data set"):
        class_split("cifar+10", "random2")
    with pytest.raises(ValueError, match="numbered 0 to 4"):
        class_split("mnist", "random2", 5)
    for name in ("random", "random0", "random02", "random2x"):
        with pytest.raises(ValueError, match="Unknown split family"):
            class_split("mnist", name)
