# SPDX-License-Identifier: Apache-2.0
"""cac-import-weights: makes a model.keras of weights the authors released.

Example: cac-import-weights --checkpoint=CIFAR10_0_CACclassifierAnchorLoss.pth
--dataset=cifar10 --split_family=miller2020 --trial=0 --output_dir=runs/released

The released weights (github.com/dimitymiller/cac-openset) belong to the splits
of miller2020. The model keeps its anchors; cac-evaluate --recentre puts class
means in their place, calibrates and evaluates. Needs PyTorch.
"""

import os

import numpy as np
from absl import flags

from cac_tf import methods
from cac_tf.data import BENCHMARK_SETS
from cac_tf.data.benchmark_sets import BenchmarkImages
from cac_tf.layers import AffineAugmentation
from cac_tf.layers.image_preprocessing import channel_statistics
from cac_tf.models.authors_weights import import_authors_weights
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import data_summary
from cac_tf.train import command_line


def define_flags(values):
    """Defines the flags of `cac-import-weights`."""
    command_line.define_data_flags(values)
    flags.DEFINE_string(
        "checkpoint", None, "The .pth file.", flag_values=values
    )
    flags.DEFINE_string(
        "output_dir", None, "Folder for the model.", flag_values=values
    )
    for name in ("mean", "std"):
        flags.DEFINE_list(
            name,
            None,
            "Normalisation that the weights were trained with, one number a "
            "channel, on the scale of [0, 1]. Default: as the authors took "
            "it, of all training images of the known classes before they are "
            "resized.",
            flag_values=values,
        )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Delete what an earlier run left in --output_dir.",
        flag_values=values,
    )
    flags.mark_flags_as_required(
        ["checkpoint", "dataset", "output_dir"], flag_values=values
    )


def _statistics(values, dataset):
    """Mean and std, of the flags or of the data."""
    given = [values.mean, values.std]
    if (values.mean is None) != (values.std is None):
        raise ValueError("Give both --mean and --std, or neither.")
    if values.mean is not None:
        try:
            return [[float(number) for number in texts] for texts in given]
        except ValueError as error:
            raise ValueError(
                f"--mean and --std must be numbers: {error}"
            ) from error
    if values.dataset in BENCHMARK_SETS and values.image_size is None:
        images = BenchmarkImages(values.dataset, values.data_dir)
        return images.source_statistics(dataset.class_ids)
    return channel_statistics(
        np.concatenate([dataset.train.images[:], dataset.validation.images[:]])
    )


# Weights of other classes are right about as often as chance.
_LOWEST_ACCURACY = 0.5
_IMAGES_TO_CHECK = 1000


def _check_accuracy(model, dataset, checkpoint):
    rows = np.random.default_rng(0).permutation(dataset.validation.size)
    images, labels = dataset.validation.take(rows[:_IMAGES_TO_CHECK])
    accuracy = np.mean(model.predict_scores(images).nearest_class_id == labels)
    if accuracy < _LOWEST_ACCURACY:
        raise ValueError(
            f"{checkpoint} classifies {accuracy:.0%} of the validation images "
            f"of {', '.join(dataset.class_names)} correctly: it belongs to "
            "another data set, split family or trial. (The released weights "
            "belong to --split_family=miller2020.)"
        )


def main(values):
    """Reads checkpoint and data, writes the model."""
    data_settings = command_line.data_settings(values)
    dataset = command_line.load_dataset(data_settings)
    recipe = methods.Recipe(
        **{
            name: value
            for name, value in methods.preset(values.dataset).items()
            if name in ("dropout", "scale", "flip", "rotation")
        }
    )
    mean, std = _statistics(values, dataset)
    model = import_authors_weights(
        values.checkpoint,
        dataset.class_names,
        dataset.image_shape,
        mean,
        std,
        AffineAugmentation(recipe.scale, recipe.flip, recipe.rotation),
        recipe.dropout,
    )
    method = "cac" if model.score.name == "gamma" else "cross_entropy"
    _check_accuracy(model, dataset, values.checkpoint)
    folder = RunFolder.open(
        values.output_dir,
        {
            **data_settings,
            "method": method,
            "score": model.score.name,
            "checkpoint": os.path.basename(values.checkpoint),
            "checkpoint_sha256": command_line.file_sha256(values.checkpoint),
            "normalisation": {"mean": list(mean), "std": list(std)},
        },
        data_summary(dataset),
        values.overwrite,
    )
    path = folder.file("model.keras")
    model.save(path)
    print(f"Model ({method}): {path}")
    print(f"Next: cac-evaluate --model={path} --recentre --output_dir=...")


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__)


if __name__ == "__main__":
    run()
