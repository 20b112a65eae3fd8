# SPDX-License-Identifier: Apache-2.0
r"""The paper's Figure 1 on real photographs, by `cac-train`.

    CAC_TF_IMAGES_DIR=... python benchmarks/vehicles_animals.py \
        [--seed=1 --output_dir=runs/vehicles_animals_1 ...]

Known: train, bus, bicycle; unknown and never seen in training: bear, possum
(CIFAR-100 images, 500 per class for training, 100 per class for testing). The
archive cifar100_vehicles_animals.tar is unpacked to a temporary folder; the
run goes to runs/vehicles_animals, and its numbers and settings to
benchmarks/results/vehicles_animals_seed<seed>.json.
"""

import os
import pathlib
import sys
import tarfile
import tempfile

from absl import flags
from keep_run import keep

from cac_tf import atomic_files
from cac_tf.train import cac_train

ROOT = pathlib.Path(__file__).parent.parent
KNOWN = "train,bus,bicycle"


def main(arguments):
    """Trains one seed and keeps its numbers."""
    archive = (
        pathlib.Path(os.environ["CAC_TF_IMAGES_DIR"])
        / "cifar100_vehicles_animals.tar"
    )
    # A fixed path: the folder is part of a run's configuration.
    folder = pathlib.Path(tempfile.gettempdir()) / "vehicles_animals"
    if not folder.exists():
        with (
            tarfile.open(archive) as tar,
            atomic_files.new_folder(folder) as temporary,
        ):
            tar.extractall(temporary, filter="data")
    values = flags.FlagValues()
    cac_train.define_flags(values)
    values(
        [
            "cac-train",
            "--dataset=folder",
            f"--data_dir={folder}",
            f"--known_classes={KNOWN}",
            # 1,500 images are few: 150 of them are enough to calibrate on.
            "--validation_fraction=0.1",
            f"--output_dir={ROOT / 'runs' / 'vehicles_animals'}",
            *arguments,
        ]
    )
    cac_train.main(values)
    keep(values.output_dir, f"vehicles_animals_seed{values.seed}")


if __name__ == "__main__":
    main(sys.argv[1:])
