# SPDX-License-Identifier: Apache-2.0
"""Every rejection score on the authors' released weights, real test sets.

    CAC_TF_OFFICIAL_DIR=... TFDS_DATA_DIR=... \
        python benchmarks/released_scores.py

Imports trial 0 (`miller2020`), fits every score to the images that the weights
were trained on (the class z-scores to the validation images), with one view
and with two, and writes benchmarks/results/released_scores.json. Needs
PyTorch; about ten minutes on two cores. The reference values were computed
elsewhere, on the same weights and images.
"""

import os
import pathlib
import tempfile

import numpy as np
from absl import flags

from cac_tf import atomic_files
from cac_tf import scores
from cac_tf.data import load_open_set_dataset
from cac_tf.evaluation import evaluate
from cac_tf.evaluation import fitted_scores
from cac_tf.layers import anchored_distances
from cac_tf.layers import rejection_scores
from cac_tf.methods.known_data import fit_to_known_data
from cac_tf.metrics import auroc
from cac_tf.models import load_model
from cac_tf.run_folder import environment
from cac_tf.train import cac_import_weights

RESULT = pathlib.Path(__file__).parent / "results" / "released_scores.json"
# The data sets of each; CIFAR+10 and CIFAR+50 have the same known classes.
CHECKPOINTS = {
    "MNIST_0_CACclassifierAnchorLoss.pth": ["mnist"],
    "CIFAR10_0_CACclassifierAnchorLoss.pth": ["cifar10"],
    "CIFAR+10_0_CACclassifierAnchorLoss.pth": ["cifar+10", "cifar+50"],
}
COLUMNS = (
    "mnist",
    "cifar10",
    "cifar10, two views",
    "cifar+10",
    "cifar+10, two views",
    "cifar+50",
    "cifar+50, two views",
)
# AUROC; the first row is the accuracy by the largest logit.
REFERENCE = {
    "accuracy": (0.9979, 0.9247, 0.9297, 0.9503, 0.9570, 0.9503, 0.9570),
    "gamma": (0.9863, 0.7468, 0.7531, 0.8610, 0.8636, 0.8704, 0.8754),
    "gamma, anchors": (0.9867, 0.7518, 0.7578, 0.8652, 0.8676, 0.8740, 0.8795),
    "max_logit": (0.9833, 0.7649, 0.7709, 0.8687, 0.8742, 0.8775, 0.8855),
    "energy": (0.9834, 0.7651, 0.7711, 0.8693, 0.8750, 0.8781, 0.8864),
    "class_z_score": (0.9790, 0.7723, 0.7788, 0.8569, 0.8624, 0.8659, 0.8737),
    "vim": (0.9920, 0.7448, 0.7649, 0.8878, 0.8947, 0.9026, 0.9085),
    "knn, k = 1": (0.9896, 0.7128, 0.6975, 0.8985, 0.8952, 0.9086, 0.9048),
    "knn, k = 50": (0.9886, 0.6880, 0.6859, 0.8910, 0.8931, 0.9004, 0.9028),
    "nnguide": (0.9893, 0.7499, 0.7520, 0.8939, 0.8959, 0.9026, 0.9059),
    "mahalanobis": (0.9904, 0.6236, 0.6488, 0.8420, 0.8489, 0.8604, 0.8674),
}
LOGIT_SCORES = ("accuracy", "gamma, anchors", "max_logit", "energy")
# Scores with statistics depend on which images these are taken of.
TOLERANCE = {name: 1e-3 if name in LOGIT_SCORES else 3e-3 for name in REFERENCE}
# Every training image.
_BANK = 60_000


def reference(column):
    """Dict of the reference values of one of `COLUMNS`."""
    place = COLUMNS.index(column)
    return {name: values[place] for name, values in REFERENCE.items()}


def options_of(dataset):
    """What `load_open_set_dataset` takes besides the name."""
    options = {"split_family": "miller2020", "trial": 0}
    if dataset != "mnist":
        # The images that the weights were trained on, and no others.
        options["validation_split"] = "authors"
    return options


def imported(checkpoint, dataset, folder):
    """The released model of a data set, and the data set."""
    path = pathlib.Path(os.environ["CAC_TF_OFFICIAL_DIR"]) / checkpoint
    options = options_of(dataset)
    values = flags.FlagValues()
    cac_import_weights.define_flags(values)
    values(
        [
            "cac-import-weights",
            f"--dataset={dataset}",
            *(f"--{name}={value}" for name, value in options.items()),
            f"--checkpoint={path}",
            f"--output_dir={folder}",
        ]
    )
    cac_import_weights.main(values)
    model = load_model(os.path.join(folder, "model.keras"))
    return model, load_open_set_dataset(dataset, **options)


def fitted(model, dataset):
    """The model around its class means, and every score, fitted."""
    fit_to_known_data(model, dataset)
    make = scores.DeepNearestNeighbours
    rules = [
        *map(scores.get, ("max_logit", "energy", "class_z_score", "vim")),
        scores.Mahalanobis(),
        make(1, _BANK, name="knn, k = 1"),
        make(50, _BANK, name="knn, k = 50"),
        scores.NNGuide(10, _BANK),
    ]
    return model, fitted_scores(model, dataset, rules)


def measure(model, rules, dataset, views):
    """AUROC by each score, accuracy by the largest logit, times.

    Args:
        model, rules: of `fitted`.
        dataset: the data set.
        views: None or "flip".

    Returns:
        Dict with the names of `REFERENCE` and of further rules; and the
        microseconds an image.
    """
    model = model.with_score("gamma", views=views)
    evaluation = evaluate(model, dataset, scores=rules)
    metrics = evaluation.metrics
    found = {name: by["auroc"] for name, by in metrics["scores"].items()}
    found["accuracy"] = metrics["scores"]["max_logit"]["accuracy"]
    gamma = np.asarray(rejection_scores(anchored_distances(evaluation.logits)))
    is_known = evaluation.is_known
    found["gamma, anchors"] = auroc(
        gamma[is_known].min(axis=1), gamma[~is_known].min(axis=1)
    )
    return found, metrics["microseconds_per_image"]


def main():
    """Measures, compares and writes."""
    results = {}
    for checkpoint, names in CHECKPOINTS.items():
        with tempfile.TemporaryDirectory() as folder:
            model, dataset = imported(checkpoint, names[0], folder)
        model, rules = fitted(model, dataset)
        for name in names:
            dataset = load_open_set_dataset(name, **options_of(name))
            for views in (None, "flip") if name != "mnist" else (None,):
                column = f"{name}, two views" if views else name
                measured, times = measure(model, rules, dataset, views)
                expected = reference(column)
                results[column] = {
                    "measured": {k: measured[k] for k in expected},
                    "reference": expected,
                    "difference": {
                        k: measured[k] - expected[k] for k in expected
                    },
                    "microseconds_per_image": times,
                }
                print(column, results[column]["difference"], flush=True)
    atomic_files.write_json(
        RESULT, {"environment": environment(), "columns": results}
    )


if __name__ == "__main__":
    main()
