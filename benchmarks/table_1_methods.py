# SPDX-License-Identifier: Apache-2.0
"""The methods of Table 1 on the digits: AUROC, time and memory of each.

    python benchmarks/table_1_methods.py

Five `neal` trials, seed 0, each training in a process of its own. The numbers
of each go to benchmarks/results/table_1_digits as soon as it ends; the same
command goes on after an interruption. docs/methods.md has the table. Its times
are CPU seconds, summed over the cores, which other work on the machine changes
little.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from cac_tf import atomic_files
from cac_tf.experiments.run_folder import read_config
from cac_tf.experiments.run_folder import read_metrics

RESULTS = pathlib.Path(__file__).parent / "results" / "table_1_digits"
TRIALS = range(5)
# Each with its flags, and with the scores that are rows of the table.
RUNS = {
    "cac": ([], ("gamma", "max_logit")),
    "cross_entropy": (
        [],
        ("max_softmax", "max_logit", "openmax_log_sum_exp", "openmax"),
    ),
    "one_vs_all": ([], ("max_softmax", "max_logit")),
    "osrci": ([], ("unknown_class", "max_softmax")),
    "g_openmax": ([], ("unknown_class_openmax", "max_softmax")),
    "g_openmax_conditional": (
        ["--generator=conditional"],
        ("unknown_class_openmax", "max_softmax"),
    ),
    "c2ae": ([], ("min_reconstruction_error", "max_softmax")),
    "crosr": ([], ("latent_openmax", "max_softmax")),
    "gfror": ([], ("max_logit", "max_softmax")),
    # No row of Table 1.
    "two_heads": ([], ("two_heads", "gamma", "max_logit")),
}


def train(name, trial, folder):
    """Trains one method on one trial.

    Returns:
        Dict of its numbers: `cpu_seconds` and `seconds` of the whole process,
        its `peak_memory_mib`, `training_seconds`, and `scores`.
    """
    flags, scores = RUNS[name]
    method = name.removesuffix("_conditional")
    command = [
        *(sys.executable, "-m", "cac_tf.train.cac_train", "--dataset=digits"),
        *("--split_family=neal", f"--trial={trial}", f"--method={method}"),
        *(f"--scores={','.join(scores)}", f"--output_dir={folder}", *flags),
    ]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    metrics, config = read_metrics(folder), read_config(folder)
    return {
        "settings": config["settings"],
        "environment": config["environment"],
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "seconds": round(seconds, 1),
        "training_seconds": metrics["seconds"],
        "peak_memory_mib": used.ru_maxrss // 1024,
        "microseconds_per_image": metrics["microseconds_per_image"],
        "scores": {
            score: {
                key: metrics["scores"][score][key]
                for key in ("auroc", "accuracy", "oscr", "fpr_at_95_tpr")
            }
            for score in scores
        },
    }


def main():
    """Trains what is not kept yet."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for trial in TRIALS:
        for name in RUNS:
            path = RESULTS / f"{name}_{trial}.json"
            if path.exists():
                continue
            with tempfile.TemporaryDirectory() as folder:
                result = train(name, trial, os.path.join(folder, "run"))
            atomic_files.write_json(path, result)
            aurocs = {
                score: round(measures["auroc"], 3)
                for score, measures in result["scores"].items()
            }
            print(name, trial, result["seconds"], json.dumps(aurocs))


if __name__ == "__main__":
    main()
