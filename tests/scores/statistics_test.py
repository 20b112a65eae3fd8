# SPDX-License-Identifier: Apache-2.0
"""Samples that depend on the examples alone."""

import numpy as np
import pytest
from scipy import stats

from cac_tf.scores.score import keys_of
from cac_tf.scores.statistics import Sample


def one_hot_images(dtype):
    """Each differs from a grey image in one value of one pixel."""
    images = np.full((8 * 8 * 3 * 16, 8, 8, 3), 7, dtype)
    flat = images.reshape(len(images), -1)
    flat[np.arange(len(flat)), np.arange(len(flat)) // 16] += (
        np.arange(len(flat)) % 16 + 1
    ).astype(dtype)
    return images


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_keys_look_random_for_inputs_that_do_not(dtype):
    keys = keys_of(one_hot_images(dtype))
    assert len(np.unique(keys)) == len(keys) == 3072
    # Seen as numbers in [0, 1), and each half of their bits likewise.
    for bits, shift in ((64, 0), (32, 0), (32, 32)):
        part = (keys >> np.uint64(shift)) & np.uint64(2**bits - 1)
        assert stats.kstest(part / 2.0**bits, "uniform").pvalue > 0.001
    ranks = stats.spearmanr(keys / 2.0**64, np.arange(len(keys)))
    assert ranks.pvalue > 0.001


def test_keys_of_rows_are_those_of_each_row(rng):
    """Also where rows do not fill whole words, and of none."""
    for shape in ((5, 3), (5, 1), (5, 2, 3), (5,)):
        rows = rng.integers(0, 255, shape).astype("uint8")
        alone = np.concatenate([keys_of(row[None]) for row in rows])
        np.testing.assert_array_equal(keys_of(rows), alone)
    assert keys_of(np.zeros((0, 3))).shape == (0,)
    # The same in every run and version: samples of a resumed fit agree.
    assert keys_of(np.arange(3.0)[None]).tolist() == [14824572515536564164]


@pytest.mark.parametrize("batch", [1, 7, 100, 1000])
def test_a_sample_is_that_of_the_smallest_keys(rng, batch):
    """In whatever order and batches, for every class alone."""
    labels = rng.choice(3, 1000, p=[0.9, 0.09, 0.01])
    keys = keys_of(np.arange(1000.0)[:, None])
    expected = np.concatenate(
        [
            own[np.argsort(keys[own])[:20]]
            for own in (np.flatnonzero(labels == n) for n in range(3))
        ]
    )
    sample = Sample(60, num_classes=3)
    order = rng.permutation(1000)
    for start in range(0, 1000, batch):
        rows = order[start : start + batch]
        sample.add(keys[rows], labels[rows], rows)
    found_labels, found = sample.arrays()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found_labels, labels[expected])
    assert sample.seen == 1000
