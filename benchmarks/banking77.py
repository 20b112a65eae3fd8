# SPDX-License-Identifier: Apache-2.0
"""Out-of-scope intents of BANKING77 as sentence vectors, a share of them known.

    python benchmarks/banking77.py FOLDER --output_dir=RUNS

FOLDER has banking77.csv (columns split, label, text; CC BY 4.0) and
banking77_minilm.npy, the all-MiniLM-L6-v2 vectors of its rows. Of 25, 50 and
75 % of the classes it prints and runs one `cac-benchmark` command over five
draws, whose threshold is set without unknown data: for the share of unknown
classes that the task states, by leaving known classes out (`--maximize`). Then
the same models with a threshold that accepts 95 % of the known validation
sentences, and two baselines on the same vectors with such a threshold. Writes
benchmarks/results/banking77.json. What is finished in RUNS is not run again.
"""

import argparse
import pathlib
import shlex
import subprocess
import sys

import numpy as np
import sklearn.linear_model
import sklearn.neighbors

from cac_tf import atomic_files
from cac_tf import load_model
from cac_tf import metrics
from cac_tf.data import load_open_set_dataset
from cac_tf.decision.calibration import threshold_for_true_positive_rate
from cac_tf.experiments.environment import environment
from cac_tf.experiments.results_csv import read_results
from cac_tf.labels import UNKNOWN

RESULT = pathlib.Path(__file__).parent / "results" / "banking77.json"
SHARES, TRIALS = (0.25, 0.5, 0.75), range(5)
METHODS = ("cac", "cross_entropy")
RATE = 0.95
# Macro-F1 over K + 1 classes by BERT, fine-tuned; means of ten seeds, as
# TEXTOIR publishes them.
PUBLISHED = {
    "DA-ADB": (0.737, 0.826, 0.857),
    "ADB": (0.721, 0.813, 0.861),
    "DOC": (0.657, 0.782, 0.838),
    "DeepUnk": (0.656, 0.754, 0.811),
}


def data_of(folder, share, trial):
    """The options of the data, and the data."""
    options = {
        "labels": str(folder / "banking77.csv"),
        "label_column": "label",
        "split_column": "split",
        "known_share": share,
    }
    path = str(folder / "banking77_minilm.npy")
    return options, load_open_set_dataset(path, trial=trial, **options)


def command_for(folder, share, score, output_dir):
    """The command of all draws and methods of one share."""
    options = {
        "labels": folder / "banking77.csv",
        "label_column": "label",
        "split_column": "split",
        "known_share": share,
        "score": score,
        "maximize": "macro_f1",
        "unknown_share": 1 - share,
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    return [
        "cac-benchmark",
        f"--datasets={folder / 'banking77_minilm.npy'}",
        f"--methods={','.join(METHODS)}",
        f"--trials={','.join(map(str, TRIALS))}",
        f"--output_dir={output_dir}",
        f"--train_flags={shlex.join(flags)}",
    ]


def measured(scores, class_ids, dataset, threshold):
    """AUROC and macro-F1 of known test inputs, followed by unknown ones."""
    known = dataset.known_test.size
    truth = np.r_[
        dataset.known_test.labels, np.full(dataset.unknown_test.size, UNKNOWN)
    ]
    decided = np.where(scores <= threshold, class_ids, UNKNOWN)
    return {
        "auroc": metrics.auroc(scores[:known], scores[known:]),
        "macro_f1": metrics.macro_f1(truth, decided, len(dataset.class_names)),
        "known_accepted": float(np.mean(scores[:known] <= threshold)),
    }


def test_inputs(dataset):
    return np.concatenate(
        [dataset.known_test.images, dataset.unknown_test.images]
    )


def at_the_rate(path, dataset):
    """A trained model, with a threshold for a true-positive rate."""
    model = load_model(path)
    threshold = model.calibrate(
        dataset.validation.images, true_positive_rate=RATE
    )
    found = model.predict_scores(test_inputs(dataset))
    return measured(
        found.unknown_score, found.predicted_class_id, dataset, threshold
    )


def baselines(dataset):
    """Logistic regression's largest probability; the nearest neighbour."""
    x, y = dataset.train.images, dataset.train.labels
    parts = (dataset.validation.images, test_inputs(dataset))
    regression = sklearn.linear_model.LogisticRegression(max_iter=2000)
    regression.fit(x, y)
    neighbor = sklearn.neighbors.KNeighborsClassifier(1).fit(x, y)
    found = {}
    for name, model, score in (
        (
            "logistic regression, largest probability",
            regression,
            lambda part: -regression.predict_proba(part).max(axis=1),
        ),
        (
            "distance to the nearest training vector",
            neighbor,
            lambda part: neighbor.kneighbors(part)[0][:, 0],
        ),
    ):
        validation, test = map(score, parts)
        threshold = threshold_for_true_positive_rate(validation, RATE)
        found[name] = measured(
            test, model.predict(parts[1]), dataset, threshold
        )
    return found


def means(runs):
    """Mean and standard deviation over the draws, by measure."""
    return {
        name: {
            "mean": round(float(np.mean([run[name] for run in runs])), 4),
            "std": round(float(np.std([run[name] for run in runs], ddof=1)), 4),
            "draws": [round(run[name], 4) for run in runs],
        }
        for name in runs[0]
    }


def main():
    """Runs the commands and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--score", default="relative_mahalanobis")
    given = parser.parse_args()
    result = {
        "environment": environment(),
        "score": given.score,
        "published": PUBLISHED,
        "shares": {},
    }
    for share in SHARES:
        command = command_for(
            given.folder, share, given.score, given.output_dir
        )
        print(shlex.join(command), flush=True)
        subprocess.run(
            [sys.executable, "-m", "cac_tf.train.cac_benchmark", *command[1:]],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        family = f"share{share:g}"
        rows = [
            row
            for row in read_results(given.output_dir / "results.csv")
            if row["split_family"] == family and row["score"] == given.score
        ]
        own = {}
        for method in METHODS:
            trials = sorted(
                (row for row in rows if row["method"] == method),
                key=lambda row: row["trial"],
            )
            own[method] = means(
                [
                    {n: row[n] for n in ("auroc", "accuracy", "macro_f1")}
                    for row in trials
                ]
            )
        datasets = [data_of(given.folder, share, t)[1] for t in TRIALS]
        for method in METHODS:
            folder = given.output_dir / family / "banking77_minilm.npy" / method
            own[f"{method}, {RATE:.0%} of known accepted"] = means(
                [
                    at_the_rate(
                        folder / f"trial{trial}" / "model.keras", dataset
                    )
                    for trial, dataset in enumerate(datasets)
                ]
            )
        others = [baselines(dataset) for dataset in datasets]
        for name in others[0]:
            own[f"{name}, {RATE:.0%} of known accepted"] = means(
                [one[name] for one in others]
            )
        result["shares"][str(share)] = own
        atomic_files.write_json(RESULT, result)
        for name, found in own.items():
            print(share, name, {n: one["mean"] for n, one in found.items()})


if __name__ == "__main__":
    main()
