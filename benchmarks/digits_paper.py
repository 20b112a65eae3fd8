# SPDX-License-Identifier: Apache-2.0
"""The paper's tables and figures on scikit-learn's digits.

    python benchmarks/digits_paper.py

What `cac-benchmark` prints and draws for them. Table 3 needs negatives: in it,
trial 0 trains on the images of class 8 as such. Resumes after an interruption,
by the same command. Tables, figures and results.csv go to
benchmarks/results/digits_paper.
"""

import pathlib
import shutil
import sys

from absl import flags

from cac_tf.train import cac_benchmark

ROOT = pathlib.Path(__file__).parent.parent
RUNS = ROOT / "runs" / "digits_paper"
KEPT = ROOT / "benchmarks" / "results" / "digits_paper"

# By the folder of the runs: those with the same settings share it.
COMMANDS = {
    "trials": (
        ["--table=1"],
        ["--table=2"],
        ["--table=4"],
        ["--table=5"],
        ["--figure=2"],
        ["--figure=3"],
        ["--figure=classes"],
    ),
    "negatives": (
        ["--table=3", "--trials=0", "--train_flags=--negative_classes=8"],
    ),
    "sweep": (
        [
            "--sweep=magnitude=1,5,10,20 anchor_weight=0,0.05,0.1,0.5,1",
            "--trials=0",
        ],
    ),
    "convergence": (
        [
            "--figure=convergence",
            "--trials=0,1,2",
            "--train_flags=--schedule=two_stage --until_converged",
        ],
    ),
}


def run(arguments, folder, kept):
    """Runs `cac-benchmark`, and keeps the tables and figures of its folder."""
    values = flags.FlagValues()
    cac_benchmark.define_flags(values)
    values(["cac-benchmark", f"--output_dir={folder}", *arguments])
    cac_benchmark.main(values)
    kept.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.suffix in (".md", ".png", ".csv"):
            shutil.copy(file, kept)


def main(names):
    """Runs the commands of some folders, all by default."""
    for name in names or COMMANDS:
        for arguments in COMMANDS[name]:
            run(["--datasets=digits", *arguments], RUNS / name, KEPT / name)


if __name__ == "__main__":
    main(sys.argv[1:])
