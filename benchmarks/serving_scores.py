# SPDX-License-Identifier: Apache-2.0
"""What each rejection score costs a server.

    python benchmarks/serving_scores.py

As benchmarks/serving.py: the benchmark network as a bare classifier beside the
whole `serving_default` of an export, here of one model for each kind of score
(of logits, of features, of a bank), with ten classes at batch 32. There are
2,048 features; the bank holds 10,000 examples. Writes
benchmarks/results/serving_scores.json.
"""

import os
import tempfile

import numpy as np
import serving

from cac_tf import atomic_files
from cac_tf import scores
from cac_tf.experiments.environment import environment

RESULT = serving.FOLDER / "results" / "serving_scores.json"
SCORES = ("class_z_score", "vim", "knn")
NUM_CLASSES, BATCH, REQUESTS = 10, 32, 60
EXAMPLES = 10_000


def main():
    """Measures everything and writes the result."""
    result = {"environment": environment(), "scores": {}}
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (EXAMPLES, 32, 32, 3)).astype("float32")
    model = serving.classifier(NUM_CLASSES)
    # An untrained network predicts one class for all noise: its predictions
    # are the labels, except for enough of each class.
    labels = np.arange(EXAMPLES) % NUM_CLASSES
    logits = 9.0 * np.eye(NUM_CLASSES)[labels]
    logits += rng.normal(0, 1, logits.shape)
    rules = [scores.get(name) for name in SCORES]
    statistics, problems = model.fit_scores(
        rules, images, labels, batch_size=250
    )
    for rule in rules:
        if rule.name in problems:
            # Those of the logits only; the statistics' values do not matter.
            statistics[rule.name] = rule.fit(labels, logits=logits)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "serving_latency")
        serving.build(serving.SOURCE, program)
        pixels = os.path.join(folder, "pixels")
        images[:BATCH].tofile(pixels)
        bare = os.path.join(folder, "bare")
        serving.export_bare(model, bare)
        for rule in rules:
            served = os.path.join(folder, rule.name)
            scored = model.with_score(rule, statistics=statistics[rule.name])
            scored.set_threshold(5.0)
            scored.export(served)
            result["scores"][rule.name] = serving.compare(
                program,
                pixels,
                BATCH,
                REQUESTS,
                (bare, "serving_default"),
                (served, "serving_default"),
            )
            print(rule.name, result["scores"][rule.name], flush=True)
    atomic_files.write_json(RESULT, result)


if __name__ == "__main__":
    main()
