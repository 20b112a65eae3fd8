# SPDX-License-Identifier: Apache-2.0
"""Evaluates a saved model, on its own data or others, by any scores."""

import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

from cac_tf import lazy
from cac_tf import methods
from cac_tf import scores as score_rules
from cac_tf.annotations import Path
from cac_tf.data import DataOptions
from cac_tf.data import load_open_set_dataset
from cac_tf.data.sources.source import resized_as
from cac_tf.data.sources.source import source_of
from cac_tf.data.unknown_data import load_unknown_images
from cac_tf.experiments.config import EvaluationConfig
from cac_tf.experiments.config import compared_scores
from cac_tf.experiments.config import is_frozen
from cac_tf.experiments.config import plain_tta
from cac_tf.experiments.evaluation import evaluate
from cac_tf.experiments.results import Done
from cac_tf.experiments.results import write_results
from cac_tf.experiments.run_data import data_of_run
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import RunFolderError
from cac_tf.experiments.run_folder import data_summary
from cac_tf.experiments.run_folder import read_config
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.methods.known_data import known_examples
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.models.image_classifier import share_of_mirrored
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.models.saving import load_model

# If neither the model nor the user says which threshold to use.
_TRUE_POSITIVE_RATE = 0.95


def evaluate_saved(
    config: EvaluationConfig,
    output_dir: Path,
    *,
    overwrite: bool = False,
    tell: Callable[..., None] | None = None,
) -> Done:
    """Loads a model and data, evaluates, reports; what `cac-evaluate` does.

    Args:
        config: `EvaluationConfig`.
        output_dir: folder of the results; not that of the model.
        overwrite: whether what an earlier run left there is deleted.
        tell: as in `train`.

    Returns:
        `Done`. The folder has a `model.keras` if the model that was
        evaluated is no longer the one in the file.

    Raises:
        RunFolderError: the folder holds something else.
        ValueError: no data are named, or the data or the model are refused.
    """
    lazy.require("matplotlib", "report")
    tell = tell or (lambda kind, *values: None)
    beside = os.path.dirname(config.model)
    file = pathlib.Path(os.path.realpath(config.model))
    if file.is_relative_to(os.path.realpath(output_dir)):
        raise ValueError(
            f"{output_dir} contains the model itself, and its results would "
            "be overwritten: choose another folder."
        )
    RunFolder(os.fspath(output_dir)).holds_a_run()  # Or an error, before work.
    model = load_model(config.model)
    sha256 = file_sha256(config.model)
    trained: Any = None
    if os.path.exists(os.path.join(beside, "config.json")):
        try:
            trained = read_config(beside)["settings"]
        except RunFolderError:
            # Not a run's, which matters only where the data are not named.
            if config.data is None:
                raise
    if config.data is None and trained is None:
        raise ValueError(
            f"There is no config.json of a run next to {config.model}, so the "
            "data set must be given: set dataset."
        )
    name_of_method = trained["method"] if trained else None
    method = methods.get(name_of_method) if name_of_method else None
    compared = compared_scores(config.scores or None, method)
    recipe = (trained or {}).get("recipe", {})
    if config.data is None:
        options = DataOptions.of(trained["data"])
        dataset = data_of_run(beside)
    else:
        options = as_taken_by(model, config.data)
        dataset = load_open_set_dataset(options, as_vectors=is_frozen(recipe))
    for note in dataset.notes:
        tell("note", note)
    others = {}
    for name in config.unknown_data:
        others[name], notes = load_unknown_images(
            name,
            dataset.image_shape,
            _tfds_folder(options),
            dataset.interpolation,
        )
        for note in notes:
            tell("note", f"{name}: {note}")
    if config.tta == "flip":
        # It is unknown how a model without our augmentation was trained.
        mirrored = share_of_mirrored(model.classifier)
        methods.check_tta(config.tta, dataset.name, mirrored)
    model, is_changed, asked = _prepared(config, model, dataset)
    evaluation = evaluate(
        model,
        dataset,
        name_of_method,
        compared,
        unknown_data=others,
        asked=asked,
    )
    settings = {
        "data": options.in_force,
        "model": config.model,
        "model_sha256": sha256,
        "method": name_of_method,
        "recipe": recipe,
        "recenter": config.recenter,
        "score": model.score.name,
        "tta": model.tta,
        "scores": list(compared),
        "true_positive_rate": config.true_positive_rate,
        "threshold": config.threshold,
        "unknown_data": list(config.unknown_data),
    }
    summary = data_summary(dataset)
    with RunFolder.open(output_dir, settings, summary, overwrite) as folder:
        # An earlier evaluation is done again.
        folder.begin(settings, summary)
        if is_changed:
            # So that exactly the evaluated model can be shipped.
            model.save(folder.file("model.keras"))
        write_results(folder, evaluation, dataset, model)
    return Done(folder, evaluation)


def as_taken_by(model: OpenSetClassifier, options: DataOptions) -> DataOptions:
    """The options; with the model's image size and resizing if left out."""
    taken = model.inputs_taken
    if len(taken.shape) != 3:
        return options
    height, width, _ = taken.fixed_shape
    size = height if height == width else None
    return resized_as(options, lambda: size, taken.interpolation)


def _tfds_folder(options):
    """The folder of prepared TFDS sets, if the data themselves are of TFDS."""
    is_of_tfds = source_of(options.dataset).DATA_DIR_IS_OF_TFDS
    return options.data_dir if is_of_tfds else None


def _prepared(config, model, dataset):
    """The model with the wanted score, tta, centers and threshold.

    Returns:
        The model, whether it is another than before, and the true-positive
        rate that it was calibrated for here, or None.
    """
    before = model
    tta = model.tta if config.tta is None else plain_tta(config.tta)
    score = model.score
    if config.score not in (None, score.name):
        score = score_rules.get(config.score)
    if config.recenter:
        model = open_set_classifier(
            model.classifier,
            dataset,
            score,
            magnitude=model.magnitude or MAGNITUDE,
            tta=tta,
            features_layer=model.network.features_layer,
        )
    elif score is not model.score:
        examples = known_examples(score, dataset)
        model = model.with_score(score, *examples, tta=tta)
    elif tta != model.tta:
        model = model.with_score(score, statistics=model.statistics, tta=tta)
    is_changed = model is not before
    rate = config.true_positive_rate
    if config.threshold is not None:
        model.set_threshold(config.threshold)
        is_changed = True
    elif model.threshold is None and rate is None:
        rate = _TRUE_POSITIVE_RATE
    if rate is not None and not dataset.validation.size:
        raise ValueError(
            "These data have no validation part, so the threshold cannot be "
            "recalibrated for a new rate, score or centers: use data with a "
            "validation part, or set the threshold."
        )
    if rate is not None:
        model.calibrate(dataset.validation.images, true_positive_rate=rate)
        is_changed = True
    return model, is_changed, rate


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
