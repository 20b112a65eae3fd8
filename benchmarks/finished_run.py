# SPDX-License-Identifier: Apache-2.0
"""Finished runs, for scripts that look into their models."""

import numpy as np

from cac_tf import data
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import read_config
from cac_tf.models.saving import load_model


def read_run(path):
    """Settings, `data.OpenSetDataset` and model of a run, by its folder."""
    settings = read_config(path)["settings"]
    dataset = data.load_open_set_dataset(**settings["data"])
    model = load_model(RunFolder(path).file("model.keras"))
    return settings, dataset, model


def outputs_of(model, images, names):
    """Outputs of a model by name, (n, ...) each."""
    found = [
        outputs for outputs, *_ in model.iterate_outputs(images, names=names)
    ]
    return {
        name: np.concatenate([outputs[name] for outputs in found])
        for name in names
    }
