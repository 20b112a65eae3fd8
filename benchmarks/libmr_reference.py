# SPDX-License-Identifier: Apache-2.0
"""Makes tests/scores/libmr_reference.json: the real libMR on made distances.

    pip install cython numpy setuptools
    pip install --no-build-isolation libmr
    python benchmarks/libmr_reference.py

Needs libmr 0.1.9, which the tests do not.
"""

import json
import pathlib

import numpy as np

PATH = (
    pathlib.Path(__file__).parent.parent / "tests/scores/libmr_reference.json"
)
TAIL_SIZE = 20


def main():
    """Fits a tail for each class and asks for the weights of inputs."""
    import libmr

    rng = np.random.default_rng(0)
    labels = np.arange(240) % 3
    logits = 8 * np.eye(3)[labels] + 1.5 * rng.standard_normal((240, 3))
    logits = logits.round(4)
    inputs = (4 * rng.standard_normal((30, 3))).round(4)
    weights = {}
    for shift in (1, 10_000):
        columns = []
        for index in range(3):
            is_own = (labels == index) & (logits.argmax(axis=1) == index)
            mean = logits[is_own].mean(axis=0)
            distances = np.linalg.norm(logits[is_own] - mean, axis=1)
            model = libmr.MR(translate_amount=shift)
            model.fit_high(distances, TAIL_SIZE)
            queries = np.linalg.norm(inputs - mean, axis=1)
            columns.append([model.w_score(query) for query in queries])
        weights[str(shift)] = np.transpose(columns).tolist()
    content = {
        "tail_size": TAIL_SIZE,
        "labels": labels.tolist(),
        "logits": logits.tolist(),
        "inputs": inputs.tolist(),
        "weights": weights,
    }
    PATH.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
