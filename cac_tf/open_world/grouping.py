# SPDX-License-Identifier: Apache-2.0
"""What rejected inputs are: groups of those that are alike."""

from __future__ import annotations

import collections
import typing
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.arguments import whole_number
from cac_tf.labels import UNKNOWN

cluster = lazy.module("sklearn.cluster")
decomposition = lazy.module("sklearn.decomposition")

# All chosen by leaving known classes out: see benchmarks/grouping.py.
_DIMENSIONS = 30
_NEIGHBORS = 2
# The smallest group: so many inputs, or one of so many.
_FEWEST, _ONE_OF = 5, 400
# Of more, a sample is clustered, and the others join its groups.
MOST_CLUSTERED = 20_000
_ROUNDS = 20
# Of the density where a group is densest.
_AS_DENSE = 0.5
# Mean cosine between two inputs of a group. (All but one of those found by
# leaving known classes out had more, and that one was of many classes.)
_ALIKE = 0.25
# Two dense places are one group if the mean cosine between an input of one and
# of the other is so large, and their mean squared distance not so many times
# that within them. (Kinds of inputs differ in their density: HDBSCAN alone
# takes many apart.)
_ONE_GROUP, _APART = 0.45, 4.0


class Group(typing.NamedTuple):
    """Rejected inputs that are alike."""

    # Positions of its inputs, the most typical first, the most doubtful last.
    members: np.ndarray
    # Mean strength of its inputs.
    tightness: float
    # Known class that most of them were nearest to, and their share.
    nearest_class: typing.Any = None
    nearest_share: float | None = None

    @property
    def size(self) -> int:
        """How many inputs it has."""
        return len(self.members)


class Grouping(typing.NamedTuple):
    """Which group each of n inputs is in."""

    group: np.ndarray  # (n,) int32, 0 for the largest one; -1: in none
    strength: np.ndarray  # (n,) float32 in [-1, 1]; 0 where it is in none
    groups: tuple[Group, ...]


def group(
    features: ArrayLike,
    *,
    predicted_class: Sequence[typing.Any] | None = None,
    center: ArrayLike | None = None,
    min_size: int | None = None,
) -> Grouping:
    r"""Groups rejected inputs into candidates for classes.

    It finds the number of groups itself. With features f and a center c,

    \\(u = (f - c) / \lVert f - c \rVert\\) is reduced to its 30 largest
    principal components and to unit length again, and HDBSCAN finds where these
    are dense. Dense regions are merged while the mean cosine between their
    inputs is 0.45 or more. Then, as in spherical k-means, each input joins the
    group whose mean direction m is nearest, if its *strength*, the cosine
    \\(u^T m\\), is not below that of every input in the dense regions. All
    others are in no group. The order of the inputs does not matter.

    With more than 20,000 inputs, a sample of that size forms the groups, which
    the others join. 10,000 inputs take about ten seconds on one core.

    Paper: Campello, Moulavi, Sander, *Density-Based Clustering Based on
    Hierarchical Density Estimates*, 2013.

    Args:
        features: (n, D) finite features of rejected inputs,
            `model.predict(x)["features"]`, or a pretrained embedding.
        predicted_class: (n,) names or indices of the class predicted for each
            input before rejection. If given, each group has its nearest known
            class.
        center: (D,) mean features of known inputs, from which directions are
            measured. None: the mean of `features`; then inputs that are all of
            one kind cannot be recognized as a group.
        min_size: minimum size of a group, at least 2. None: 5, or 1/400 of the
            inputs if that is more.

    Returns:
        `Grouping`, the largest group first.

    Raises:
        ValueError: features of the wrong shape or not finite, or a
            predicted_class or center of the wrong length.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> kinds = rng.standard_normal((3, 64))
    >>> features = np.repeat(kinds, [30, 20, 10], axis=0)
    >>> features += 0.2 * rng.standard_normal(features.shape)
    >>> found = group(features)
    >>> [one.size for one in found.groups], found.group[[0, 30, 59]].tolist()
    ([30, 20, 10], [0, 1, 2])
    """
    rows = _checked(features)
    count, width = rows.shape
    classes = None if predicted_class is None else list(predicted_class)
    if classes is not None and len(classes) != count:
        raise ValueError(
            f"predicted_class must contain one class for each of {count} "
            f"inputs; got {len(classes)}."
        )
    smallest = max(_FEWEST, count // _ONE_OF)
    if min_size is not None:
        smallest = whole_number("min_size", min_size, 2)
    origin = None
    if center is not None:
        origin = np.asarray(center, "float32")
        if origin.shape != (width,) or not np.isfinite(origin).all():
            raise ValueError(
                f"center must be {width} finite numbers, one per feature; got "
                f"an array of shape {origin.shape}."
            )
    labels = np.full(count, UNKNOWN, "int32")
    strength = np.zeros(count, "float32")
    if count >= smallest:
        # By their content, so that the order does not matter.
        order = np.lexsort(rows.T)
        labels[order], strength[order] = _grouped(rows[order], origin, smallest)
    return _described(labels, strength, classes)


def _checked(features):
    features = np.asarray(features)
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise ValueError(
            "features must be numbers of shape (n, D), one row for each input; "
            f"got {features.dtype} of shape {features.shape}."
        )
    features = features.astype("float32", copy=False)
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise ValueError(
            f"features must be finite; {len(bad)} of {len(features)} rows "
            f"contain NaN or infinity, first at position {bad[0]}."
        )
    return features


def _grouped(features, center, smallest):
    """Groups of sorted features, and strengths."""
    has_center = center is not None
    offsets = features - (center if has_center else features.mean(axis=0))
    directions = _unit(offsets)
    chosen = np.arange(len(features))
    if len(features) > MOST_CLUSTERED:
        rng = np.random.default_rng(0)
        chosen = np.sort(rng.permutation(len(features))[:MOST_CLUSTERED])
    points = _reduced(directions, chosen)
    # As many of the sample are so many of all.
    of_sample = max(2, round(smallest * len(chosen) / len(features)))
    dense = _dense(points[chosen], of_sample)
    if (dense != UNKNOWN).any():
        dense = _merged(points[chosen], dense)
        means, reach = _means(points[chosen], dense, of_sample)
        return _joined(points, means, reach, smallest)
    if has_center and _are_alike(directions):
        mean = _unit(directions.sum(axis=0, keepdims=True))[0]
        return np.zeros(len(features)), directions @ mean
    return np.full(len(features), UNKNOWN), np.zeros(len(features))


def _reduced(directions, chosen):
    """Principal components, of length 1, by those of chosen rows."""
    components = min(_DIMENSIONS, directions.shape[1], len(chosen))
    if not np.ptp(directions, axis=0).any():
        return np.zeros((len(directions), components), "float32")
    found = decomposition.PCA(components, svd_solver="covariance_eigh")
    found.fit(directions[chosen])
    return _unit(found.transform(directions))


def _unit(vectors):
    """Rows of length 1; those of 0 stay 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _dense(points, smallest):
    """(n,) numbers of the dense places that points are in."""
    found = cluster.HDBSCAN(
        min_cluster_size=smallest,
        min_samples=min(_NEIGHBORS, smallest, len(points)),
        copy=True,
    )
    labels = found.fit_predict(np.float64(points))
    # What is scattered around a group, or between groups as one more.
    labels[found.probabilities_ < _AS_DENSE] = UNKNOWN
    for k in range(labels.max(initial=UNKNOWN) + 1):
        if not _are_alike(points[labels == k]):
            labels[labels == k] = UNKNOWN
    return labels


def _are_alike(points):
    count = len(points)
    square = np.square(points.sum(axis=0)).sum()
    return square - count >= _ALIKE * count * (count - 1)


def _merged(points, labels):
    """Labels of dense places, where the nearest become one, step by step."""
    kept, places = np.unique(labels[labels != UNKNOWN], return_inverse=True)
    dense = points[labels != UNKNOWN].astype("float64")
    sizes = np.bincount(places).astype("float64")
    sums = np.zeros((len(kept), points.shape[1]))
    np.add.at(sums, places, dense)
    number = np.arange(len(kept))
    while len(sums) > 1:
        products = sums @ sums.T
        between = products / np.outer(sizes, sizes)
        pairs = np.maximum(sizes * (sizes - 1), 1)
        within = (np.diag(products) - sizes) / pairs
        spread = 1 - np.add.outer(within, within) / 2
        are_one = (between >= _ONE_GROUP) & (1 - between <= _APART * spread)
        np.fill_diagonal(are_one, False)
        if not are_one.any():
            break
        a, b = np.unravel_index(
            np.where(are_one, between, -2.0).argmax(), between.shape
        )
        number = np.where(number == b, a, number)
        number -= number > b
        sums[a] += sums[b]
        sizes[a] += sizes[b]
        sums, sizes = np.delete(sums, b, axis=0), np.delete(sizes, b)
    merged = np.full_like(labels, UNKNOWN)
    merged[labels != UNKNOWN] = number[places]
    return merged


def _means(points, labels, smallest):
    """Mean directions of groups, and how far these reach.

    Args:
        points: (n, d) of length 1.
        labels: (n,) of HDBSCAN.
        smallest: fewest inputs of a group.

    Returns:
        (K, d) mean directions, and the least cosine to the nearest of them of
        the inputs where it is dense.
    """
    is_dense = labels != UNKNOWN
    while True:
        means = _directions(points, labels)
        for _ in range(_ROUNDS):
            nearest = (points @ means.T).argmax(axis=1)
            if (nearest == labels).all():
                break
            labels = nearest
            means = _directions(points, labels)
        sizes = np.bincount(labels)
        sizes = np.where(sizes > 0, sizes, len(points))
        if sizes.min() >= smallest:
            break
        labels = np.where(labels == sizes.argmin(), UNKNOWN, labels)
    return means, (points @ means.T)[is_dense].max(axis=1).min()


def _directions(points, labels):
    """(K, d) mean directions of the labels that there are."""
    kept = np.unique(labels[labels != UNKNOWN])
    return _unit(np.stack([points[labels == k].sum(axis=0) for k in kept]))


def _joined(points, means, reach, smallest):
    """The nearest group of each input within its reach, and the cosine.

    Groups that become too small by this are none.
    """
    cosines = points @ means.T
    nearest = cosines.argmax(axis=1)
    strength = cosines[np.arange(len(points)), nearest]
    # (The product of other rows may be rounded in another way.)
    is_out = strength < reach - 1e-5
    sizes = np.bincount(nearest[~is_out], minlength=len(means))
    is_out |= sizes[nearest] < smallest
    return (
        np.where(is_out, UNKNOWN, nearest),
        np.where(is_out, 0.0, strength),
    )


def _described(labels, strength, classes):
    """`Grouping`, the largest group first."""
    numbers, sizes = np.unique(labels[labels != UNKNOWN], return_counts=True)
    groups = []
    renamed = np.full_like(labels, UNKNOWN)
    # Of equal ones, the tighter first: the order of inputs must not matter.
    tightness = [float(strength[labels == k].mean()) for k in numbers]
    for place, i in enumerate(np.lexsort((np.negative(tightness), -sizes))):
        members = np.flatnonzero(labels == numbers[i])
        renamed[members] = place
        members = members[np.argsort(-strength[members], kind="stable")]
        nearest = (None, None)
        if classes is not None:
            counts = collections.Counter(classes[row] for row in members)
            name = min(counts, key=lambda one: (-counts[one], str(one)))
            nearest = (name, counts[name] / len(members))
        groups.append(Group(members, tightness[i], *nearest))
    return Grouping(renamed, strength, tuple(groups))
