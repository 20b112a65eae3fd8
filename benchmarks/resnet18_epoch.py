# SPDX-License-Identifier: Apache-2.0
"""One epoch of ResNet-18, as in Table 3, on 3,200 training images.

    TFDS_DATA_DIR=... python benchmarks/resnet18_epoch.py

Every tenth image of CIFAR10 against CIFAR100 (a fifth of those to train on is
for validation) by the data set's recipe with one epoch: two to ten minutes on
two CPU cores. All images would take twelve times as long, and the recipe has
200 epochs. It shows that the way works, from training to the rates of
Table 3, and nothing about CAC. Writes benchmarks/results/resnet18_epoch.json.
"""

import pathlib
import tempfile

import numpy as np
from keep_run import keep

from cac_tf import data
from cac_tf import experiments
from cac_tf import methods

_DATASET = "cifar10_vs_cifar100"
_SHARE = 10


def tenth(folder):
    """Path of an .npz file with a tenth of the images."""
    whole = data.load_open_set_dataset(_DATASET)
    path = pathlib.Path(folder) / "tenth.npz"
    tests = (whole.known_test, whole.unknown_test)
    # As classes, for the loader: all unknown ones are one.
    labels = (tests[0].labels, np.full(tests[1].size, len(whole.class_names)))
    np.savez(
        path,
        x_train=whole.train.images[::_SHARE],
        y_train=whole.train.labels[::_SHARE],
        x_test=np.concatenate([part.images[::_SHARE] for part in tests]),
        y_test=np.concatenate([part[::_SHARE] for part in labels]),
        class_names=[*whole.class_names, "cifar100"],
        known_classes=whole.class_names,
    )
    return str(path)


def main():
    """Trains and writes the numbers."""
    recipe = methods.preset(_DATASET) | {"epochs": 1, "second_stage_epochs": 0}
    del recipe["second_stage_learning_rate"]
    with tempfile.TemporaryDirectory() as folder:
        config = experiments.ExperimentConfig(
            {"dataset": tenth(folder)},
            recipe=recipe,
            scores=("gamma", "max_logit"),
            precision="mixed_bfloat16",
        )
        run = pathlib.Path(folder) / "run"
        experiments.train(config, run)
        keep(run, "resnet18_epoch")


if __name__ == "__main__":
    main()
