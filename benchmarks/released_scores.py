# SPDX-License-Identifier: Apache-2.0
"""Every rejection score on the authors' released weights, real test sets.

    TFDS_DATA_DIR=... python benchmarks/released_scores.py \
        --weights=networks/weights --trials=0,1,2,3,4

The weights are those of github.com/dimitymiller/cac-openset.
Imports those of both trainings (CAC, cross-entropy) of each trial
(`miller2020`), as far as the folder has them, fits every score to the images
that the weights were trained on (the class z-scores to the validation images),
measures them with one view and, but for digits, with two
(`tta="flip"`), and writes benchmarks/results/released_scores.json. Needs
PyTorch.

A score of a column that is there already is not measured again;
a run of which columns or scores are missing gets those, and "filled" says which
and by which code. --fill_measures also measures again what has no FPR and AUPR
yet. authors_network.py measures the same weights by the authors' own network.
"""

import json
import pathlib
import tempfile

import numpy as np
from absl import app
from absl import flags

from cac_tf import atomic_files
from cac_tf import scores
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.environment import environment
from cac_tf.experiments.evaluation import evaluate
from cac_tf.experiments.evaluation import fitted_scores
from cac_tf.experiments.released_weights import data_of_released_weights
from cac_tf.experiments.released_weights import find_released_weights
from cac_tf.experiments.released_weights import import_weights
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.metrics import accuracy
from cac_tf.metrics import aupr
from cac_tf.metrics import auroc
from cac_tf.metrics import bhattacharyya
from cac_tf.metrics import fpr_at_tpr
from cac_tf.models.saving import load_model

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
_FILL_MEASURES = flags.DEFINE_bool(
    "fill_measures",
    False,
    "Also measure again the scores that lack FPR at 95 % TPR or AUPR.",
)
# What is kept of each score besides the AUROC.
MEASURES = ("fpr_at_95_tpr", "aupr_known", "aupr_unknown")
_TWO_VIEWS = ", tta"
# Every training image.
_BANK = 60_000
# Numbers of bins of Table 2's histograms; the paper does not state its own.
_BINS = (5, 10, 20, 30, 50, 100, 200, 500, 1000)


def imported(path, dataset, folder, trial=0):
    """The released model of a data set, and the data set."""
    options = data_of_released_weights(dataset, trial)
    _, model = import_weights(path, options, folder)
    return load_model(model), load_open_set_dataset(options)


def score_rules():
    """The scores that are compared with gamma, not fitted."""
    return [
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
        scores.KNN(1, _BANK, name="knn, k = 1"),
        scores.KNN(50, _BANK, name="knn, k = 50"),
        scores.NNGuide(10, _BANK),
    ]


def fitted(model, dataset, names=None):
    """The model around its class means, and the scores, fitted.

    Args:
        model: the imported model.
        dataset: the data set.
        names: names of the scores; None for every one.
    """
    model = open_set_classifier(
        model.classifier, dataset, "gamma", magnitude=model.magnitude or 10.0
    )
    rules = [one for one in score_rules() if names is None or one.name in names]
    return model, fitted_scores(model, dataset, rules)


def measure(model, rules, dataset, tta):
    """What is kept of one test set: a column of the table.

    Args:
        model, rules: of `fitted`.
        dataset: the data set.
        tta: None or "flip".

    Returns:
        Dict of "measured": AUROC by the names of the scores, with "accuracy"
        by the largest logit, "accuracy, gamma" by the smallest gamma, "gamma,
        anchors" and the share of known images that the threshold accepts; of
        each of `MEASURES` by the names of the scores; of the microseconds per
        image; and of the Bhattacharyya coefficients of the distances to the
        closest class mean, by the number of bins (Table 2).
    """
    model = model.with_score("gamma", tta=tta)
    model.calibrate(dataset.validation.images, true_positive_rate=0.95)
    evaluation = evaluate(model, dataset, scores=rules)
    metrics = evaluation.metrics
    is_known = evaluation.is_known
    by_score = metrics["scores"]
    gamma = np.asarray(rejection_scores(anchored_distances(evaluation.logits)))
    gamma = gamma.min(axis=1)
    by_score["gamma, anchors"] = measures(gamma[is_known], gamma[~is_known])
    column = {
        key: {name: by[key] for name, by in by_score.items()}
        for key in ("auroc", *MEASURES)
    }
    distances = evaluation.min_distance
    return {
        "measured": {
            **column.pop("auroc"),
            "true_positive_rate": metrics["true_positive_rate"],
            "accuracy, gamma": by_score["gamma"]["accuracy"],
            "accuracy": accuracy(
                evaluation.labels[is_known],
                evaluation.logits[is_known].argmax(axis=1),
            ),
        },
        **column,
        "microseconds_per_image": metrics["microseconds_per_image"],
        "bhattacharyya": {
            str(bins): bhattacharyya(
                distances[is_known], distances[~is_known], bins
            )
            for bins in _BINS
        },
    }


def measures(known, unknown):
    """AUROC and `MEASURES` of the unknown scores of two kinds of images."""
    return {
        "auroc": auroc(known, unknown),
        "fpr_at_95_tpr": fpr_at_tpr(known, unknown),
        "aupr_known": aupr(known, unknown, "known"),
        "aupr_unknown": aupr(known, unknown, "unknown"),
    }


def missing_scores(kept, name, fills_measures=False):
    """Names of the scores that a run lacks, by column.

    Args:
        kept: the columns that the run has, by name.
        name: of the set whose weights are read.
        fills_measures: whether a score that lacks one of `MEASURES` counts.

    Returns:
        Dict of the columns that lack scores: the set of the names.
    """
    wanted = {"gamma", "gamma, anchors", *(one.name for one in score_rules())}
    # Digits change their classes when they are mirrored.
    views = ("",) if name == "mnist" else ("", _TWO_VIEWS)
    kinds = ("measured", *MEASURES) if fills_measures else ("measured",)
    missing = {}
    for column in (d + view for d in DATASETS[name] for view in views):
        have = [set(kept.get(column, {}).get(kind, ())) for kind in kinds]
        names = wanted - set.intersection(*have)
        if names:
            missing[column] = names
    return missing


def with_column(kept, found):
    """A column that was kept, with what it lacked from a measured one."""
    return {kind: found[kind] | kept.get(kind, {}) for kind in found}


def measured_columns(name, training, trial, missing):
    """What is measured of one checkpoint, by column.

    Args:
        name: of the set whose weights are read.
        training: one of `TRAININGS`.
        trial: number of the trial.
        missing: of `missing_scores`.

    Raises:
        ValueError: the folder does not have it.
    """
    path = find_released_weights(_WEIGHTS.value, name, training, trial)
    with tempfile.TemporaryDirectory() as folder:
        model, dataset = imported(path, name, folder, trial)
    model, rules = fitted(model, dataset, set.union(*missing.values()))
    columns = {}
    for column, names in missing.items():
        dataset_name = column.removesuffix(_TWO_VIEWS)
        if dataset_name != name:
            options = data_of_released_weights(dataset_name, trial)
            dataset = load_open_set_dataset(options)
        columns[column] = measure(
            model,
            [one for one in rules if one.name in names],
            dataset,
            "flip" if column.endswith(_TWO_VIEWS) else None,
        )
    return columns


def main(argv):
    """Measures what is missing and writes, one checkpoint after another."""
    del argv
    result = {"runs": {}}
    if RESULT.exists():
        result = json.loads(RESULT.read_text(encoding="utf-8"))
    for trial in _TRIALS.value:
        for training in TRAININGS:
            for name in DATASETS:
                key = f"{name} {training} {trial}"
                run = result["runs"].get(key)
                # Nobody can have the code of a changed tree again.
                if run and run["environment"]["commit"].endswith("-dirty"):
                    run = None
                kept = run["columns"] if run else {}
                missing = missing_scores(kept, name, _FILL_MEASURES.value)
                if not missing:
                    continue
                try:
                    columns = measured_columns(
                        name, training, int(trial), missing
                    )
                except ValueError as error:
                    print(f"{key}: {error}", flush=True)
                    continue
                if run is None:
                    run = {
                        "training": training,
                        "trial": int(trial),
                        "columns": kept,
                        "environment": environment(),
                    }
                else:
                    run.setdefault("filled", []).append(
                        {
                            "columns": {
                                column: sorted(names)
                                for column, names in missing.items()
                            },
                            "environment": environment(),
                        }
                    )
                for column, found in columns.items():
                    kept[column] = with_column(kept.get(column, {}), found)
                result["runs"][key] = run
                atomic_files.write_json(RESULT, result)
                print(key, flush=True)


if __name__ == "__main__":
    flags.mark_flag_as_required("weights")
    app.run(main)
