# SPDX-License-Identifier: Apache-2.0
"""The example that puts the layers into a functional model."""

import subprocess
import sys
import textwrap

import keras
import numpy as np
import PIL.Image
import pytest
import sklearn.datasets

from tests import oracle
from tests.conftest import ROOT
from tests.conftest import load_script

CLEAN_CLIENT = """
    import sys
    import numpy as np
    import tensorflow as tf

    path, inputs, output = sys.argv[1:]
    serve = tf.saved_model.load(path).signatures["serving_default"]
    images = tf.constant(np.load(inputs))
    np.savez(output, **{k: v.numpy() for k, v in serve(images).items()})
    assert not any(name.startswith("cac_tf") for name in sys.modules)
"""


@pytest.fixture(scope="module")
def example():
    return load_script(ROOT / "examples" / "embedding" / "embed_layers.py")


@pytest.fixture
def folder(tmp_path):
    """Sixty digits of two classes as PNG files."""
    digits = sklearn.datasets.load_digits(n_class=2)
    for i in range(60):
        path = tmp_path / "images" / f"digit {digits.target[i]}"
        path.mkdir(parents=True, exist_ok=True)
        pixels = np.uint8(digits.images[i] * 255 / 16)
        PIL.Image.fromarray(pixels).resize((32, 32)).save(path / f"{i}.png")
    return tmp_path / "images"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.input_shape. is undefined or non-square")
def test_trains_on_a_folder_and_exports(example, folder, tmp_path, capsys):
    answering = example.main(
        [
            *("--images", str(folder), "--export_to", str(tmp_path / "out")),
            *("--size", "32", "--epochs", "25", "--weights", "random"),
        ]
    )
    assert "Classes: digit 0, digit 1." in capsys.readouterr().out
    images, _, _ = example.load_images(folder, 32)
    np.save(tmp_path / "in.npy", images)
    files = [tmp_path / name for name in ("out", "in.npy", "served.npz")]
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CLEAN_CLIENT), *map(str, files)],
        check=True,
        cwd=tmp_path,
    )
    served = np.load(tmp_path / "served.npz")
    expected = answering.predict(images, verbose=0)
    to_logits = keras.Model(
        answering.input, answering.get_layer("logits").output
    )
    logits = to_logits.predict(images, verbose=0)
    np.testing.assert_allclose(
        expected["gamma"],
        oracle.gamma(oracle.distances(logits, 10 * np.eye(2))),
        rtol=1e-3,
        atol=1e-6,
    )
    threshold = answering.get_layer("class_id").threshold
    np.testing.assert_allclose(
        served["gamma"], expected["gamma"], rtol=1e-3, atol=1e-3 * threshold
    )
    np.testing.assert_array_equal(served["class_id"], expected["class_id"])
    # 95 % of twelve that were held back: all of them are accepted.
    assert (served["class_id"] != -1).mean() > 0.8
