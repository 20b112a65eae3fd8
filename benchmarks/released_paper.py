# SPDX-License-Identifier: Apache-2.0
"""The paper's tables and figures from the authors' released weights.

    TFDS_DATA_DIR=... python benchmarks/released_paper.py networks/weights

What `cac-benchmark --released_weights` prints and draws: Tables 2 and 4 and
Figures 2 and 3, by the weights of all five trials, on the data sets whose
images were here. The weights are those of github.com/dimitymiller/cac-openset.
Needs PyTorch. Resumes after an interruption, by the same command. Tables,
figures and results.csv go to benchmarks/results/released_paper.
"""

import sys

from digits_paper import ROOT
from digits_paper import run

DATASETS = ("mnist", "cifar10", "cifar+10", "cifar+50")
SHOWN = ("--figure=3", "--figure=2", "--table=2", "--table=4")


def main(weights):
    """Evaluates all trials, then draws and writes each of `SHOWN`."""
    for one in SHOWN:
        run(
            [
                one,
                f"--datasets={','.join(DATASETS)}",
                "--trials=0,1,2,3,4",
                f"--released_weights={weights}",
            ],
            ROOT / "runs" / "released_paper",
            ROOT / "benchmarks" / "results" / "released_paper",
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
