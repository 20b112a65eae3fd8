# SPDX-License-Identifier: Apache-2.0
"""Every rejection score on the authors' released weights, real test sets.

    TFDS_DATA_DIR=... python benchmarks/released_scores.py \
        --weights=networks/weights --trials=0,1,2,3,4

The weights are those of github.com/dimitymiller/cac-openset.
Imports those of both trainings (CAC, cross-entropy) of each trial
(`miller2020`), as far as the folder has them, fits every score to the images
that the weights were trained on (the class z-scores to the validation images),
in trial 0 also with test-time augmentation, and writes
benchmarks/results/released_scores.json. Needs PyTorch. What is there already is
not measured again. authors_network.py measures the same weights by the authors'
own network.
"""

import json
import pathlib
import tempfile

import numpy as np
from absl import app
from absl import flags

from cac_tf import atomic_files
from cac_tf import experiments
from cac_tf import scores
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.environment import environment
from cac_tf.experiments.evaluation import evaluate
from cac_tf.experiments.evaluation import fitted_scores
from cac_tf.layers import anchored_distances
from cac_tf.layers import rejection_scores
from cac_tf.methods.known_data import fit_to_known_data
from cac_tf.metrics import auroc
from cac_tf.metrics import bhattacharyya
from cac_tf.models import load_model

RESULT = pathlib.Path(__file__).parent / "results" / "released_scores.json"
# By the set whose weights are read: the sets with its known classes.
DATASETS = {
    "mnist": ["mnist"],
    "cifar10": ["cifar10"],
    "cifar+10": ["cifar+10", "cifar+50"],
}
TRAININGS = ("cac", "cross_entropy")
_WEIGHTS = flags.DEFINE_string("weights", None, "Folder of the .pth files.")
_TRIALS = flags.DEFINE_list("trials", ["0"], "Numbers of the trials.")
# Every training image.
_BANK = 60_000
# Numbers of bins of Table 2's histograms; the paper does not state its own.
_BINS = (5, 10, 20, 30, 50, 100, 200, 500, 1000)


def imported(path, dataset, folder, trial=0):
    """The released model of a data set, and the data set."""
    options = experiments.data_of_released_weights(dataset, trial)
    _, model = experiments.import_weights(path, options, folder)
    return load_model(model), load_open_set_dataset(**options)


def fitted(model, dataset):
    """The model around its class means, and every score, fitted."""
    fit_to_known_data(model, dataset)
    make = scores.KNN
    rules = [
        *map(
            scores.get,
            (
                "min_distance",
                "max_logit",
                "energy",
                "max_softmax",
                "entropy",
                "gen",
                "class_z_score",
                "openmax",
                "vim",
                "mahalanobis",
                "relative_mahalanobis",
                "she",
            ),
        ),
        scores.OpenMax(
            rank=None, form="log_sum_exp", name="openmax, log-sum-exp"
        ),
        make(1, _BANK, name="knn, k = 1"),
        make(50, _BANK, name="knn, k = 50"),
        scores.NNGuide(10, _BANK),
    ]
    return model, fitted_scores(model, dataset, rules)


def measure(model, rules, dataset, tta):
    """AUROC by each score, accuracy by the largest logit, times.

    Args:
        model, rules: of `fitted`.
        dataset: the data set.
        tta: None or "flip".

    Returns:
        Dict by the names of the rules, with "accuracy", "gamma, anchors" and
        the share of known images that theta accepts; the microseconds per
        image; and
        the Bhattacharyya coefficients of the distances to the closest class
        mean, by the number of bins (Table 2).
    """
    model = model.with_score("gamma", tta=tta)
    model.calibrate(dataset.validation.images, true_positive_rate=0.95)
    evaluation = evaluate(model, dataset, scores=rules)
    metrics = evaluation.metrics
    found = {name: by["auroc"] for name, by in metrics["scores"].items()}
    found["true_positive_rate"] = metrics["true_positive_rate"]
    found["accuracy"] = metrics["scores"]["max_logit"]["accuracy"]
    gamma = np.asarray(rejection_scores(anchored_distances(evaluation.logits)))
    is_known = evaluation.is_known
    found["gamma, anchors"] = auroc(
        gamma[is_known].min(axis=1), gamma[~is_known].min(axis=1)
    )
    distances = evaluation.min_distance
    overlap = {
        bins: bhattacharyya(distances[is_known], distances[~is_known], bins)
        for bins in _BINS
    }
    return found, metrics["microseconds_per_image"], overlap


def measured_columns(name, training, trial):
    """What is measured of one checkpoint, by data set and augmentation.

    Raises:
        ValueError: the folder does not have it.
    """
    path = experiments.find_released_weights(
        _WEIGHTS.value, name, training, trial
    )
    with tempfile.TemporaryDirectory() as folder:
        model, dataset = imported(path, name, folder, trial)
    model, rules = fitted(model, dataset)
    columns = {}
    # Digits change their classes when they are mirrored.
    has_two_views = name != "mnist" and trial == 0
    for dataset_name in DATASETS[name]:
        if dataset_name != name:
            options = experiments.data_of_released_weights(dataset_name, trial)
            dataset = load_open_set_dataset(**options)
        for tta in (None, "flip") if has_two_views else (None,):
            column = f"{dataset_name}, tta" if tta else dataset_name
            measured, times, overlap = measure(model, rules, dataset, tta)
            columns[column] = {
                "measured": measured,
                "microseconds_per_image": times,
                "bhattacharyya": overlap,
            }
    return columns


def main(argv):
    """Measures, compares and writes, one checkpoint after another."""
    del argv
    result = {"runs": {}}
    if RESULT.exists():
        result = json.loads(RESULT.read_text(encoding="utf-8"))
    for trial in _TRIALS.value:
        for training in TRAININGS:
            for name in DATASETS:
                key = f"{name} {training} {trial}"
                if key in result["runs"]:
                    continue
                try:
                    columns = measured_columns(name, training, int(trial))
                except ValueError as error:
                    print(f"{key}: {error}", flush=True)
                    continue
                result["runs"][key] = {
                    "training": training,
                    "trial": int(trial),
                    "columns": columns,
                    "environment": environment(),
                }
                atomic_files.write_json(RESULT, result)
                print(key, flush=True)


if __name__ == "__main__":
    flags.mark_flag_as_required("weights")
    app.run(main)
