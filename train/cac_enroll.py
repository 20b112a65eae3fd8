# SPDX-License-Identifier: Apache-2.0
"""cac-enroll: changes the classes of a saved model, without training.

Example: cac-enroll --model=runs/photos --add=lynx:photos/lynx --output_dir=v2

Inputs are given as for cac-predict: a folder of photos, a file with many
inputs, or a pattern. It first reports which decisions on the run's known inputs
change, then writes model.keras into --output_dir. The model in --model is not
modified, so both can be served side by side. --remove, --merge and --rename
change classes that were enrolled before.
"""

from cac_tf import batch
from cac_tf import experiments
from cac_tf import models
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet
from cac_tf.train import terminal

_CHANGES = ("add", "remove", "merge", "rename")


def define_flags(values):
    """Defines the flags of `cac-enroll`."""
    command_line.define_model_flag(values)
    for name, help_ in {
        "add": "A new class and a path to examples of it, NAME:PATH.",
        "remove": "An enrolled class to remove.",
        "merge": "Enrolled classes to merge into one, NEW:ONE,OTHER.",
        "rename": "An enrolled class and its new name, NAME:NEW.",
    }.items():
        flag_kinds.define_repeated(values, name, help_)
    flag_kinds.define_text(
        values, "output_dir", None, "Folder to create for the new model."
    )
    flag_kinds.define_number(
        values,
        "true_positive_rate",
        None,
        "Give each new class its own threshold, set to accept this fraction "
        "of the class, based on its examples. Default: they use the model's "
        "threshold.",
    )
    flag_kinds.define_switch(
        values,
        "accept_known",
        False,
        "Also enroll examples that the model already accepts as known classes.",
    )
    flag_kinds.define_text(
        values,
        "known",
        None,
        "Known inputs to compare decisions on before and after. Default: the "
        "validation and test parts of the run.",
    )
    flag_kinds.define_text(
        values,
        "image_column",
        None,
        "Column, field or feature with the inputs, as for cac-predict.",
    )
    flag_kinds.define_switch(
        values,
        "dry_run",
        False,
        "Show what would change, but write nothing.",
    )


def main(values):
    """Reads examples and model, compares, writes the new model."""
    if not any(values[name].value for name in _CHANGES):
        raise ValueError(
            f"Specify what to change: --{', --'.join(_CHANGES[:-1])} or "
            f"--{_CHANGES[-1]}."
        )
    if values.output_dir is None and not values.dry_run:
        raise ValueError("Specify a folder for the new model: --output_dir=...")
    if not values.add:
        for name in ("true_positive_rate", "accept_known"):
            if values[name].present:
                raise ValueError(f"--{name} has no effect without --add.")
        if values["image_column"].present and values.known is None:
            raise ValueError(
                "--image_column has no effect without --add or --known."
            )
    paths = _pairs(values.add, "add", "NAME:PATH")
    merged = {
        new: [name for one in names for name in one.split(",")]
        for new, names in _pairs(values.merge, "merge", "NEW:A,B").items()
    }
    renamed = _pairs(values.rename, "rename", "NAME:NEW")
    for name, new in renamed.items():
        if len(new) > 1:
            raise ValueError(
                f"--rename gives {name!r} two names: {', '.join(new)}."
            )
    path = command_line.model_file(values)
    quiet.load("keras")
    model = models.load_model(path)

    def read(inputs):
        with quiet.without_lines_of_libraries():
            return batch.inputs_in(inputs, model, path, values.image_column)

    config = experiments.EnrollingConfig(
        remove=tuple(values.remove),
        merge=merged,
        add={name: read(inputs) for name, inputs in paths.items()},
        rename={name: new for name, (new,) in renamed.items()},
        true_positive_rate=values.true_positive_rate,
        accept_known=values.accept_known,
    )
    changed = experiments.enroll_saved(
        model,
        path,
        config,
        values.output_dir,
        known=None if values.known is None else read([values.known]),
        dry_run=values.dry_run,
        tell=terminal.say,
    )
    if values.dry_run:
        terminal.say("Nothing was written.")
        return
    predict = terminal.command("cac-predict", f"--model={values.output_dir}")
    terminal.say(
        f"Version {changed.version}, {len(changed.class_names)} classes: "
        f"{values.output_dir}/model.keras",
        f"Next: {predict} ...",
    )


def _pairs(texts, flag, form):
    """Dict from what stands before the first colon to lists of the rest."""
    found = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        if not (name and colon and rest):
            raise ValueError(f"--{flag} must be {form}; got {text!r}.")
        found.setdefault(name, []).append(rest)
    return found


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__)


if __name__ == "__main__":
    run()
