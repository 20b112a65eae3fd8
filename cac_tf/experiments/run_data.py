# SPDX-License-Identifier: Apache-2.0
"""The data that a run was trained on, loaded again."""

import dataclasses

from cac_tf.annotations import Path
from cac_tf.data import DataOptions
from cac_tf.data import load_open_set_dataset
from cac_tf.data.open_set_dataset import OpenSetDataset
from cac_tf.experiments.config import is_frozen
from cac_tf.experiments.run_folder import changes_of_data
from cac_tf.experiments.run_folder import data_summary
from cac_tf.experiments.run_folder import read_config


def data_of_run(path: Path) -> OpenSetDataset:
    """The data of a run, in the parts that it was trained on.

    If they have changed since, `notes` says so: parts that are drawn from them
    are then drawn anew.

    Args:
        path: the run's folder.

    Raises:
        RunFolderError: see `read_config`.
        ValueError: see `load_open_set_dataset`.
    """
    kept = read_config(path)
    settings = kept["settings"]
    dataset = load_open_set_dataset(
        DataOptions.of(settings["data"]),
        as_vectors=is_frozen(settings.get("recipe", {})),
    )
    now = data_summary(dataset)
    earlier = {name: kept["data"].get(name) for name in now}
    differences = changes_of_data(earlier, now)
    if not differences:
        return dataset
    note = (
        f"the data have changed since the training ({differences}), so inputs "
        "that are now of another part may have been trained on"
    )
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))
