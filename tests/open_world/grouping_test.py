# SPDX-License-Identifier: Apache-2.0
"""Groups of rejected inputs: a constructed mixture is found exactly."""

import numpy as np
import pytest

from cac_tf import open_world

SIZES, WIDTH, SCATTERED = (40, 25, 12, 6), 64, 20


@pytest.fixture(scope="module")
def mixture():
    """Four kinds of inputs and some of no kind, and their kinds."""
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((len(SIZES), WIDTH))
    kind = np.repeat(np.arange(len(SIZES)), SIZES)
    alike = kinds[kind] + 0.2 * rng.standard_normal((sum(SIZES), WIDTH))
    scattered = rng.standard_normal((SCATTERED, WIDTH))
    features = np.float32(np.concatenate([alike, scattered]))
    return features, np.concatenate([kind, np.full(SCATTERED, -1)])


def test_the_groups_of_a_mixture_are_found(mixture):
    features, kind = mixture
    names = np.array(["cat", "dog"])[np.arange(len(kind)) % 2]
    found = open_world.group(features, predicted_class=names)
    # Groups are numbered by size. What is of no kind is in none.
    np.testing.assert_array_equal(found.group, kind)
    assert [one.size for one in found.groups] == list(SIZES)
    assert (found.strength[kind == -1] == 0).all()
    for k, one in enumerate(found.groups):
        assert sorted(one.members) == np.flatnonzero(kind == k).tolist()
        strength = found.strength[one.members]
        assert (np.diff(strength) <= 0).all()
        assert one.tightness == pytest.approx(strength.mean())
        shares = {n: np.mean(names[kind == k] == n) for n in ("cat", "dog")}
        assert one.nearest_share == max(shares.values())
        assert shares[one.nearest_class] == one.nearest_share


def test_the_order_of_the_inputs_does_not_matter(mixture):
    features, _ = mixture
    rng = np.random.default_rng(1)
    # Also where groups run into each other.
    features = features + 0.5 * rng.standard_normal(features.shape)
    found = open_world.group(features)
    assert len(found.groups) > 1
    for _ in range(3):
        order = rng.permutation(len(features))
        again = open_world.group(features[order])
        np.testing.assert_array_equal(again.group, found.group[order])
        np.testing.assert_array_equal(again.strength, found.strength[order])


def test_lengths_and_the_origin_of_features_do_not_matter(mixture):
    features, kind = mixture
    found = open_world.group(100 + 3 * features)
    np.testing.assert_array_equal(found.group, kind)


def test_a_sample_makes_the_groups_of_many(mixture, monkeypatch):
    features, kind = mixture
    monkeypatch.setattr("cac_tf.open_world.grouping.MOST_CLUSTERED", 90)
    found = open_world.group(features, min_size=4)
    np.testing.assert_array_equal(found.group, kind)
    # The smallest group is of all inputs, not of the sample.
    two = np.concatenate([features[kind == k] for k in (0, 0, 0, 1, 1, 1)])
    sizes = [3 * np.sum(kind == k) for k in (0, 1)]
    found = open_world.group(two, min_size=int(min(sizes)))
    assert [one.size for one in found.groups] == sizes


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_stay_unknown(mixture, count):
    features, _ = mixture
    found = open_world.group(features[:count])
    assert found.group.tolist() == [-1] * count
    assert found.strength.tolist() == [0] * count
    assert found.groups == ()


def test_one_kind_is_a_group_if_directions_start_at_the_known(mixture):
    features, kind = mixture
    alike = features[kind == 0]
    known = np.zeros(WIDTH)
    found = open_world.group(alike, center=known)
    assert [one.size for one in found.groups] == [len(alike)]
    # What is alike in nothing is none.
    assert open_world.group(features[kind == -1], center=known).groups == ()


def test_equal_inputs_are_a_group():
    features = np.repeat(np.eye(3, 5), [20, 10, 5], axis=0)
    found = open_world.group(features)
    assert [one.size for one in found.groups] == [20, 10, 5]
    assert found.groups[0].tightness == pytest.approx(1, abs=1e-6)
    # All equal: without a center they have no direction.
    assert open_world.group(np.ones((30, 4))).groups == ()


def test_the_smallest_group_is_as_asked(mixture):
    features, kind = mixture
    found = open_world.group(features, min_size=10)
    assert min(one.size for one in found.groups) >= 10
    large = kind < 3
    np.testing.assert_array_equal(found.group[large & (kind >= 0)], kind[:77])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"features": np.ones(3)}, r"shape \(n, D\)"),
        ({"features": [["a"]]}, "must be numbers"),
        ({"predicted_class": ["cat"]}, "each of 6 inputs; got 1"),
        ({"center": [0.0]}, "center must be 3 finite numbers"),
        ({"min_size": 1}, "min_size must be a whole number of at least 2"),
    ],
)
def test_bad_arguments_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        open_world.group(**{"features": np.ones((6, 3)), **options})


def test_features_that_are_not_finite_are_refused():
    features = np.ones((6, 3))
    features[4, 0] = np.nan
    with pytest.raises(ValueError, match="1 of 6 rows .* at position 4"):
        open_world.group(features)
