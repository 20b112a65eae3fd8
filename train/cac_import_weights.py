# SPDX-License-Identifier: Apache-2.0
"""cac-import-weights: creates a model.keras from the authors' released weights.

Example: cac-import-weights --checkpoint=CIFAR10_0_CACclassifierAnchorLoss.pth
--dataset=cifar10 --split_family=miller2020 --trial=0 --output_dir=runs/released

The released weights (github.com/dimitymiller/cac-openset) belong to the splits
of miller2020. The model keeps its anchors; cac-evaluate --recenter replaces
them with class means, calibrates and evaluates. Needs PyTorch.
"""

import math

from absl import flags

from cac_tf import experiments
from cac_tf.data import DataOptions
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet
from cac_tf.train import terminal

_FIRST = (
    *("checkpoint", "output_dir", "dataset", "data_dir", "split_family"),
    *("trial", "mean", "std", "overwrite"),
)


def define_flags(values):
    """Defines the flags of `cac-import-weights`."""
    command_line.define_data_flags(values)
    flag_kinds.define_text(
        values,
        "checkpoint",
        None,
        "The .pth file.",
        required=True,
    )
    flag_kinds.define_text(
        values,
        "output_dir",
        None,
        "Folder for the model.",
        required=True,
    )
    for name in ("mean", "std"):
        flag_kinds.define_texts(
            values,
            name,
            None,
            "Normalization that the weights were trained with, one number "
            "per channel, for pixels in [0, 1]. Default: computed as the "
            "authors did, over all training images of the known classes "
            "before resizing.",
        )
    flag_kinds.define_switch(
        values,
        "overwrite",
        False,
        "Delete what an earlier run left in --output_dir.",
    )
    flags.mark_flag_as_required("dataset", flag_values=values)


def _given_statistics(values):
    """Mean and std of the flags, or None."""
    given = [values.mean, values.std]
    if (values.mean is None) != (values.std is None):
        raise ValueError("Give both --mean and --std, or neither.")
    if values.mean is None:
        return None
    return [_numbers(texts) for texts in given]


def _numbers(texts):
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(
            "--mean and --std must be finite numbers separated by commas; got "
            f"{','.join(texts)}."
        )
    return numbers


def main(values):
    """Reads checkpoint and data, writes the model."""
    statistics = _given_statistics(values)
    options = DataOptions.of(command_line.data_settings(values))
    quiet.load("keras")
    method, path = experiments.import_weights(
        values.checkpoint,
        options,
        values.output_dir,
        statistics=statistics,
        overwrite=values.overwrite,
        tell=terminal.tell,
    )
    evaluate = terminal.command("cac-evaluate", f"--model={path}", "--recenter")
    terminal.say(
        f"Model ({method}): {path}", f"Next: {evaluate} --output_dir=..."
    )


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__, first=_FIRST)


if __name__ == "__main__":
    run()
