# SPDX-License-Identifier: Apache-2.0
"""The example of transfer learning, on digits as photos; no download."""

import keras
import numpy as np
import PIL.Image
import pytest
import sklearn.datasets

import cac_tf
from tests.conftest import ROOT
from tests.conftest import load_script


@pytest.fixture(scope="module")
def example():
    return load_script(ROOT / "examples" / "transfer" / "own_photos.py")


@pytest.fixture
def photos(tmp_path):
    """Digits of three classes as PNG files."""
    digits = sklearn.datasets.load_digits(n_class=3)
    for i in range(240):
        path = tmp_path / "photos" / f"digit_{digits.target[i]}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.uint8(digits.images[i] * 255 / 16)
        PIL.Image.fromarray(pixels).resize((32, 32)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def weights(tmp_path):
    """In place of those of ImageNet: random ones, with statistics that fit.

    Without them, deep layers would give the same for any image.
    """
    keras.utils.set_random_seed(0)
    base = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), include_top=False, weights=None
    )
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    rng = np.random.default_rng(0)
    base(rng.uniform(-1, 1, (64, 32, 32, 3)), training=True)
    path = str(tmp_path / "made.weights.h5")
    base.save_weights(path)
    return path


@pytest.mark.slow
def test_freezes_tunes_and_rejects(
    example, photos, weights, tmp_path, monkeypatch
):
    states = []
    build, train = example.build, example.train

    def watched_build(*arguments):
        base, classifier = build(*arguments)
        states.extend([base, [np.array(w) for w in base.weights]])
        return base, classifier

    def watched_train(*arguments):
        train(*arguments)
        states.append([np.array(w) for w in states[0].weights])

    monkeypatch.setattr(example, "build", watched_build)
    monkeypatch.setattr(example, "train", watched_train)
    evaluation = example.main(
        [
            *(f"--photos={photos}", "--known=digit_0,digit_1", "--size=32"),
            *(f"--weights={weights}", "--epochs=5", "--fine_epochs=10"),
            *("--fine_rate=1e-4", f"--output_dir={tmp_path / 'out'}"),
        ]
    )
    base, given, frozen, tuned = states
    assert all(map(np.array_equal, given, frozen))
    for variable, old, new in zip(base.weights, frozen, tuned, strict=True):
        # Those of batch normalization stay as they came.
        has_learnt = not np.array_equal(old, new)
        assert has_learnt == variable.path.endswith("kernel"), variable.path
    metrics = evaluation.metrics
    assert metrics["score"] == "vim"
    assert metrics["unknown_class_names"] == ["digit_2"]
    assert metrics["accuracy"] > 0.9
    model = cac_tf.load_model(tmp_path / "out" / "model.keras")
    assert model.threshold == pytest.approx(metrics["threshold"])
    assert metrics["auroc"] > 0.6
