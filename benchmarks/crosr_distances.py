# SPDX-License-Identifier: Apache-2.0
"""Why CROSR's score is where it is on MNIST: AUROC by its parts.

    TFDS_DATA_DIR=... python benchmarks/crosr_distances.py RUN

RUN is the folder of a finished run of `crosr`, such as the training queue
leaves. OpenMax is fitted to logits and latents with other distances and other
shifts of the Weibull's location, and to the logits alone; and the distances to
the nearest class mean of logits, latents, and both, are scores by themselves,
Euclidean and Mahalanobis (which the scales of the values do not change). So is
the error of the reconstruction. A logistic regression shows how much of the
classes the latents know. Nothing is chosen by these numbers.
"""

import argparse

import numpy as np
from finished_run import outputs_of
from finished_run import read_run
from keep_run import RESULTS
from sklearn.covariance import EmpiricalCovariance
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cac_tf import atomic_files
from cac_tf import metrics
from cac_tf import scores
from cac_tf.experiments.environment import environment
from cac_tf.scores.latent_openmax import LatentOpenMax

RESULT = RESULTS / "crosr_distances.json"
OUTPUTS = ("logits", "latents")
DRAWN = ("reconstruction", "pixels")
RULES = {
    "eucos, shift 1": LatentOpenMax(),
    "eucos, shift 0.1": LatentOpenMax(shift=0.1),
    "eucos, shift 0.01": LatentOpenMax(shift=0.01),
    "euclidean, shift 1": LatentOpenMax(distance="euclidean"),
    "logits alone, shift 1": scores.OpenMax(),
}


def by_openmax(score, labels, train, known, unknown):
    """AUROC of OpenMax, and the shares of images whose score is 0."""
    statistics = score.fit(
        labels, **{name: train[name] for name in score.READS}
    )
    values = [
        score.of_arrays(*score.arguments_of(part), **statistics)
        for part in (known, unknown)
    ]
    zero = [round(float(np.mean(part < 1e-6)), 3) for part in values]
    return {
        "auroc": auroc(*values),
        "share of known, of unknown at 0": zero,
    }


def by_nearest_mean(labels, *parts):
    """AUROC of the distances to the nearest class mean, by kind."""
    classes, index = np.unique(labels, return_inverse=True)
    means = np.stack([parts[0][labels == k].mean(axis=0) for k in classes])
    covariance = EmpiricalCovariance(assume_centered=True)
    covariance.fit(parts[0] - means[index])
    kinds = {
        "euclidean": lambda apart: np.linalg.norm(apart, axis=-1),
        "mahalanobis": covariance.mahalanobis,
    }
    return {
        name: auroc(
            *(
                np.min([distance(part - mean) for mean in means], axis=0)
                for part in parts[1:]
            )
        )
        for name, distance in kinds.items()
    }


def spread(labels, train):
    """Mean standard deviation of a value within a class."""
    parts = [train[labels == k].std(axis=0).mean() for k in np.unique(labels)]
    return round(float(np.mean(parts)), 4)


def accuracy_of_latents(train, known):
    """Share of known test images whose class a regression on latents finds."""
    regression = make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=2000)
    )
    regression.fit(*train)
    return round(regression.score(*known), 4)


def reconstruction_errors(part):
    """(n,) mean squared errors of the reconstructions, pixels in [0, 1]."""
    apart = part["reconstruction"] - part["pixels"]
    return np.square(apart).mean(axis=(1, 2, 3))


def auroc(known, unknown):
    """AUROC of two arrays of scores, rounded."""
    return round(metrics.auroc(known, unknown), 4)


def main():
    """Measures one run and writes the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a finished run of crosr")
    run = parser.parse_args().run
    settings, dataset, model = read_run(run)
    parts = [
        outputs_of(model, part.images, OUTPUTS + DRAWN)
        for part in (dataset.train, dataset.known_test, dataset.unknown_test)
    ]
    labels = np.asarray(dataset.train.labels)
    lengths = {
        name: [
            round(float(np.linalg.norm(part[name], axis=1).mean()), 2)
            for part in parts
        ]
        for name in OUTPUTS
    }
    read = {
        "logits": [part["logits"] for part in parts],
        "latents": [part["latents"] for part in parts],
        "both": [
            np.concatenate([part[name] for name in OUTPUTS], axis=1)
            for part in parts
        ],
    }
    errors = [reconstruction_errors(part) for part in parts[1:]]
    atomic_files.write_json(
        RESULT,
        {
            "data": {"dataset": dataset.name, "trial": dataset.trial},
            "recipe": settings["recipe"],
            "openmax": {
                name: by_openmax(score, labels, *parts)
                for name, score in RULES.items()
            },
            "nearest class mean": {
                name: by_nearest_mean(labels, *arrays)
                for name, arrays in read.items()
            },
            "mean length, of train, known, unknown": lengths,
            "mean standard deviation within a class": {
                name: spread(labels, parts[0][name]) for name in OUTPUTS
            },
            "accuracy of a regression on latents": accuracy_of_latents(
                (parts[0]["latents"], labels),
                (parts[1]["latents"], dataset.known_test.labels),
            ),
            "reconstruction error": {
                "auroc": auroc(*errors),
                "mean, of known, of unknown": [
                    round(float(part.mean()), 5) for part in errors
                ],
            },
            "environment": environment(),
        },
    )
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
