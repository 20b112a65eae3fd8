# SPDX-License-Identifier: Apache-2.0
"""The paper's Figure 1 on real photographs.

    CAC_TF_IMAGES_DIR=... python benchmarks/vehicles_animals.py

Known: train, bus, bicycle; unknown and never seen in training: bear, possum
(CIFAR-100 images, 500 per class for training, 100 per class for testing). The
archive cifar100_vehicles_animals.tar is unpacked to a temporary folder. Trains
by CAC and by cross-entropy, with three seeds each, in runs/vehicles_animals;
resumes after an interruption, by the same command. Numbers and settings go to
benchmarks/results/vehicles_animals_<method>_seed<seed>.json (what is there is
not trained again), and the logit spaces of seed 0 to figure_1.png beside them.
"""

import os
import pathlib
import shutil
import tempfile

import numpy as np
from keep_run import RESULTS
from keep_run import keep

from cac_tf import atomic_files
from cac_tf import experiments
from cac_tf.models.saving import load_model
from cac_tf.reporting.figures import write_png
from cac_tf.reporting.paper_figures import logit_spaces_figure

RUNS = pathlib.Path(__file__).parent.parent / "runs" / "vehicles_animals"
METHODS, SEEDS = ("cac", "cross_entropy"), (0, 1, 2)


def photos():
    """Path of the folder of photographs."""
    archive = (
        pathlib.Path(os.environ["CAC_TF_IMAGES_DIR"])
        / "cifar100_vehicles_animals.tar"
    )
    # A fixed path: the folder is part of a run's configuration.
    folder = pathlib.Path(tempfile.gettempdir()) / "vehicles_animals"
    if not folder.exists():
        with atomic_files.new_folder(folder) as temporary:
            shutil.unpack_archive(archive, temporary)
    return str(folder)


def configuration(method, seed):
    """The `ExperimentConfig` of a run."""
    return experiments.ExperimentConfig(
        {
            "dataset": "folder",
            "data_dir": photos(),
            "known_classes": ["train", "bus", "bicycle"],
            # 1,500 images are few: 150 of them are enough to calibrate on.
            "validation_fraction": 0.1,
        },
        method=method,
        seed=seed,
    )


def logit_space(run):
    """What `reporting.logit_spaces_figure` draws of a finished run."""
    model = load_model(run / "model.keras")
    with np.load(run / "scores.npz") as arrays:
        return {
            **arrays,
            "class_names": model.class_names,
            "centers": model.centers,
        }


def main():
    """Trains what is not kept yet, and draws what was trained here."""
    for seed in SEEDS:
        for method in METHODS:
            name = f"{method}_seed{seed}"
            kept = f"vehicles_animals_{name}"
            if (RESULTS / f"{kept}.json").exists():
                continue
            experiments.train(configuration(method, seed), RUNS / name)
            keep(RUNS / name, kept)
            print(name, flush=True)
    drawn = {method: RUNS / f"{method}_seed0" for method in METHODS}
    if all((run / "scores.npz").exists() for run in drawn.values()):
        figure = logit_spaces_figure(
            {method: logit_space(run) for method, run in drawn.items()}
        )
        write_png(str(RESULTS / "figure_1.png"), figure)


if __name__ == "__main__":
    main()
