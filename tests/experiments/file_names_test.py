# SPDX-License-Identifier: Apache-2.0
"""File names that are not UTF-8, from the data to the last line of a run."""

import json
import os

import numpy as np
import PIL.Image
import pytest

from cac_tf import experiments
from cac_tf.experiments.run_folder import read_config


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:These classes keep")
@pytest.mark.filterwarnings("ignore:.* known examples are too few")
def test_a_run_on_such_files_is_finished(rng, tmp_path):
    """Names appear as escapes, in JSON and in the report."""
    folder = os.path.join(os.fsencode(tmp_path), b"photos\xe9")
    for name in (b"cat", b"dog", b"hen"):
        os.makedirs(os.path.join(folder, name))
        for i in range(12):
            image = rng.integers(0, 256, (8, 8, 3)).astype("uint8")
            path = os.path.join(folder, name, b"%d\xff.png" % i)
            PIL.Image.fromarray(image).save(os.fsdecode(path))
    with open(os.path.join(folder, b"cat", b"no image \xff.png"), "wb") as file:
        file.write(b"text")
    config = experiments.ExperimentConfig(
        {
            "dataset": "folder",
            "data_dir": os.fsdecode(folder),
            "known_classes": ["cat", "dog"],
            "image_size": 8,
        },
        recipe={"epochs": 1},
    )
    notes = []
    done = experiments.train(
        config,
        tmp_path / "run",
        tell=lambda kind, *values: notes.extend(values * (kind == "note")),
    )
    assert "no image \udcff.png" in notes[-1]
    # Finished, and the same command finds it so.
    assert done.folder.is_finished
    assert experiments.train(config, tmp_path / "run").evaluation is None
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert r"no image \udcff.png" in page
    assert r"photos\udce9" in page
    data = read_config(tmp_path / "run")["settings"]["data"]
    assert data["data_dir"] == os.fsdecode(folder)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text("utf-8"))
    assert np.isfinite(metrics["auroc"])
