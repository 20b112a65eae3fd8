# SPDX-License-Identifier: Apache-2.0
"""A saved model with other classes, beside the old one, untrained."""

import dataclasses
import json
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from cac_tf import atomic_files
from cac_tf.counted import counted
from cac_tf.experiments.evaluate_saved import file_sha256
from cac_tf.experiments.run_data import data_of_run
from cac_tf.experiments.run_folder import read_config
from cac_tf.open_world import changed_decisions

# Beside the model: where it comes from, and what was changed.
_FILE = "enrolled.json"


@dataclasses.dataclass(frozen=True)
class EnrollingConfig:
    """The changes to a model's classes, in the order they are made.

    Attributes:
        remove: names of enrolled classes.
        merge: from a new name to those of enrolled classes.
        add: from a new name to inputs, (n, ...).
        rename: from names to new ones.
        true_positive_rate, accept_known: as of `OpenSetClassifier.enroll`.
    """

    remove: Sequence[str] = ()
    merge: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    add: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    true_positive_rate: float | None = None
    accept_known: bool = False


def enroll_saved(
    model, path, config, output_dir, known=None, dry_run=False, tell=None
):
    """Makes and saves a model with changed classes, like `cac-enroll`.

    Before anything is written, the decisions of both models on known inputs are
    compared. The old model is left unchanged.

    Args:
        model: `OpenSetClassifier`.
        path: path of the model's file.
        config: `EnrollingConfig`.
        output_dir: folder for `model.keras`; must not exist yet.
        known: known inputs, (n, ...); None: the validation and test examples of
            the run that the model belongs to, if any.
        dry_run: whether nothing is written.
        tell: called with each line of output for the user.

    Returns:
        The new model.

    Raises:
        FileExistsError: the folder exists.
        ValueError: see `OpenSetClassifier.enroll`.
    """
    tell = tell or (lambda line: None)
    if not dry_run and os.path.exists(output_dir):
        raise FileExistsError(
            f"{output_dir} already exists; a version is never overwritten. "
            "Choose another folder."
        )
    changed = model
    if config.remove:
        changed = changed.remove(config.remove)
    if config.merge:
        changed = changed.merge(config.merge)
    if config.add:
        changed = changed.enroll(
            config.add,
            true_positive_rate=config.true_positive_rate,
            accept_known=config.accept_known,
        )
        for name, one in changed.journal[-1]["classes"].items():
            tell(
                f"{name}: {counted(one['examples'], 'example')}; judged by "
                f"the others alone, {one['recognized']} would be recognized; "
                f"threshold {one['threshold']:.4g}"
            )
    counts = {}
    if changed is not model:
        compared = {"given": known}
        if known is None:
            compared, notes = _known_of_run(path)
            for note in notes:
                tell(f"Note: {note}")
        for part, inputs in compared.items():
            found = changed_decisions(model, changed, inputs)
            counts[part] = {"inputs": found.inputs, "share": found.share}
            tell(f"known inputs, {part}: {found.in_words()}")
        if not compared:
            tell("There are no known inputs to compare decisions on.")
    if config.rename:
        changed = changed.rename(config.rename)
    if changed is model:
        raise ValueError("There is nothing to change.")
    if dry_run:
        return changed
    run, columns = _run_of(path), []
    if run is not None:
        columns = read_config(run)["data"].get("input_columns", [])
    os.makedirs(os.path.dirname(os.path.abspath(output_dir)), exist_ok=True)
    with atomic_files.new_folder(output_dir) as folder:
        changed.save(os.path.join(folder, "model.keras"))
        atomic_files.write_json(
            os.path.join(folder, _FILE),
            {
                "made_of": {
                    "model": os.path.abspath(path),
                    "sha256": file_sha256(path),
                    "version": model.version,
                },
                "version": changed.version,
                "classes": list(changed.class_names),
                "enrolled": changed.enrolled_classes,
                "journal": changed.journal,
                "changed_decisions": counts,
                "run": run,
                # For cac-predict.
                "data": {"input_columns": columns},
            },
        )
    return changed


def _run_of(path: str) -> str | None:
    """The folder of the run that trained a model, if it is there."""
    folder = os.path.dirname(os.path.abspath(path))
    described = os.path.join(folder, _FILE)
    if os.path.exists(described):
        with open(described, encoding="utf-8") as file:
            folder = json.load(file)["run"] or ""
    has_run = os.path.exists(os.path.join(folder, "config.json"))
    return folder if has_run else None


def _known_of_run(path: str) -> tuple[dict[str, Any], Sequence[str]]:
    """Known inputs of the run that trained a model, by their part; notes."""
    run = _run_of(path)
    if run is None:
        return {}, ()
    dataset = data_of_run(run, ["validation", "known_test"])
    parts = {"validation": dataset.validation, "test": dataset.known_test}
    known = {name: one.images for name, one in parts.items() if one.size}
    return known, dataset.notes


__all__ = ["EnrollingConfig", "enroll_saved"]
