# SPDX-License-Identifier: Apache-2.0
"""The Python code of docs/predicting.md is run, in a folder with photos."""

import importlib.util
import re

import PIL.Image
import pytest

from cac_tf import batch
from tests.conftest import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block_with(text):
    page = (ROOT / "docs" / "predicting.md").read_text("utf-8")
    (found,) = [code for code in _BLOCK.findall(page) if text in code]
    return found


@pytest.fixture
def here(trained_pictures, tmp_path, monkeypatch):
    """photos/ with six pictures and a text, and runs/photos."""
    (tmp_path / "photos").mkdir()
    for i in (*range(3), *range(24, 27)):
        PIL.Image.fromarray(trained_pictures[1][i]).save(
            tmp_path / "photos" / f"{i:02}.png"
        )
    (tmp_path / "photos" / "text.png").write_text("no image")
    # Runners start their workers elsewhere.
    run = tmp_path / "runs" / "photos"
    trained_pictures[0].export(run)
    monkeypatch.chdir(tmp_path)
    classifier = batch.Classifier.load(run)
    return {
        key.rpartition("/")[2]: answer.error or answer.label
        for key, answer in batch.classify_files(classifier, ["photos/"])
    }


def printed(capsys):
    lines = capsys.readouterr().out.splitlines()
    pairs = (line.split(" ", 1) for line in lines)
    return {key.rpartition("/")[2]: said.strip() for key, said in pairs}


def test_plain(here, capsys):
    exec(block_with("batch.classify_files"), {})
    assert printed(capsys) == here


def test_beam(here, capsys):
    beam = pytest.importorskip("apache_beam")
    code = block_with("apache_beam")
    # In this process, without looking for a runner to download.
    runner = "Pipeline('BundleBasedDirectRunner')"
    exec(code.replace("Pipeline()", runner), {"beam": beam})
    assert printed(capsys) == here


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed"
)
def test_ray(here, tmp_path, monkeypatch):
    from pyarrow import parquet

    model = str(tmp_path / "runs" / "photos")
    code = block_with("import ray").replace("runs/photos", model)
    # Two workers and the readers, however many cores there are.
    ray = importlib.import_module("ray")
    ray.init(num_cpus=4)
    try:
        exec(code, {"__name__": "__main__"})
    finally:
        ray.shutdown()
    rows = parquet.read_table(tmp_path / "answers").to_pylist()
    found = {
        row["key"].rpartition("/")[2]: row["error"] or row["label"]
        for row in rows
    }
    assert found == here
