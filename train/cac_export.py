# SPDX-License-Identifier: Apache-2.0
"""cac-export: writes a saved open-set classifier for TF Serving.

Example: cac-export --model=runs/digits/model.keras --output_dir=serving/digits

Writes the SavedModel into --output_dir/<version>.
"""

from absl import flags

from cac_tf.export import write_model_folder
from cac_tf.models import load_model
from cac_tf.train import command_line


def define_flags(values):
    """Defines the flags of `cac-export`."""
    flags.DEFINE_string("model", None, "The .keras file.", flag_values=values)
    flags.DEFINE_string(
        "output_dir",
        None,
        "The model's folder, which TF Serving polls.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "version",
        1,
        "Number of the version's folder; an existing one is never overwritten.",
        flag_values=values,
    )
    flags.mark_flags_as_required(["model", "output_dir"], flag_values=values)


def main(values):
    """Loads the model and exports it."""
    path = write_model_folder(
        load_model(values.model), values.output_dir, values.version
    )
    print(f"SavedModel: {path}")


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__)


if __name__ == "__main__":
    run()
