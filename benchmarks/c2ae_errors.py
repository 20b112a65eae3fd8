# SPDX-License-Identifier: Apache-2.0
"""Why C2AE's score is where it is on CIFAR10: what its errors follow.

    TFDS_DATA_DIR=... python benchmarks/c2ae_errors.py RUN

RUN is the folder of a finished run of `c2ae`, such as the training queue
leaves. The smallest reconstruction error of each test image is compared with
how much detail the image has (the mean absolute difference of neighbouring
pixels), and the class with the smallest error with the true one. Nothing is
chosen by these numbers.
"""

import argparse

import numpy as np
import scipy.stats
from finished_run import outputs_of
from finished_run import read_run
from keep_run import RESULTS

from cac_tf import atomic_files
from cac_tf import metrics
from cac_tf.experiments.environment import environment

RESULT = RESULTS / "c2ae_errors.json"
OUTPUT = "reconstruction_errors"


def detail_of(images):
    """(n,) mean absolute differences of neighbouring pixels, in 0...1."""
    pixels = np.asarray(images, "float32") / 255.0
    return sum(
        np.abs(np.diff(pixels, axis=axis)).mean(axis=(1, 2, 3)) / 2
        for axis in (1, 2)
    )


def main():
    """Measures one run and writes the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a finished run of c2ae")
    run = parser.parse_args().run
    settings, dataset, model = read_run(run)
    parts = (dataset.known_test, dataset.unknown_test)
    errors = [
        outputs_of(model, part.images, (OUTPUT,))[OUTPUT] for part in parts
    ]
    smallest = [part.min(axis=1) for part in errors]
    details = [detail_of(part.images) for part in parts]
    labels = np.asarray(dataset.known_test.labels)
    own = errors[0][np.arange(len(labels)), labels]
    # The smallest error as another class.
    others = errors[0].copy()
    others[np.arange(len(labels)), labels] = np.inf
    correlations = [
        scipy.stats.spearmanr(*pair).statistic
        for pair in zip(smallest, details, strict=True)
    ]
    result = {
        "data": {"dataset": dataset.name, "trial": dataset.trial},
        "recipe": settings["recipe"],
        "auroc of the smallest error": metrics.auroc(*smallest),
        "auroc of the detail": metrics.auroc(*details),
        "rank correlation of error and detail, known": correlations[0],
        "rank correlation of error and detail, unknown": correlations[1],
        "mean error as the true class": own.mean(),
        "mean smallest error as another class": others.min(axis=1).mean(),
        "share of known with the smallest error as the true class": np.mean(
            errors[0].argmin(axis=1) == labels
        ),
    }
    result = {
        name: round(float(value), 4) if np.isscalar(value) else value
        for name, value in result.items()
    }
    result["environment"] = environment()
    atomic_files.write_json(RESULT, result)
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
