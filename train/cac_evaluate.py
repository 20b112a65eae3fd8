# SPDX-License-Identifier: Apache-2.0
"""cac-evaluate: evaluates a saved open-set classifier on test data.

Example: cac-evaluate --model=runs/digits/model.keras --output_dir=runs/again

Without --dataset, the data are those that the model was trained on, read
from config.json beside it. Writes metrics.json, scores.npz and report.html;
and model.keras, if what was evaluated is no longer what --model holds.
"""

import os

from absl import flags

from cac_tf import methods
from cac_tf.evaluation import evaluate
from cac_tf.methods.known_data import fit_score
from cac_tf.methods.known_data import fit_to_known_data
from cac_tf.methods.known_data import recentre
from cac_tf.models import load_model
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import data_summary
from cac_tf.run_folder import read_config
from cac_tf.train import command_line


def define_flags(values):
    """Defines the flags of `cac-evaluate`."""
    command_line.define_data_flags(values)
    flags.DEFINE_string("model", None, "The .keras file.", flag_values=values)
    flags.DEFINE_string(
        "output_dir", None, "Folder for the results.", flag_values=values
    )
    flags.DEFINE_bool(
        "recentre",
        False,
        "Take the class means of the training images as centres, as after "
        "training.",
        flag_values=values,
    )
    command_line.define_score_flags(values, "Default: the model's own.")
    flags.DEFINE_float(
        "true_positive_rate",
        None,
        "Calibrate theta anew on the known validation images. Default: the "
        "model's own theta; 0.95 where it has none, or where --recentre, "
        "another --score or other --views made it invalid.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Delete what an earlier run left in --output_dir.",
        flag_values=values,
    )
    flags.mark_flags_as_required(["model", "output_dir"], flag_values=values)


# Where neither the model nor a flag says which theta to use.
_TRUE_POSITIVE_RATE = 0.95


def _data_settings(values, config):
    if values.dataset is not None:
        return command_line.data_settings(values)
    given = [
        f"--{name}" for name in command_line.DATA_FLAGS if values[name].present
    ]
    if given:
        raise ValueError(f"{', '.join(given)} needs --dataset too.")
    if config is None:
        raise ValueError(
            f"There is no run's config.json beside {values.model}, so the "
            "data must be named: pass --dataset."
        )
    return {name: config["settings"][name] for name in command_line.DATA_FLAGS}


def _config_beside(model):
    """The `config.json` of the run that a model belongs to, or None."""
    folder = os.path.dirname(model)
    if not os.path.exists(os.path.join(folder, "config.json")):
        return None
    return read_config(folder)


def main(values):
    """Loads model and data, evaluates, reports."""
    if os.path.realpath(values.output_dir) == os.path.realpath(
        os.path.dirname(values.model)
    ):
        raise ValueError(
            "--output_dir is the folder of the model itself, whose results "
            "would be lost; choose another one."
        )
    model = load_model(values.model)
    config = _config_beside(values.model)
    method = methods.get(config["settings"]["method"] if config else "cac")
    compared = command_line.scores_to_compare(values, method)
    data_settings = _data_settings(values, config)
    dataset = command_line.load_dataset(data_settings)
    # How a model was trained that has no augmentation of ours is not known.
    flip = getattr(model.augmentation, "flip", 1.0)
    methods.check_views(values.views, dataset.name, flip)
    model, is_changed = _prepared(values, model, dataset)
    evaluation = evaluate(model, dataset, method.name, compared)
    folder = RunFolder.open(
        values.output_dir,
        {
            **data_settings,
            "model": values.model,
            "model_sha256": command_line.file_sha256(values.model),
            "method": method.name,
            "recentre": values.recentre,
            "score": model.score.name,
            "views": model.views or "one",
            "scores": list(compared),
            "true_positive_rate": values.true_positive_rate,
        },
        data_summary(dataset),
        overwrite=values.overwrite,
    )
    if is_changed:
        # What was evaluated is what can be shipped.
        model.save(folder.file("model.keras"))
    command_line.write_results(folder, evaluation, dataset, model.centres)


def _prepared(values, model, dataset):
    """The model with the score, views, centres and theta asked for."""
    is_changed = False
    score, views = values.score or model.score.name, model.views
    if values.views is not None:
        views = command_line.views(values.views)
    if score not in (model.score.name, command_line.AUTO):
        model, is_changed = model.with_score(score, views), True
    elif views != model.views:
        model, is_changed = model.with_score(model.score, views), True
    if values.recentre and score == command_line.AUTO:
        recentre(model, dataset)
        is_changed = True
    elif values.recentre:
        fit_to_known_data(model, dataset)
        is_changed = True
    elif not model.score.is_fitted and score != command_line.AUTO:
        fit_score(model, dataset)
    if score == command_line.AUTO:
        model, is_changed = command_line.with_chosen_score(model, dataset), True
    rate = values.true_positive_rate
    if model.threshold is None and rate is None:
        rate = _TRUE_POSITIVE_RATE
    if rate is not None:
        model.calibrate(dataset.validation.images, true_positive_rate=rate)
        is_changed = True
    return model, is_changed


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__)


if __name__ == "__main__":
    run()
