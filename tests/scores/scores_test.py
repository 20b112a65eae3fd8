# SPDX-License-Identifier: Apache-2.0
"""Every score against float64 formulas, written from the equations."""

import functools
import importlib
import json
import pathlib
import sys
import warnings

import numpy as np
import pytest
from scipy import spatial
from scipy import special
from scipy import stats
from sklearn import covariance

from cac_tf import registry
from cac_tf import scores
from cac_tf.scores import registry as score_registry
from cac_tf.scores.class_z_score import ClassZScore
from cac_tf.scores.energy import Energy
from cac_tf.scores.entropy import Entropy
from cac_tf.scores.gamma import Gamma
from cac_tf.scores.latent_openmax import LatentOpenMax
from cac_tf.scores.max_logit import MaxLogit
from cac_tf.scores.max_softmax import MaxSoftmax
from cac_tf.scores.min_distance import MinDistance
from cac_tf.scores.relative_mahalanobis import RelativeMahalanobis
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import LastLayer
from cac_tf.scores.she import SHE
from cac_tf.scores.statistics import moderated_variances
from cac_tf.scores.two_heads import TwoHeads
from tests import execution
from tests import oracle

NUM_CLASSES, WIDTH = 4, 12


def features_and_logits(rng, rows):
    """Features of known classes, their logits by one dense layer, labels."""
    labels = np.arange(rows) % NUM_CLASSES
    places = 1.2 * np.eye(NUM_CLASSES, WIDTH)
    spread = np.linspace(0.3, 1.5, WIDTH)
    features = places[labels] + spread * rng.standard_normal((rows, WIDTH))
    layer = LastLayer(
        np.float32(2 * np.eye(WIDTH, NUM_CLASSES) + 0.1),
        np.float32([0.5, -0.2, 0.1, 0.3]),
    )
    features = np.float32(features)
    return features, features @ layer.kernel + layer.bias, labels, layer


@pytest.fixture
def known(rng):
    return features_and_logits(rng, 400)


@pytest.fixture
def unseen(rng):
    """Features of nothing in particular, with their logits."""
    _, _, _, layer = features_and_logits(rng, 4)
    features = np.float32(3.0 * rng.standard_normal((60, WIDTH)))
    return features, features @ layer.kernel + layer.bias


def fitted(rule, labels, **outputs):
    """The score as a function of its tensors alone."""
    return functools.partial(rule, **rule.fit(labels, **outputs))


@pytest.fixture
def logits(rng):
    values = 3 * rng.standard_normal((50, 4))
    values[0] = [40.0, 0.0, 0.0, 0.0]
    return np.float32(values)


def test_names():
    for name in scores.names():
        assert scores.get(name).name == name
    rule = MaxLogit()
    assert scores.get(rule) is rule
    for wrong in ("surprise", 3):
        with pytest.raises(
            ValueError, match="Unknown score .* Available: class_z_score, "
        ):
            scores.get(wrong)
    with pytest.raises(ValueError, match="did you mean 'energy'"):
        scores.get("enery")


def test_max_logit(logits, mode):
    actual = execution.compiled(MaxLogit(), mode)(logits)
    np.testing.assert_array_equal(actual, -logits.max(axis=1))


@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
def test_energy(logits, temperature, mode):
    actual = execution.compiled(Energy(temperature), mode)(logits)
    scaled = np.float64(logits) / temperature
    expected = -temperature * special.logsumexp(scaled, axis=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_entropy(logits, mode):
    actual = execution.compiled(Entropy(), mode)(logits)
    p = special.softmax(np.float64(logits), axis=1)
    np.testing.assert_allclose(
        actual, stats.entropy(p, axis=1), rtol=1e-5, atol=1e-30
    )


@pytest.mark.parametrize(
    ("exponent", "classes"), [(0.1, 100), (0.5, 2), (0.1, 1)]
)
def test_gen(logits, exponent, classes, mode):
    rule = scores.GEN(exponent, classes)
    actual = execution.compiled(rule, mode)(logits)
    # Sums of the other classes, as 1 - p rounds to 0.
    z = np.sort(np.float64(logits), axis=1)[:, ::-1]
    p = special.softmax(z, axis=1)
    others = np.stack(
        [np.delete(p, j, axis=1).sum(axis=1) for j in range(4)], axis=1
    )
    expected = ((p * others) ** exponent)[:, :classes].sum(axis=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_she(known, unseen, mode):
    features, logits, labels, _ = known
    rule = fitted(SHE(), labels, logits=logits, features=features)
    right = logits.argmax(axis=1) == labels
    patterns = [
        np.float64(features)[right & (labels == k)].mean(axis=0)
        for k in range(4)
    ]
    expected = [
        -np.float64(x) @ patterns[z.argmax()]
        for x, z in zip(*unseen, strict=True)
    ]
    actual = execution.compiled(rule, mode)(unseen[1], unseen[0])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_max_softmax_keeps_confident_inputs_apart(logits, mode):
    actual = execution.compiled(MaxSoftmax(), mode)(logits)
    # The probabilities of the other classes: 1 - p would round, even here.
    p = np.sort(special.softmax(np.float64(logits), axis=1), axis=1)
    np.testing.assert_allclose(actual, p[:, :-1].sum(axis=1), rtol=1e-5)
    # 1 - p itself is 0 in float32.
    assert 0 < actual[0] < 1e-16


def test_gamma_and_min_distance(rng):
    values = np.float32(rng.uniform(0, 9, (7, 3)))
    for rule in (Gamma(), MinDistance()):
        np.testing.assert_array_equal(
            np.asarray(rule(values)), values.min(axis=1)
        )
        outputs = {"gamma": values, "distances": values, "logits": values}
        np.testing.assert_array_equal(
            np.asarray(rule.predicted_class(outputs)), values.argmin(axis=1)
        )


def test_class_z_score(known, unseen, mode):
    _, logits, labels, _ = known
    rule = fitted(ClassZScore(), labels, logits=logits)
    z = np.float64(logits)
    right = z.argmax(axis=1) == labels
    assert 0 < right.sum() < len(right)
    expected, winners = [], []
    for row in np.float64(unseen[1]):
        k = row.argmax()
        own = z[right & (labels == k), k]
        expected.append(own.mean() - row[k])
        winners.append(k)
    own = [z[right & (labels == k), k] for k in range(NUM_CLASSES)]
    variances = moderated_variances(
        *np.transpose([(one.var(), len(one)) for one in own])
    )
    actual = execution.compiled(rule, mode)(unseen[1])
    expected = np.array(expected) / np.sqrt(variances[winners])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_layer", [True, False])
@pytest.mark.parametrize("dimensions", [None, 3, WIDTH - 1])
def test_vim(known, unseen, mode, dimensions, has_layer):
    features, logits, labels, layer = known
    rule = fitted(
        scores.ViM(dimensions),
        labels,
        last_layer=layer if has_layer else None,
        logits=logits,
        features=features,
    )
    x, z = np.float64(features), np.float64(logits)
    if has_layer:
        origin = np.linalg.lstsq(
            np.float64(layer.kernel).T, -np.float64(layer.bias), rcond=None
        )[0]
    else:
        origin = x.mean(axis=0)
    # Right singular vectors in the order of falling singular values.
    directions = np.linalg.svd(x - origin)[2]
    residual_space = directions[dimensions or WIDTH // 2 :].T
    residual = np.linalg.norm((x - origin) @ residual_space, axis=1)
    scale = z.max(axis=1).mean() / residual.mean()
    u, v = map(np.float64, unseen)
    expected = scale * np.linalg.norm((u - origin) @ residual_space, axis=1)
    expected -= special.logsumexp(v, axis=1)
    actual = execution.compiled(rule, mode)(unseen[1], unseen[0])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def within_classes(offsets):
    """Scikit-learn's estimate; the means of four classes cost four rows."""
    _, shrinkage = covariance.ledoit_wolf(offsets, assume_centered=True)
    freedom = len(offsets) - NUM_CLASSES
    shrinkage = min(shrinkage * len(offsets) / freedom, 1.0)
    unbiased = offsets.T @ offsets / freedom
    return covariance.shrunk_covariance(unbiased, shrinkage), shrinkage


@pytest.mark.parametrize("rows", [400, 9])
def test_mahalanobis(rng, unseen, mode, rows):
    """As scikit-learn's covariance has it, inverted and multiplied out."""
    features, _, labels, _ = features_and_logits(rng, rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rule = fitted(scores.Mahalanobis(), labels, features=features)
    x = np.float64(features)
    means = np.stack([x[labels == k].mean(axis=0) for k in range(4)])
    within, shrinkage = within_classes(x - means[labels])
    if rows < WIDTH:
        (said,) = (str(w.message) for w in caught)
        assert f"only {rows} examples" in said
        assert f"shrunk by {shrinkage:.3f}" in said
    else:
        assert not caught
    offsets = np.float64(unseen[0])[:, None] - means
    expected = np.einsum(
        "bki,ij,bkj->bk", offsets, np.linalg.inv(within), offsets
    ).min(axis=1)
    actual = execution.compiled(rule, mode)(unseen[0])
    np.testing.assert_allclose(actual, expected, rtol=2e-5)


@pytest.mark.parametrize("rows", [400, 9])
@pytest.mark.filterwarnings("ignore:The covariance of")
def test_relative_mahalanobis(rng, unseen, mode, rows):
    """Less the distance to one normal distribution of all features.

    Its covariance is that about the class means, shrunk, and that of the means.
    """
    features, _, labels, _ = features_and_logits(rng, rows)
    rule, plain = (
        fitted(kind(), labels, features=features)
        for kind in (RelativeMahalanobis, scores.Mahalanobis)
    )
    x = np.float64(features)
    means = np.stack([x[labels == k].mean(axis=0) for k in range(4)])
    within, _ = within_classes(x - means[labels])
    between = np.cov(means[labels], rowvar=False, bias=True)
    precision = np.linalg.inv(within + between)
    offsets = np.float64(unseen[0]) - x.mean(axis=0)
    background = np.einsum("bi,ij,bj->b", offsets, precision, offsets)
    expected = np.float64(plain(unseen[0])) - background
    actual = execution.compiled(rule, mode)(unseen[0])
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-3)


def test_mahalanobis_without_shrinkage(rng, unseen, mode):
    """Both distances as their papers have them, by the inverses themselves."""
    features, _, labels, _ = features_and_logits(rng, 400)
    x, u = np.float64(features), np.float64(unseen[0])
    means = np.stack([x[labels == k].mean(axis=0) for k in range(4)])
    within = np.linalg.inv(np.cov(x - means[labels], rowvar=False, bias=True))
    overall = np.linalg.inv(np.cov(x, rowvar=False, bias=True))
    offsets, from_center = u[:, None] - means, u - x.mean(axis=0)
    nearest = np.einsum("bki,ij,bkj->bk", offsets, within, offsets).min(axis=1)
    background = np.einsum("bi,ij,bj->b", from_center, overall, from_center)
    for rule, expected in (
        (scores.Mahalanobis(shrinkage=None), nearest),
        (RelativeMahalanobis(shrinkage=None), nearest - background),
    ):
        found = fitted(rule, labels, features=features)
        actual = execution.compiled(found, mode)(unseen[0])
        spread = np.ptp(expected)
        np.testing.assert_allclose(
            actual / spread, expected / spread, atol=1e-5
        )
        again = type(rule).from_config(rule.get_config())
        assert again.shrinkage is None
        # More features than examples.
        with pytest.raises(ValueError, match="is singular.*more examples"):
            again.fit(labels[:WIDTH], features=features[:WIDTH])
    with pytest.raises(ValueError, match='"ledoit_wolf" or None; got 0.5'):
        scores.Mahalanobis(shrinkage=0.5)


def test_relative_mahalanobis_does_not_see_what_does_not_separate(rng):
    """Few examples of many features: only three of them tell the classes."""
    width, labels = 200, np.arange(300) % 3
    features = rng.standard_normal((300, width)) * np.geomspace(3, 0.1, width)
    features[:, :3] += 20.0 * np.eye(3)[labels]
    rule = RelativeMahalanobis()
    statistics = rule.fit(labels, features=np.float32(features))
    values = functools.partial(rule.of_arrays, **statistics)
    x = np.float32(features[:30])
    moved = x.copy()
    moved[:, 3:] += np.float32(rng.standard_normal((30, width - 3)))
    between = values(np.float32(np.tile(features.mean(0), (2, 1))))
    change = np.abs(values(moved) - values(x)).max()
    distance = between.min() - values(x).max()
    assert change < 0.2 * distance


def neighbour_oracle(bank, weights, inputs, k):
    """The k largest weighted cosine similarities, one pair at a time."""
    found = []
    for u in np.float64(inputs):
        similar = sorted(
            (
                w * (u @ b / (np.linalg.norm(u) * np.linalg.norm(b)))
                for w, b in zip(weights, bank, strict=True)
            ),
            reverse=True,
        )
        found.append(similar[:k])
    return np.array(found)


@pytest.mark.parametrize("k", [1, 7])
def test_scores_of_neighbours(known, unseen, mode, k):
    features, logits, labels, _ = known
    bank = np.float64(features)
    ones = np.ones(len(bank))
    rule = scores.KNN(k)
    statistics = rule.fit(labels, features=features)
    expected = 1.0 - neighbour_oracle(bank, ones, unseen[0], k)[:, -1]
    for actual in (
        execution.compiled(functools.partial(rule, **statistics), mode)(
            unseen[0]
        ),
        rule.of_arrays(unseen[0], **statistics),
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    rule = scores.NNGuide(k)
    statistics = rule.fit(labels, logits=logits, features=features)
    energies = special.logsumexp(np.float64(logits), axis=1)
    guidance = neighbour_oracle(bank, energies, unseen[0], k).mean(axis=1)
    expected = -guidance * special.logsumexp(np.float64(unseen[1]), axis=1)
    for actual in (
        execution.compiled(functools.partial(rule, **statistics), mode)(
            unseen[1], unseen[0]
        ),
        rule.of_arrays(unseen[1], unseen[0], **statistics),
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_bank_is_chosen_evenly_by_class(rng):
    """Of 300, 30 and 3 examples, ten each, or what there is."""
    labels = np.repeat([0, 1, 2], [300, 30, 3])
    features = np.float32(rng.standard_normal((333, 2)))
    features += 100.0 * np.float32([[1, 0], [0, 1], [-1, 0]])[labels]
    rule = scores.KNN(1, bank_size=30)
    bank = rule.fit(labels, features=features)["bank"]
    nearest = np.array([[1, 0], [0, 1], [-1, 0]]) @ bank.T
    assert np.bincount(nearest.argmax(axis=0)).tolist() == [10, 10, 3]
    order = rng.permutation(333)
    again = rule.fit(labels[order], features=features[order])
    np.testing.assert_array_equal(bank, again["bank"])


def test_features_of_zeros_are_far_from_everything(known):
    features, _, labels, _ = known
    rule = scores.KNN(1)
    found = rule.fit(labels, features=features)
    zeros = np.zeros((1, WIDTH), "float32")
    assert np.asarray(rule(zeros, **found)) == [1.0]
    assert rule.of_arrays(zeros, **found) == [1.0]
    # And in the bank they are no one's neighbour.
    with_zeros = np.concatenate([zeros, features[:9]])
    found = rule.fit(np.arange(10) % 2, features=with_zeros)
    np.testing.assert_allclose(
        np.asarray(rule(-features, **found)),
        rule.of_arrays(-features, **found),
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("tail_size", "rank", "shift", "form"),
    [
        (20, 10, 1.0, "probability"),
        (10, 2, 1.0, "probability"),
        (5, 1, 1.0, "log_sum_exp"),
        (20, None, 1.0, "log_sum_exp"),
        (20, None, 1.0, "probability"),
        # That of the copy of libMR in the authors' release.
        (20, 10, 1e4, "probability"),
    ],
)
def test_openmax(tail_size, rank, shift, form, mode, rng):
    labels = np.arange(400) % 4
    logits = 8 * np.eye(4)[labels] + 1.5 * rng.standard_normal((400, 4))
    logits = np.float32(logits)
    inputs = np.float32(4 * rng.standard_normal((60, 4)))
    rule = scores.OpenMax(tail_size, rank, shift, form)
    rule = fitted(rule, labels, logits=logits)
    actual = execution.compiled(rule, mode)(inputs)
    expected = oracle.openmax(
        logits, labels, inputs, tail_size, rank, shift, form
    )
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=1e-6)


def test_openmax_as_in_table_1(rng):
    labels = np.arange(300) % 3
    logits = np.float32(6 * np.eye(3)[labels] + rng.standard_normal((300, 3)))
    inputs = np.float32(4 * rng.standard_normal((40, 3)))
    rule = fitted(scores.get("openmax_log_sum_exp"), labels, logits=logits)
    expected = oracle.openmax(
        logits, labels, inputs, 20, None, form="log_sum_exp"
    )
    np.testing.assert_allclose(
        np.asarray(rule(inputs)), expected, rtol=2e-4, atol=1e-6
    )


def eucos(one, other):
    return spatial.distance.euclidean(one, other) / 200 + (
        spatial.distance.cosine(one, other)
    )


@pytest.mark.parametrize(
    ("options", "distance"),
    [
        ({}, eucos),
        ({"tail_size": 10, "rank": 2}, eucos),
        ({"rank": None, "form": "log_sum_exp"}, eucos),
        ({"distance": "euclidean"}, spatial.distance.euclidean),
    ],
)
def test_latent_openmax(options, distance, mode, rng):
    labels = np.arange(400) % 4
    # Of few dimensions, or all of an input would be far from all means.
    logits = 4 * np.eye(4)[labels] + 0.7 * rng.standard_normal((400, 4))
    latents = rng.uniform(size=(400, 3)) * [1, 2, 8]
    logits, latents = np.float32(logits), np.float32(latents)
    inputs = np.float32(4 * rng.standard_normal((60, 4)))
    unseen = np.float32(rng.uniform(size=(60, 3)) * [1, 2, 12])
    # Known ones too, and one on a class mean's direction, twice as far.
    inputs[:20], unseen[:20] = logits[:20], latents[:20]
    inputs[20], unseen[20] = 2 * logits[0], 2 * latents[0]
    rule = fitted(
        LatentOpenMax(**options), labels, logits=logits, latents=latents
    )
    actual = execution.compiled(rule, mode)(inputs, unseen)
    expected = oracle.openmax(
        logits,
        labels,
        inputs,
        latents=(latents, unseen),
        **{"tail_size": 20, "rank": 10, **options, "distance": distance},
    )
    assert len(np.unique(np.round(expected, 3))) > 10
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
    # Latents alone make a difference.
    other = np.asarray(rule(inputs, 3 * unseen))
    assert np.abs(other - actual).max() > 0.01


def test_latent_openmax_of_nothing(rng):
    """Neither a zero vector nor what is refused gives NaN."""
    labels = np.arange(90) % 3
    logits = 5 * np.eye(3)[labels] + 0.1 * rng.standard_normal((90, 3))
    rule = LatentOpenMax()
    with pytest.raises(ValueError, match="missing: latents"):
        rule.fit(labels, logits=logits)
    found = rule.fit(labels, logits=logits, latents=rng.uniform(size=(90, 2)))
    zeros = np.zeros((1, 3), "float32"), np.zeros((1, 2), "float32")
    assert np.isfinite(rule.of_arrays(*zeros, **found)).all()
    with pytest.raises(ValueError, match='"eucos" or "euclidean"; got .l1.'):
        LatentOpenMax(distance="l1")
    assert "latent_openmax" not in score_registry.common_names()


def test_two_heads(mode, rng):
    """The sum of both heads' standardized largest logits, negated."""
    first = 9 * np.eye(4)[np.arange(200) % 4] + rng.standard_normal((200, 4))
    second = 0.3 * first + rng.standard_normal((200, 4))
    unseen = 3 * rng.standard_normal((30, 4)), rng.standard_normal((30, 4))
    rule = fitted(
        TwoHeads(),
        np.arange(200) % 4,
        logits=np.float32(first),
        second_logits=np.float32(second),
    )
    expected = 0.0
    for known, other in zip((first, second), unseen, strict=True):
        largest = known.max(axis=1)
        expected = expected - (
            (other.max(axis=1) - largest.mean()) / largest.std()
        )
    actual = execution.compiled(rule, mode)(*map(np.float32, unseen))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert "two_heads" not in score_registry.common_names()


def test_two_heads_that_never_differ():
    logits = np.float32([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="two examples whose largest logits"):
        TwoHeads().fit([0, 1], logits=logits, second_logits=logits * [[1], [2]])


@pytest.mark.parametrize("shift", [1, 10_000])
def test_openmax_has_the_weights_of_libmr(shift):
    """Those of the real library, with either of its shifts in use."""
    path = pathlib.Path(__file__).with_name("libmr_reference.json")
    reference = json.loads(path.read_text())
    inputs = np.float64(reference["inputs"])
    weights = np.float64(reference["weights"][str(shift)])
    rule = scores.OpenMax(
        reference["tail_size"], rank=None, shift=shift, form="log_sum_exp"
    )
    rule = fitted(rule, reference["labels"], logits=reference["logits"])
    expected = -special.logsumexp(inputs * (1.0 - weights), axis=1)
    np.testing.assert_allclose(
        rule(np.float32(inputs)), expected, rtol=1e-4, atol=1e-4
    )


def test_openmax_beyond_all_tails(rng):
    """The class is that of the largest logit; "unknown" is certain."""
    labels = np.arange(300) % 3
    logits = 10 * np.eye(3)[labels] + rng.normal(0, 1, (300, 3))
    rule = scores.OpenMax(rank=None)
    found = rule.fit(labels, logits=logits)
    far = np.float32([[500, 900, 100], [300, 100, 200], [1e4, 1e4, 2e4]])
    classes = rule.predicted_class(
        {"logits": far, "distances": np.ones((3, 3))}, **found
    )
    np.testing.assert_array_equal(classes, [1, 0, 2])
    np.testing.assert_allclose(rule(far, **found), 1.0)


def test_openmax_bad_input(rng):
    for options in (
        {"tail_size": 2},
        {"rank": 0},
        {"shift": 0.0},
        {"shift": np.inf},
        {"form": "sum"},
    ):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name} must be"):
            scores.OpenMax(**options)
    labels = np.array([0] * 10 + [1] * 2)
    logits = 5 * np.eye(2)[labels] + 0.1 * rng.standard_normal((12, 2))
    with pytest.raises(ValueError, match="class '1' has 2"):
        scores.OpenMax().fit(labels, logits=logits)


@pytest.mark.parametrize(
    ("rule", "outputs", "message"),
    [
        (
            ClassZScore,
            {"logits": np.eye(2)[[0, 0, 1]] * [9, 5]},
            "class '0' has 2",
        ),
        (
            ClassZScore,
            {"logits": [[1, 0], [2, 0], [0, 1]]},
            "class '1' has 1",
        ),
        (scores.ViM, {"logits": np.eye(3)}, "missing: features"),
        (
            scores.ViM,
            {"logits": np.eye(3, 2), "features": np.eye(3)[[0, 0, 0]] + 1},
            "no residual for ViM",
        ),
        (
            scores.ViM,
            {"logits": -np.ones((3, 2)), "features": np.eye(3)},
            "must be positive; it is -1",
        ),
        (
            lambda: scores.ViM(3),
            {"logits": np.eye(3, 2), "features": np.eye(3)},
            "3 principal dimensions of 3 features",
        ),
        (
            scores.Mahalanobis,
            {"features": np.ones((3, 2))},
            "differ within their classes",
        ),
        (
            scores.Mahalanobis,
            {"features": np.eye(3), "logits": np.eye(3)},
            "these classes have none: 2",
        ),
        (
            lambda: scores.KNN(4),
            {"features": np.eye(3)},
            "contains 3 examples, fewer than the 4 neighbours",
        ),
        (
            lambda: scores.NNGuide(1, bank_size=1),
            {"features": np.eye(3), "logits": np.eye(3)},
            "cannot contain one of each of the 3 classes",
        ),
        (
            lambda: scores.KNN(3),
            {"features": np.eye(3) * [1, 1, 0]},
            "contains 2 examples, fewer than the 3 neighbours",
        ),
    ],
)
def test_examples_that_a_score_cannot_be_fitted_to(rule, outputs, message):
    rule = rule()
    with pytest.raises(ValueError, match=message):
        rule.fit([0, 0, 1], **outputs)


def test_too_many_features_for_a_covariance(monkeypatch):
    """Seen before it is allocated."""
    monkeypatch.setattr("cac_tf.scores.statistics._USABLE_MEMORY", 1e-9)
    with pytest.raises(ValueError, match="Choose a narrower features_layer"):
        scores.Mahalanobis().fit([0, 1], features=np.eye(2))


def test_a_bank_that_memory_cannot_hold(monkeypatch):
    monkeypatch.setattr("cac_tf.scores.statistics._USABLE_MEMORY", 1e-9)
    rule = scores.KNN(1, bank_size=50)
    message = r"A bank of 50 examples of 4 features needs .* Choose a smaller"
    with pytest.raises(ValueError, match=message):
        rule.fit(np.zeros(50), features=np.ones((50, 4)))


def test_statistics_that_float32_cannot_hold(known):
    class Large(ClassZScore):
        def finish(self, kept, context):
            return {**super().finish(kept, context), "deviation": [1.0, 1e39]}

    _, logits, labels, _ = known
    with pytest.raises(ValueError, match="its deviation would not be finite"):
        Large().fit(labels, logits=logits)


def test_distances_name_the_class_wherever_they_are_needed():
    class Mixed(scores.Score):
        NAME, READS = "mixed", ("logits", "distances")

    outputs = {
        "logits": np.float32([[1, 9]]),
        "distances": np.float32([[5, 2]]),
    }
    assert np.asarray(Mixed().predicted_class(outputs)).tolist() == [1]


def test_without_distances_the_largest_logit_names_the_class():
    """Where each class has one; else the closest center does."""
    outputs = {
        "logits": np.float32([[1, 9, 2], [8, 1, 2]]),
        "distances": np.float32([[1, 2, 3], [3, 2, 1]]),
        "gamma": np.float32([[1, 2, 3], [3, 2, 1]]),
    }
    for rule in (MaxLogit(), Energy()):
        actual = np.asarray(rule.predicted_class(outputs))
        assert actual.tolist() == [1, 0]
        for width in (2, 4):
            other = outputs | {"logits": np.ones((2, width), "float32")}
            actual = np.asarray(rule.predicted_class(other))
            assert actual.tolist() == [0, 2]


def test_who_is_classified_correctly():
    """By the largest logit, that of the nearest anchor."""
    labels = np.array([0, 1, 1])
    logits = np.float32([[3, 1, 9], [1, 2, 9], [5, 2, 9]])
    batch = KnownBatch(labels, None, {"logits": logits[:, :2]})
    assert batch.is_correct.tolist() == [True, True, False]
    # Two classes of three logits, three of two: a network with centers of its
    # own says so, and otherwise nobody knows.
    narrow = {"logits": logits[:, :2]}
    for outputs, num_classes in (({"logits": logits}, 2), (narrow, 3)):
        batch = KnownBatch(labels, None, outputs, num_classes)
        assert batch.is_correct.all()
    narrow["class_distances"] = -np.float32([[1, 2, 3], [3, 2, 1], [3, 1, 2]])
    batch = KnownBatch(labels, None, narrow, num_classes=3)
    assert batch.is_correct.tolist() == [True, False, True]
    assert batch["class_distances"] is narrow["class_distances"]


def test_a_tail_that_no_weibull_distribution_fits(monkeypatch, known):
    def fit(*arguments, **options):
        raise stats.FitError("no solution")

    _, logits, labels, _ = known
    monkeypatch.setattr(stats.weibull_min, "fit", fit)
    with pytest.raises(ValueError, match="class '0' from its mean: no solut"):
        scores.OpenMax().fit(labels, logits=logits)


def test_a_tail_of_equal_distances():
    labels = np.arange(30) % 3
    logits = np.float32(9 * np.eye(3)[labels])
    with pytest.raises(
        ValueError, match="the 10 examples of class '0' .* equally"
    ):
        scores.OpenMax().fit(labels, logits=logits)


def _singular(rng, kind):
    features = rng.standard_normal((300, 6)) + 3
    if kind == "copy":
        features[:, 2] = features[:, 4]
    elif kind == "sum":
        features[:, 2] = features[:, 3:].sum(axis=1)
    elif kind == "constant":
        features[:, 2] = 7.3
    else:
        features = features[:6]
    return features


@pytest.mark.parametrize("kind", ["copy", "sum", "constant", "few"])
@pytest.mark.parametrize("score", [scores.Mahalanobis, RelativeMahalanobis])
def test_a_covariance_without_an_inverse(kind, score):
    """Rounding makes about half of them look as if they had one."""
    for seed in range(20):
        features = _singular(np.random.default_rng(seed), kind)
        labels = np.arange(len(features)) % 3
        with pytest.raises(ValueError, match="is singular"):
            score(shrinkage=None).fit(labels, features=features)


@pytest.mark.parametrize("name", ["mahalanobis", "knn", "nnguide"])
def test_features_that_are_not_finite(known, name):
    features, logits, labels, _ = known
    features = features.copy()
    features[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"finite"):
        scores.get(name).fit(labels, features=features, logits=logits)


@pytest.mark.parametrize("name", ["two_heads", "class_z_score"])
def test_logits_that_differ_by_rounding_alone(name):
    """E[x^2] - E[x]^2 of equal numbers is not always 0."""
    for seed in range(40):
        row = 9 * np.random.default_rng(seed).standard_normal(3)
        labels = np.full(1000, row.argmax())
        logits = np.tile(row, (1000, 1))
        with pytest.raises(ValueError, match="differ"):
            scores.get(name).fit(labels, logits=logits, second_logits=logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: np.where(y == 0, -1, y), "Label -1 at position 0 is out of"),
        (lambda y: y + 0.5, "Label 0.5 at position 0 is not a whole number"),
        (lambda y: y + 1, "Label 3 at position 2 is out of range"),
        (lambda y: y[:-1], "got .* labels for .* rows of"),
        (lambda y: np.eye(3)[y], "One-hot labels are not supported"),
    ],
)
@pytest.mark.parametrize("name", ["mahalanobis", "openmax", "knn"])
def test_labels_of_a_fit_are_checked(rng, name, change, message):
    labels = np.arange(120) % 3
    logits = 9 * np.eye(3)[labels] + rng.standard_normal((120, 3))
    outputs = {"features": rng.standard_normal((120, 4)), "logits": logits}
    rule = scores.get(name)
    with pytest.raises(ValueError, match=message):
        rule.fit(change(labels), **outputs)
    assert rule.fit(labels[:, None], **outputs)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name", [n for n in scores.names() if scores.find(n).IS_FITTED_TO_DATA]
)
def test_outputs_that_are_not_finite_are_not_fitted_to(rng, name, value):
    labels = np.arange(120) % 3
    outputs = {
        read: 9 * np.eye(3)[labels] + rng.standard_normal((120, 3))
        for read in {*scores.find(name).READS, "logits"}
    }
    outputs["logits"][70, 1] = value
    rule = scores.get(name)
    with pytest.raises(ValueError, match="needs finite logits; row 70"):
        rule.fit(labels, **outputs)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b", "a"], "must be whole numbers .class indices"),
        ([0.0, np.nan, 1.0], "Label nan at position 1 is not a whole number"),
    ],
)
def test_labels_that_are_no_numbers(labels, message):
    with pytest.raises(ValueError, match=message):
        scores.KNN().fit(labels, features=np.eye(3))


@pytest.mark.parametrize("classes, dimensions", [(3, 10), (13, 13), (20, 18)])
def test_vim_does_not_count_what_tells_classes_apart_as_residual(
    rng, classes, dimensions
):
    """Of 20 features; a tenth of them is residual in any case."""
    labels = np.arange(200) % classes
    outputs = {
        "logits": np.abs(np.float32(rng.standard_normal((200, classes)))),
        "features": np.float32(rng.standard_normal((200, 20))),
    }
    names = [str(label) for label in range(classes)]
    found, expected = (
        rule.fit(labels, class_names=names, **outputs)["residual_space"]
        for rule in (scores.ViM(), scores.ViM(dimensions))
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("classes, principal", [(2, 2), (5, 5), (8, 5)])
def test_few_examples_for_vim(rng, classes, principal):
    features = np.float32(rng.standard_normal((10, WIDTH)))
    found = scores.ViM().fit(
        np.zeros(10), logits=np.ones((10, classes)), features=features
    )
    assert found["residual_space"].shape == (WIDTH, WIDTH - principal)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Energy(1e-38), "temperature must be finite"),
        (lambda: Energy(np.inf), "temperature must be finite"),
        (lambda: scores.GEN(exponent=1.0), "exponent must be in"),
        (lambda: scores.GEN(classes=0), "must be a whole number of at least 1"),
        (lambda: scores.GEN(classes=1.5), "classes must be a whole .* 1.5"),
        (lambda: scores.ViM(0), "must be a whole number of at least 1"),
        (lambda: scores.ViM(1.5), "must be a whole number of at least 1"),
        (lambda: scores.ViM(np.inf), "dimensions must be a whole .*got inf"),
        (lambda: scores.KNN(0), "neighbours must be a whole .* at least 1"),
        (lambda: scores.KNN(1.5), "neighbours must be a whole .*got 1.5"),
        (lambda: scores.OpenMax(tail_size=3.7), "must be a whole .*least 3"),
        (lambda: scores.OpenMax(rank="2"), "rank must be a whole .*got '2'"),
        (lambda: scores.NNGuide(11, bank_size=10), "at most bank_size"),
    ],
)
def test_arguments_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", scores.names())
def test_rows_that_are_not_numbers_have_no_finite_score(name, known):
    """Serving tells them by that; no other row is touched."""
    features, logits, labels, layer = known
    rule = scores.get(name)
    outputs = {
        "features": features,
        "logits": logits,
        "distances": np.abs(logits),
        "gamma": np.abs(logits),
        "reconstruction_errors": np.abs(logits),
        "latents": features,
        "second_logits": logits,
    }
    needed = {n: outputs[n] for n in rule.READS}
    found = fitted(rule, labels, last_layer=layer, **needed)
    before = np.asarray(found(*needed.values()))
    assert np.isfinite(before).all()
    for value in needed.values():
        value[3] = np.nan
    after = np.asarray(found(*needed.values()))
    np.testing.assert_allclose(np.delete(after, 3), np.delete(before, 3))
    # The classifier's distances are NaN here, which tells it too.
    assert not np.isfinite(after[3]) or rule.reads_distances


NEW_SCORE = """
from keras import ops

from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
class Margin(Score):
    NAME, READS = "margin", ("logits",)

    def call(self, logits):
        best, second = ops.unstack(ops.top_k(logits, 2)[0], 2, axis=-1)
        return second - best
"""


def test_a_new_score_is_one_new_file(tmp_path, monkeypatch):
    (tmp_path / "margin.py").write_text(NEW_SCORE)
    package = "cac_tf.scores"
    monkeypatch.setattr(scores, "__path__", [*scores.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    fresh = registry.Registry("score", package, score_registry._SCORES._but)
    # Of this package alone: what is registered already stays as it is.
    monkeypatch.setattr(score_registry, "register", fresh.register)
    for name in scores.names():
        fresh.register(scores.find(name))
    try:
        assert set(fresh.names()) == {*scores.names(), "margin"}
        margin = fresh.get("margin")()
        (score,) = np.asarray(margin(np.float32([[1.0, 5.0, 3.0]])))
        assert score == -2.0
    finally:
        sys.modules.pop("cac_tf.scores.margin", None)
        vars(scores).pop("margin", None)
