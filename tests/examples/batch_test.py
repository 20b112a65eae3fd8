# SPDX-License-Identifier: Apache-2.0
"""The example with a folder of images."""

import csv

import keras
import numpy as np
import PIL.Image
import pyarrow.parquet
import pytest

from tests.conftest import ROOT
from tests.conftest import load_script

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="it needs TensorFlow"
)


@pytest.fixture(scope="module")
def example():
    return load_script(ROOT / "examples" / "batch" / "score_folder.py")


@pytest.fixture(scope="module")
def job(trained_pictures, tmp_path_factory):
    """The model, a folder with its pictures and a broken one, its answers."""
    model, pictures = trained_pictures
    folder = tmp_path_factory.mktemp("job")
    model.save(folder / "model.keras")
    (folder / "photos").mkdir()
    for i, picture in enumerate(pictures):
        image = PIL.Image.fromarray(picture)
        image.save(folder / "photos" / f"{i:02}.png")
    (folder / "photos" / "broken.png").write_bytes(b"no image")
    return folder, model.predict_open_set(pictures)


def test_every_image_has_a_row(example, job, capsys):
    folder, expected = job
    output = folder / "answers.csv"
    counts = example.main(
        [
            f"--model={folder / 'model.keras'}",
            *(f"--output={output}", str(folder / "photos")),
        ]
    )
    with open(output, newline="", encoding="utf-8") as file:
        *rows, broken = csv.DictReader(file)
    assert [row["label"] for row in rows] == expected.label.tolist()
    np.testing.assert_allclose(
        [float(row["unknown_score"]) for row in rows],
        expected.unknown_score,
        rtol=1e-4,
        atol=1e-5,
    )
    assert broken["error"] == "not a JPEG, PNG, WebP or BMP image"
    assert counts[broken["error"]] == 1
    printed = capsys.readouterr().out
    for label in set(expected.label.tolist()):
        assert counts[label] == (expected.label == label).sum()
        assert f"{counts[label]:6} {label}\n" in printed


def test_those_closest_to_the_threshold(example, job):
    folder, expected = job
    output = folder / "answers.parquet"
    _, close = example.score(
        str(folder / "model.keras"), [str(folder / "photos")], str(output), 3
    )
    scores = expected.unknown_score[~expected.is_unknown]
    (threshold,) = {
        row["threshold"]
        for row in pyarrow.parquet.read_table(output).to_pylist()
        if row["threshold"] is not None
    }
    np.testing.assert_allclose(
        [margin for _, margin in close],
        np.sort(threshold - scores)[:3],
        rtol=1e-3,
        atol=1e-4,
    )
