# SPDX-License-Identifier: Apache-2.0
"""Pictures of what a model makes, and of what its training made."""

import glob
import os

import numpy as np

from cac_tf.reporting.sheets import Row
from cac_tf.reporting.sheets import Sheet
from cac_tf.training.pictures import PICTURES_IN_A_ROW
from cac_tf.training.pictures import read_rows

# The output of a model that is an image like its input, in [0, 1].
RECONSTRUCTION = "reconstruction"


def reconstructions(model, dataset):
    """Test images beside what the model makes of them, with the errors.

    One `Sheet`; none for models without an output `reconstruction`.
    """
    if RECONSTRUCTION not in model.network.names_of_outputs:
        return []
    rows = []
    for name, examples in (
        ("known", dataset.known_test),
        ("unknown", dataset.unknown_test),
    ):
        if not examples.size:
            continue
        # The same ones for every method.
        images, _ = examples.evenly_spaced(PICTURES_IN_A_ROW)
        ((outputs, *_),) = model.iterate_outputs(
            images, names=[RECONSTRUCTION], single_view=True
        )
        made = 255.0 * np.asarray(outputs[RECONSTRUCTION])
        errors = np.abs(made - images).mean(axis=(1, 2, 3)) / 255.0
        rows += [
            Row(name, images),
            Row("reconstruction", made, tuple(f"{e:.3f}" for e in errors)),
        ]
    text = (
        "Test images and the model's reconstruction of each, with the mean "
        "absolute difference of pixels in [0, 1]."
    )
    return [Sheet("Reconstructions", text, tuple(rows))]


def kept_pictures(folder):
    """A `Sheet` for each file of pictures that a run's trainings left."""
    sheets = []
    for path in sorted(glob.glob(folder.file("pictures", "*.npz"))):
        name = os.path.splitext(os.path.basename(path))[0].replace("_", " ")
        rows = [
            Row(row, images[:PICTURES_IN_A_ROW])
            for row, images in read_rows(path).items()
        ]
        sheets.append(Sheet(f"From training: {name}", "", tuple(rows)))
    return sheets
