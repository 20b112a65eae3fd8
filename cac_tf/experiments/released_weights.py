# SPDX-License-Identifier: Apache-2.0
"""The weights that the paper's authors released, as runs of their own."""

import contextlib
import itertools
import os
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from cac_tf import data
from cac_tf import layers
from cac_tf import methods
from cac_tf import models
from cac_tf.annotations import Path
from cac_tf.data.channel_statistics import channel_statistics
from cac_tf.data.class_splits import SPLIT_NAMES
from cac_tf.experiments.evaluate_saved import file_sha256
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import data_summary

# The authors' files are called <set>_<trial>_<training>.pth, and their sets as
# in the class splits, of which only scikit-learn's digits are not theirs.
_SETS = {
    name: theirs for name, theirs in SPLIT_NAMES.items() if name != "digits"
}
_TRAININGS = {
    "cac": "CACclassifierAnchorLoss",
    "cross_entropy": "closedSetClassifier",
}
# Weights for other classes are right about as often as by chance.
_LOWEST_ACCURACY = 0.5
_IMAGES_TO_CHECK = 1000


def find_released_weights(
    folder: Path, dataset: str, method: str, trial: int
) -> str:
    """The file with the weights of one trial of the authors' release.

    The files may lie in sub-folders of `folder`.

    Raises:
        ValueError: there are no weights of this data set or method, or the
            folder does not hold the file.
    """
    for kind, name, there in (
        ("data sets", dataset, _SETS),
        ("methods", method, _TRAININGS),
    ):
        if name not in there:
            raise ValueError(
                f"The authors released weights of the {kind} "
                f"{', '.join(there)}, but not of {name}."
            )
    file = f"{_SETS[dataset]}_{trial}_{_TRAININGS[method]}.pth"
    found = sorted(pathlib.Path(folder).rglob(file))
    if not found:
        raise ValueError(f"{file} not found in {folder}.")
    return str(found[0])


def parts_with_released_weights(
    folder: Path,
    datasets: Sequence[str],
    methods: Sequence[str],
    trials: Sequence[int],
) -> tuple[list[str], list[str]]:
    """Those data sets and methods of which a folder has any weights."""
    found = []
    for dataset, method, trial in itertools.product(datasets, methods, trials):
        with contextlib.suppress(ValueError):
            find_released_weights(folder, dataset, method, trial)
            found.append((dataset, method))
    return (
        [name for name in datasets if name in {d for d, _ in found}],
        [name for name in methods if name in {m for _, m in found}],
    )


def data_of_released_weights(dataset: str, trial: int) -> data.DataOptions:
    """The data that a trial's weights belong to.

    The images that the weights were trained on, and no others: of the sets
    whose validation images the authors' code drew, those.
    """
    has_authors_split = dataset in ("cifar10", "cifar+10", "cifar+50")
    return data.DataOptions(
        dataset,
        split_family="miller2020",
        trial=trial,
        validation_split="authors" if has_authors_split else None,
    )


def import_weights(
    checkpoint: Path,
    options: data.DataOptions,
    output_dir: Path,
    *,
    statistics: Any = None,
    overwrite: bool = False,
    tell: Callable[..., None] | None = None,
) -> tuple[str, str]:
    """Makes a `model.keras` from a checkpoint; what `cac-import-weights` does.

    The model keeps its anchors and has no threshold.

    Args:
        checkpoint: the .pth file.
        options: the data that the weights belong to.
        output_dir: folder of the model.
        statistics: mean and std of the normalization that the weights were
            trained with, one number per channel each. None: as the authors
            computed it, over all training images of the known classes before
            they are resized.
        overwrite: whether what an earlier run left there is deleted.
        tell: as in `train`.

    Returns:
        The name of the method, and the path of the model.

    Raises:
        RunFolderError: the folder holds something else.
        ValueError: a file that is no such checkpoint, or one of other classes.
    """
    # The data may take long, so the files are looked at before.
    RunFolder(os.fspath(output_dir)).holds_a_run()
    models.read_authors_weights(checkpoint)
    dataset = data.load_open_set_dataset(options)
    for note in dataset.notes:
        if tell is not None:
            tell("note", note)
    recipe = methods.Recipe(
        **{
            name: value
            for name, value in methods.preset(dataset.name).items()
            if name in ("dropout", "scale", "flip", "rotation")
        }
    )
    mean, std = statistics or _statistics(options, dataset)
    model = models.import_authors_weights(
        checkpoint,
        dataset.class_names,
        dataset.image_shape,
        mean,
        std,
        layers.AffineAugmentation(recipe.scale, recipe.flip, recipe.rotation),
        recipe.dropout,
    )
    method = "cac" if model.score.name == "gamma" else "cross_entropy"
    _check_accuracy(model, dataset, checkpoint)
    settings = {
        "data": options.in_force,
        "method": method,
        "score": model.score.name,
        "checkpoint": os.path.basename(checkpoint),
        "checkpoint_sha256": file_sha256(checkpoint),
        "normalization": {"mean": list(mean), "std": list(std)},
    }
    with RunFolder.open(
        output_dir, settings, data_summary(dataset), overwrite
    ) as folder:
        path = folder.file("model.keras")
        model.save(path)
    return method, path


def _statistics(options, dataset):
    """Mean and std of the data."""
    name = options.dataset
    if name in data.BENCHMARK_SETS and options.image_size is None:
        images = data.BenchmarkImages(name, options.data_dir)
        return images.source_statistics(dataset.class_ids)
    return channel_statistics(
        np.concatenate([dataset.train.images[:], dataset.validation.images[:]])
    )


def _check_accuracy(model, dataset, checkpoint):
    rows = np.random.default_rng(0).permutation(dataset.validation.size)
    images, labels = dataset.validation.take(rows[:_IMAGES_TO_CHECK])
    accuracy = np.mean(
        model.predict_scores(images).predicted_class_id == labels
    )
    if accuracy < _LOWEST_ACCURACY:
        raise ValueError(
            f"{checkpoint} classifies {accuracy:.0%} of the validation images "
            f"of {', '.join(dataset.class_names)} correctly: it belongs to a "
            "different data set, split family or trial. (The released "
            "weights belong to the split family miller2020.)"
        )
