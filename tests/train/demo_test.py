# SPDX-License-Identifier: Apache-2.0
"""cac-demo: what it refuses, and its page in a browser."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
import sklearn.datasets
from absl import flags

from cac_tf import OpenSetClassifier
from cac_tf import lazy
from cac_tf.experiments.run_folder import FORMAT
from cac_tf.train import cac_demo
from tests.conftest import ROOT
from tests.conftest import class_names
from tests.conftest import small_classifier

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PUPPETEER = ROOT / "build" / "node" / "node_modules" / "puppeteer-core"
STROKES = ROOT / "tests" / "demo" / "strokes.json"
in_chromium = pytest.mark.skipif(
    not (
        CHROMIUM
        and PUPPETEER.exists()
        and (PUPPETEER.parent / "axe-core").exists()
        and shutil.which("node")
    ),
    reason="needs Chromium, Node.js and: npm install --no-save --prefix "
    "build/node puppeteer-core axe-core",
)


def parsed(*arguments):
    values = flags.FlagValues()
    cac_demo.define_flags(values)
    values(["cac-demo", *map(str, arguments)])
    return values


def program(name, *arguments):
    return [sys.executable, "-m", f"cac_tf.train.{name}", *map(str, arguments)]


@pytest.fixture
def saved(tmp_path):
    def save(model):
        model.save(tmp_path / "model.keras")
        return tmp_path

    return save


def test_without_gradio_the_command_to_install_it_is_said(monkeypatch):
    find = lazy.importlib.util.find_spec
    monkeypatch.setattr(
        lazy.importlib.util,
        "find_spec",
        lambda name: None if name == "gradio" else find(name),
    )
    with pytest.raises(ImportError, match=r"pip install 'cac-tf\[demo\]'"):
        cac_demo.page_of(parsed("--model=nowhere"))


def test_wrong_flags():
    for argument in ("--port=0", "--port=65536", "--port=x"):
        with pytest.raises(flags.IllegalFlagValueError, match=argument):
            parsed("--model=m", argument)


def test_models_that_cannot_be_shown(saved, tmp_path, trained_pictures):
    pytest.importorskip("gradio", reason="needs the extra demo")
    with pytest.raises(ValueError, match="--model=nowhere: not found"):
        cac_demo.page_of(parsed("--model=nowhere"))
    with pytest.raises(ValueError, match="folder without model.keras"):
        cac_demo.page_of(parsed(f"--model={tmp_path}"))
    vectors = OpenSetClassifier(small_classifier(), class_names(3))
    with pytest.raises(
        ValueError, match="only show images with 1 or 3 channels"
    ):
        cac_demo.page_of(parsed(f"--model={saved(vectors)}"))
    images = trained_pictures[0].with_score("gamma")
    with pytest.raises(ValueError, match="no threshold.*--true_positive_rate"):
        cac_demo.page_of(parsed(f"--model={saved(images)}"))


def texts_of(page):
    return [getattr(block, "value", None) for block in page.blocks.values()]


def test_a_model_without_its_data(saved, trained_pictures):
    pytest.importorskip("gradio", reason="needs the extra demo")
    folder = saved(trained_pictures[0])
    page = cac_demo.page_of(parsed(f"--model={folder}"))
    assert "There is no config.json next to the model." in texts_of(page)
    assert f"# {folder.name}: known or unknown?" in texts_of(page)
    # Only who is at this machine may write to it.
    everybody_s = cac_demo.page_of(parsed(f"--model={folder}", "--host=::"))
    for one, may_write in ((page, True), (everybody_s, False)):
        (save,) = (b for b in one.blocks.values() if b.elem_id == "save")
        assert save.visible == may_write


def test_a_run_whose_data_are_gone(saved, trained_pictures, tmp_path):
    pytest.importorskip("gradio", reason="needs the extra demo")
    folder = saved(trained_pictures[0])
    gone = {"data": {"dataset": str(tmp_path / "gone.npz")}}
    config = {"settings": gone, "data": {}, "environment": {}, "files": {}}
    for content, said in (
        ({"format": FORMAT, **config}, "gone.npz"),
        ({"of": "another tool"}, "config.json"),
    ):
        (folder / "config.json").write_text(json.dumps(content))
        page = cac_demo.page_of(parsed(f"--model={folder}"))
        start = "The data of the run cannot be read: "
        (text,) = [t for t in map(str, texts_of(page)) if t.startswith(start)]
        assert said in text


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_port_in_use(saved, trained_pictures):
    pytest.importorskip("gradio", reason="needs the extra demo")
    folder = saved(trained_pictures[0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ValueError, match=rf"--port={port}: the port is in use"
        ):
            cac_demo.main(parsed(f"--model={folder}", f"--port={port}"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Address of the page of a model as `cac-train` makes it of digits."""
    pytest.importorskip("gradio", reason="needs the extra demo")
    folder = tmp_path_factory.mktemp("runs") / "digits"
    subprocess.run(
        program("cac_train", "--dataset=digits", f"--output_dir={folder}"),
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    port = free_port()
    process = subprocess.Popen(
        program("cac_demo", f"--model={folder}", f"--port={port}"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        said = process.stdout.readline()
        assert said.startswith(f"Open http://127.0.0.1:{port}/ "), said
        yield said.split()[1], folder
    finally:
        process.terminate()
        process.wait()


def used(address, orders, folder):
    """What the page says after each order, and the hosts that were asked.

    Whatever was asked, everybody can read the answer: axe finds nothing.
    """
    path = pathlib.Path(folder) / "orders.json"
    path.write_text(json.dumps(orders))
    script = ROOT / "tests" / "demo" / "use_page.cjs"
    result = subprocess.run(
        ["node", script, CHROMIUM, address, path],
        env={**os.environ, "NODE_PATH": str(PUPPETEER.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["violations"] == []
    return said["found"], said["hosts"]


@pytest.mark.slow
@in_chromium
def test_the_page_in_a_browser(served, tmp_path):
    """One test: each would train a model in its own process."""
    letters_are_rejected_more_often_than_digits(*served, tmp_path)
    examples_photo_and_slider(served[0], tmp_path)


def letters_are_rejected_more_often_than_digits(address, folder, tmp_path):
    """Drawn on the page by the mouse, in Chromium, from a file of strokes."""
    config = json.loads((folder / "config.json").read_text())
    known = config["data"]["class_names"]
    drawings = json.loads(STROKES.read_text())
    digits = [one for one in drawings["digits"] if one[0] in known]
    both = [*digits, *drawings["letters"]]
    said, hosts = used(
        address, [{"draw": strokes} for _, strokes in both], tmp_path
    )
    assert hosts == [address.removeprefix("http://").strip("/")]
    labels = np.array([one["answer"].splitlines()[0] for one in said])
    is_rejected = labels == "unknown"
    of_digits, of_letters = np.split(is_rejected, [len(digits)])
    assert len(of_letters) == 26
    told = dict(enumerate(zip([n for n, _ in both], labels, strict=True)))
    assert of_letters.mean() > of_digits.mean() + 0.2, told
    # And the digits are known by their names.
    names = np.array([name for name, _ in digits])
    assert np.mean(labels[: len(digits)] == names) >= 0.75, told


def examples_photo_and_slider(address, tmp_path):
    PIL.Image.new("L", (40, 30), 128).save(tmp_path / "grey.png")
    digits = sklearn.datasets.load_digits()
    threes = []
    for row in np.flatnonzero(digits.target == 3)[:30]:
        threes.append(str(tmp_path / f"{row}.png"))
        pixels = np.uint8(digits.images[row] * (255 / 16))
        PIL.Image.fromarray(pixels).save(threes[-1])
    said, hosts = used(
        address,
        [
            {"choose": ["known", 0]},
            {"slide": 0},
            {"slide": 1},
            {"choose": ["unknown", 3]},
            {"upload": [str(tmp_path / "grey.png")]},
            {"upload": threes},
            {"enroll": "three"},
            {"undo": True},
        ],
        tmp_path,
    )
    example, lowest, highest, unknown, photo, several, enrolled, undone = said
    assert example["answer"].startswith("0\n")
    assert example["nearest"].splitlines()[1].startswith("0\t")
    assert example["neighbours"].count("0, ") == 6
    assert lowest["answer"].startswith("unknown\n")
    assert "The most similar class is 0." in lowest["answer"]
    assert highest["answer"].startswith("0\n")
    # The slider stays where it is, and so does the answer: all are accepted.
    assert "is not above the threshold" in unknown["answer"]
    assert "The unknown score" in photo["answer"]
    assert several["answer"].startswith("30 images; the model rejects ")
    assert "Version 2 of the model. Enrolled: three" in enrolled["version"]
    assert "three is enrolled." in enrolled["said"]
    assert undone["version"] == "Version 1 of the model. Enrolled: nothing."
    assert len(hosts) == 1
