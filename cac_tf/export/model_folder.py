# SPDX-License-Identifier: Apache-2.0
"""The folder that TF Serving polls: one sub-folder a version."""

import os


def write_model_folder(model, directory, version):
    """Exports a calibrated model as one version of a TF Serving model.

    Written under a temporary name and renamed, so a polling server never
    sees half a model (it looks at folders with a number for a name only).

    Args:
        model: `OpenSetClassifier` with a valid theta.
        directory: the model's folder; made if it does not exist.
        version: whole number >= 1.

    Returns:
        Path of the version's folder.

    Raises:
        ValueError: a version that is no positive whole number, or a model
            that cannot be exported (see `OpenSetClassifier.export`).
        FileExistsError: the version is there already.
    """
    if isinstance(version, bool) or int(version) != version or version < 1:
        raise ValueError(
            f"version must be a whole number of at least 1; got {version!r}."
        )
    target = os.path.join(os.fspath(directory), str(int(version)))
    if os.path.exists(target):
        raise FileExistsError(
            f"{target} exists; a served version is never overwritten. Choose "
            "a higher version."
        )
    model.export(target)
    return target
