# SPDX-License-Identifier: Apache-2.0
"""Why CROSR's score is where it is on MNIST: AUROC by its parts.

    TFDS_DATA_DIR=... python benchmarks/crosr_distances.py RUN

RUN is the folder of a finished run of `crosr`, such as the training queue
leaves. OpenMax is fitted to logits and latents with other distances and other
shifts of the Weibull's location, and to the logits alone; and the distances to
the nearest class mean of logits, latents, and both, are scores by themselves.
Nothing is chosen by these numbers.
"""

import argparse

import numpy as np
from finished_run import outputs_of
from finished_run import read_run
from keep_run import RESULTS

from cac_tf import atomic_files
from cac_tf import experiments
from cac_tf import metrics
from cac_tf import scores

RESULT = RESULTS / "crosr_distances.json"
OUTPUTS = ("logits", "latents")
RULES = {
    "eucos, shift 1": scores.LatentOpenMax(),
    "eucos, shift 0.1": scores.LatentOpenMax(shift=0.1),
    "eucos, shift 0.01": scores.LatentOpenMax(shift=0.01),
    "euclidean, shift 1": scores.LatentOpenMax(distance="euclidean"),
    "logits alone, shift 1": scores.OpenMax(),
}


def by_openmax(score, labels, train, known, unknown):
    """AUROC of OpenMax, and the shares of images whose score is 0."""
    score.fit(labels, **{name: train[name] for name in score.READS})
    values = [
        score.of_arrays(*score.arguments_of(part)) for part in (known, unknown)
    ]
    zero = [round(float(np.mean(part < 1e-6)), 3) for part in values]
    return {
        "auroc": round(metrics.auroc(*values), 4),
        "share of known, of unknown at 0": zero,
    }


def by_nearest_mean(labels, *parts):
    """AUROC of the distance to the nearest class mean."""
    means = [parts[0][labels == k].mean(axis=0) for k in np.unique(labels)]
    distances = [
        np.linalg.norm(part[:, None] - means, axis=-1).min(axis=1)
        for part in parts[1:]
    ]
    return round(metrics.auroc(*distances), 4)


def main():
    """Measures one run and writes the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a finished run of crosr")
    run = parser.parse_args().run
    settings, dataset, model = read_run(run)
    parts = [
        outputs_of(model, part.images, OUTPUTS)
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
        "both": [np.concatenate(list(part.values()), axis=1) for part in parts],
    }
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
            "environment": experiments.environment(),
        },
    )
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
