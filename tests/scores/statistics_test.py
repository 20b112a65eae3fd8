# SPDX-License-Identifier: Apache-2.0
"""Samples that depend on the examples alone."""

import numpy as np
import pytest
from scipy import special
from scipy import stats

from cac_tf.scores.score import keys_of
from cac_tf.scores.statistics import Sample
from cac_tf.scores.statistics import moderated_variances


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


def drawn_variances(rng, groups, common, prior):
    """True variances of groups, and those of a few values of each."""
    true = common * prior / rng.chisquare(prior, groups)
    counts = rng.integers(2, 9, groups)
    return true, true * rng.chisquare(counts - 1) / counts, counts


def test_moderated_variances_are_the_means_given_what_was_seen(rng):
    """Those of the distribution that the true ones were drawn from."""
    _, found, counts = drawn_variances(rng, 20_000, common=2.0, prior=10)
    freedom = counts - 1
    expected = (10 * 2.0 + found * counts) / (10 + freedom)
    actual = moderated_variances(found, counts)
    np.testing.assert_allclose(actual, expected, rtol=0.1)


def test_moderated_variances_are_nearer_to_the_true_ones(rng):
    """Of 20 groups, in the logarithm; with many values they change nothing."""
    errors = []
    for _ in range(20):
        true, found, counts = drawn_variances(rng, 20, common=0.5, prior=6)
        unbiased = found * counts / (counts - 1)
        errors.append(
            [
                np.mean(np.log(one / true) ** 2)
                for one in (unbiased, moderated_variances(found, counts))
            ]
        )
        many = np.full(20, 10_000)
        np.testing.assert_allclose(
            moderated_variances(true, many), true, rtol=0.01
        )
    before, after = np.mean(errors, axis=0)
    assert after < 0.5 * before


def test_variances_that_differ_by_chance_alone_become_one(rng):
    counts = np.arange(3, 103)
    found = 3.0 * rng.chisquare(counts - 1) / counts
    actual = moderated_variances(found, counts)
    assert np.ptp(actual) <= 0.2 * np.ptp(found)
    same = moderated_variances(np.full(4, 2.0), np.full(4, 5))
    # The mean logarithm of a sample's variance lies below that of the true one.
    np.testing.assert_allclose(same, 2.5 * np.exp(np.log(2) - special.psi(2)))
    np.testing.assert_allclose(
        moderated_variances(np.array([3.0]), np.array([4])), 4.0
    )
