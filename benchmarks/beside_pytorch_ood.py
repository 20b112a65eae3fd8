# SPDX-License-Identifier: Apache-2.0
"""Fitting and scoring beside pytorch-ood, on the same arrays.

    pip install pytorch-ood
    python benchmarks/beside_pytorch_ood.py

Both libraries get 10,000 rows of 2,048 features in 10 classes, the logits of a
random last layer, and no network. They take turns in one process, and the
medians count. "agreement" is the largest difference of the scores of both after
fits to 4,000 rows, relative to their spread and in the same units: our `knn` is
half of the squared distance. Three differ by intention, and have a rank
correlation: our Mahalanobis distances shrink the covariance by default (without
shrinkage they are compared like the others), and our OpenMax has the shift of
libMR, weights that begin at 1 - 1 / alpha, and correct examples alone.
Writes benchmarks/results/beside_pytorch_ood.json.
"""

import argparse
import functools
import pathlib
import time
import typing

import numpy as np
import torch
from pytorch_ood import __version__ as their_version
from pytorch_ood import detector
from scipy import stats

from cac_tf import atomic_files
from cac_tf import scores
from cac_tf.experiments.environment import environment
from cac_tf.scores.energy import Energy
from cac_tf.scores.entropy import Entropy
from cac_tf.scores.max_logit import MaxLogit
from cac_tf.scores.max_softmax import MaxSoftmax
from cac_tf.scores.relative_mahalanobis import RelativeMahalanobis
from cac_tf.scores.score import LastLayer
from cac_tf.scores.she import SHE

RESULT = pathlib.Path(__file__).parent / "results" / "beside_pytorch_ood.json"
_CLASSES = 10
_PRINCIPAL, _NEIGHBOURS, _BANK = 1000, 50, 1 << 30
# Our ViM takes its scale from at most 4,096 rows.
_FEW = 4000


class Data(typing.NamedTuple):
    """Rows of features in classes, and the last layer."""

    labels: np.ndarray
    features: np.ndarray
    logits: np.ndarray
    kernel: np.ndarray
    bias: np.ndarray


def made(rng, rows, width):
    """`Data` to fit to, and other rows to score."""
    centers = rng.standard_normal((_CLASSES, width))
    # Directions of different spread, as features of a network have; logits of
    # which few are close to certainty.
    spread = np.exp(-np.arange(width) / width)
    kernel = 8.0 * centers.T / width
    bias = 0.1 * rng.standard_normal(_CLASSES)

    def draw():
        labels = rng.permutation(np.arange(rows) % _CLASSES)
        noise = rng.standard_normal((rows, width)) * spread
        features = np.float32(0.3 * centers[labels] + noise)
        logits = features @ kernel + bias
        parts = (labels, features, logits, kernel, bias)
        return Data(labels, *(np.float32(part) for part in parts[1:]))

    return draw(), draw()


class Pair(typing.NamedTuple):
    """A score in both libraries."""

    ours: typing.Callable
    theirs: typing.Callable
    # "features" or "logits", what theirs takes.
    takes: str = "features"
    # Theirs in the units of ours; None where they differ by intention.
    in_our_units: typing.Callable | None = lambda values: values


def pairs(data):
    """Both libraries' scores by name."""
    kernel, bias = torch.tensor(data.kernel), torch.tensor(data.bias)

    # Of the fits whose scores are compared.
    rows = min(_FEW, len(data.labels))

    def head(features):
        return features @ kernel + bias

    return {
        "vim": Pair(
            lambda: scores.ViM(_PRINCIPAL),
            lambda: detector.ViM(None, _PRINCIPAL, kernel.T, bias),
        ),
        "mahalanobis": Pair(
            scores.Mahalanobis,
            lambda: detector.Mahalanobis(None),
            in_our_units=None,
        ),
        "mahalanobis, no shrinkage": Pair(
            lambda: scores.Mahalanobis(shrinkage=None),
            lambda: detector.Mahalanobis(None),
            # Theirs is half of it, and the covariance a sum.
            in_our_units=lambda values: 2.0 * rows * values,
        ),
        "relative_mahalanobis": Pair(
            RelativeMahalanobis,
            lambda: detector.RMD(None),
            in_our_units=None,
        ),
        "relative_mahalanobis, no shrinkage": Pair(
            lambda: RelativeMahalanobis(shrinkage=None),
            lambda: detector.RMD(None),
            in_our_units=lambda values: rows * values,
        ),
        "knn": Pair(
            lambda: scores.KNN(_NEIGHBOURS, _BANK),
            lambda: detector.KNN(None, _NEIGHBOURS),
            in_our_units=lambda values: values**2 / 2,
        ),
        "nnguide": Pair(
            lambda: scores.NNGuide(10, _BANK),
            lambda: detector.NNGuide(None, head, 10),
        ),
        "she": Pair(SHE, lambda: detector.SHE(None, head)),
        "openmax": Pair(
            lambda: scores.OpenMax(tail_size=25),
            lambda: detector.OpenMax(None),
            "logits",
            in_our_units=None,
        ),
        "gen": Pair(
            scores.GEN,
            lambda: detector.GEN(None),
            "logits",
            # Theirs is a mean over the classes.
            lambda values: _CLASSES * values,
        ),
        "energy": Pair(Energy, lambda: detector.EnergyBased(None), "logits"),
        "max_softmax": Pair(
            MaxSoftmax,
            lambda: detector.MaxSoftmax(None),
            "logits",
            # Ours is in [0, 1].
            lambda values: 1.0 + values,
        ),
        "max_logit": Pair(MaxLogit, lambda: detector.MaxLogit(None), "logits"),
        "entropy": Pair(Entropy, lambda: detector.Entropy(None), "logits"),
    }


def seconds(function, *arguments, **named):
    """What a call returns, and how long it took."""
    started = time.perf_counter()
    found = function(*arguments, **named)
    return found, time.perf_counter() - started


def compare(pair, fitted_to, scored, repeats):
    """Times of both, in turns, and how well their scores agree."""
    layer = LastLayer(fitted_to.kernel, fitted_to.bias)
    times = {"fit": ([], []), "score": ([], [])}
    theirs_fit = torch.tensor(getattr(fitted_to, pair.takes))
    theirs_scored = torch.tensor(getattr(scored, pair.takes))
    labels = torch.tensor(fitted_to.labels)
    for _ in range(repeats):
        ours, theirs = pair.ours(), pair.theirs()
        outputs = {n: getattr(fitted_to, n) for n in ours.READS}
        statistics = {}
        if ours.IS_FITTED_TO_DATA:
            statistics, took = seconds(
                ours.fit, fitted_to.labels, last_layer=layer, **outputs
            )
            times["fit"][0].append(took)
            fit = getattr(theirs, f"fit_{pair.takes}")
            _, took = seconds(fit, theirs_fit, labels)
            times["fit"][1].append(took)
        arguments = [getattr(scored, name) for name in ours.READS]
        of_arrays = functools.partial(ours.of_arrays, **statistics)
        _, took = seconds(of_arrays, *arguments)
        times["score"][0].append(took)
        predict = getattr(theirs, f"predict_{pair.takes}")
        _, took = seconds(predict, theirs_scored)
        times["score"][1].append(took)
    found = {}
    for what, (one, two) in times.items():
        if one:
            found[f"{what}, ours (s)"] = float(np.median(one))
            found[f"{what}, pytorch-ood (s)"] = float(np.median(two))
            found[f"{what}, ratio"] = float(np.median(np.divide(one, two)))
    own, other = scores_of_both(pair, fitted_to, scored)
    if pair.in_our_units is None:
        correlation = stats.spearmanr(own, other).statistic
        return {**found, "rank correlation": float(correlation)}
    other = pair.in_our_units(other)
    found["agreement"] = float(np.abs(own - other).max() / np.ptp(own))
    return found


def scores_of_both(pair, fitted_to, scored):
    """Scores after fits to the first rows."""
    rows = slice(0, _FEW)
    ours, theirs, statistics = pair.ours(), pair.theirs(), {}
    if ours.IS_FITTED_TO_DATA:
        layer = LastLayer(fitted_to.kernel, fitted_to.bias)
        outputs = {n: getattr(fitted_to, n)[rows] for n in ours.READS}
        statistics = ours.fit(
            fitted_to.labels[rows], last_layer=layer, **outputs
        )
        getattr(theirs, f"fit_{pair.takes}")(
            torch.tensor(getattr(fitted_to, pair.takes)[rows]),
            torch.tensor(fitted_to.labels[rows]),
        )
    arguments = [getattr(scored, name) for name in ours.READS]
    own = ours.of_arrays(*arguments, **statistics)
    predict = getattr(theirs, f"predict_{pair.takes}")
    other = predict(torch.tensor(getattr(scored, pair.takes)))
    return np.float64(own), np.float64(np.asarray(other))


def main():
    """Compares all pairs, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=2_048)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    fitted_to, scored = made(rng, given.rows, given.width)
    found = {}
    for name, pair in pairs(fitted_to).items():
        found[name] = compare(pair, fitted_to, scored, given.repeats)
        print(name, found[name], flush=True)
    atomic_files.write_json(
        RESULT,
        {
            "rows": given.rows,
            "width": given.width,
            "classes": _CLASSES,
            "scores": found,
            "pytorch-ood": their_version,
            "torch": torch.__version__,
            "threads of torch": torch.get_num_threads(),
            "environment": environment(),
        },
    )


if __name__ == "__main__":
    main()
