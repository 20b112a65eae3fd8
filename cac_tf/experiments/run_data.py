# SPDX-License-Identifier: Apache-2.0
"""The data that a run was trained on, loaded again."""

import dataclasses
from collections.abc import Sequence

from cac_tf.annotations import Path
from cac_tf.data import DataOptions
from cac_tf.data import load_open_set_dataset
from cac_tf.data.fingerprint import fingerprint
from cac_tf.data.open_set_dataset import OpenSetDataset
from cac_tf.experiments.config import is_frozen
from cac_tf.experiments.run_folder import read_config


def data_of_run(
    path: Path, parts: Sequence[str] | None = None
) -> OpenSetDataset:
    """The data of a run, in the parts that it was trained on.

    If a part has changed since, `notes` says so: parts that are drawn from the
    data are then drawn anew.

    Args:
        path: the run's folder.
        parts: names of those that are compared, which reads them whole; None:
            all.

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
    if parts is None:
        digests = dataset.digests
    else:
        digests = {part: fingerprint(getattr(dataset, part)) for part in parts}
    before = kept["data"].get("sha256", {})
    changed = [name for name in digests if digests[name] != before.get(name)]
    if not changed:
        return dataset
    note = (
        "the data have changed since the training (different inputs or labels "
        f"in: {', '.join(changed)}), so inputs that are now of another part "
        "may have been trained on"
    )
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))
