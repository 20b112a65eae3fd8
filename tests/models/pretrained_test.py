# SPDX-License-Identifier: Apache-2.0
import importlib
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf.models import pretrained
from cac_tf.models import pretrained_backbone
from cac_tf.models.image_classifier import of_raw_images

APPLICATIONS = sorted(
    {
        getattr(keras.applications, name).__module__.rsplit(".", 1)[-1]
        for name in dir(keras.applications)
        if name[0].isupper()
    }
)


@pytest.mark.parametrize("module", APPLICATIONS)
def test_every_networks_own_preprocessing_is_a_layer(module, rng):
    """From [0, 1], as `ImagePreprocessing` gives it."""
    own = importlib.import_module(f"keras.applications.{module}")
    pixels = rng.integers(0, 256, (2, 3, 4, 3)).astype("float32")
    expected = own.preprocess_input(pixels.copy(), data_format="channels_last")
    layer = pretrained._scaling(own.preprocess_input)
    found = keras.ops.convert_to_numpy(layer(pixels / 255.0))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    again = type(layer).from_config(layer.get_config())
    assert layer.dtype == again.dtype == "float32"


def test_a_network_of_keras_applications(rng):
    backbone = pretrained_backbone(
        "keras_applications/MobileNetV2", weights="none", image_size=32
    )
    pixels = rng.integers(0, 256, (3, 32, 32, 3)).astype("uint8")
    found = keras.ops.convert_to_numpy(backbone(pixels))
    network = next(
        one for one in backbone.layers if isinstance(one, keras.Model)
    )
    prepared = keras.applications.mobilenet_v2.preprocess_input(
        pixels.astype("float32")
    )
    expected = network(prepared, training=False)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert not backbone.trainable_weights
    # Frozen: batch normalization has its own statistics in training, too.
    trained = keras.ops.convert_to_numpy(backbone(pixels, training=True))
    np.testing.assert_array_equal(trained, found)


@pytest.fixture
def saved(tmp_path, rng):
    """A small network of images that ends in a dense layer, and its file."""
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Rescaling(1 / 255)(inputs)
    x = keras.layers.Conv2D(4, 3, activation="relu")(x)
    features = keras.layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, keras.layers.Dense(5)(features))
    model.save(tmp_path / "own.keras")
    return keras.Model(inputs, features), tmp_path / "own.keras"


def test_a_file_is_cut_before_its_last_dense_layer(saved, rng):
    features, path = saved
    backbone = pretrained_backbone(path)
    pixels = rng.integers(0, 256, (6, 8, 8, 3)).astype("uint8")
    np.testing.assert_allclose(
        backbone(pixels), features(pixels), rtol=1e-5, atol=1e-6
    )
    # Photos of other sizes are resampled first.
    assert backbone(np.zeros((1, 20, 9, 3), "uint8")).shape == (1, 4)


def test_with_a_head_it_becomes_a_product(saved, rng, tmp_path):
    """Trained by plain Keras; from raw pixels to decisions, saved whole."""
    _, path = saved
    backbone = pretrained_backbone(path)
    before = [np.array(one) for one in backbone.get_weights()]
    x = rng.integers(0, 80, (90, 8, 8, 3)).astype("uint8")
    y = np.arange(90) % 3
    x[np.arange(90), :, :, y] += 160
    classifier = keras.Sequential([backbone, keras.layers.Dense(3)])
    classifier.compile(keras.optimizers.Adam(0.1), cac_tf.losses.CACLoss())
    classifier.fit(x, y, epochs=12, verbose=0)
    for one, same in zip(backbone.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, same)
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier, (x, y), score="knn", validation_data=(x, y)
    )
    found = model.predict_open_set(x)
    assert (found.predicted_class_id == y).mean() > 0.95
    model.save(tmp_path / "whole.keras")
    loaded = cac_tf.load_model(tmp_path / "whole.keras")
    np.testing.assert_array_equal(
        loaded.predict_open_set(x).class_id, found.class_id
    )


def test_a_model_of_its_outputs_becomes_one_of_images(saved, rng):
    """With the same answers, centers and p-values, whatever the names."""
    _, path = saved
    backbone = pretrained_backbone(path)
    raw = of_raw_images(backbone, (20, 20, 3))
    x = rng.integers(0, 256, (90, 20, 20, 3)).astype("uint8")
    features = keras.ops.convert_to_numpy(raw(x))
    y = np.arange(90) % 3
    logits = keras.Input([4], name="images")
    head = keras.Model(logits, keras.layers.Dense(3)(logits), name=raw.name)
    head.set_weights([np.eye(4, 3), np.arange(3) / 10])
    with pytest.warns(UserWarning, match="keep their anchors"):
        model = cac_tf.OpenSetClassifier.from_classifier(
            head, (features, y), score="knn", validation_data=(features, y)
        )
    whole = model.with_backbone(raw)
    assert whole.inputs_taken.fixed_shape == (20, 20, 3)
    one, other = model.predict_open_set(features), whole.predict_open_set(x)
    np.testing.assert_array_equal(one.class_id, other.class_id)
    for name in ("unknown_score", "distances"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-5
        )
    for own, same in zip(model.calibration, whole.calibration, strict=True):
        np.testing.assert_array_equal(own, same)


def test_images_of_another_size_than_the_files(saved):
    _, path = saved
    assert pretrained.image_size_of(path) == 8
    assert pretrained.image_size_of("keras_applications/VGG16") == 224
    with pytest.raises(ValueError, match="only images of 8x8: leave out image"):
        pretrained_backbone(path, image_size=9)


@pytest.mark.parametrize(
    "network, options, message",
    [
        ("resnet", {}, "Unknown pretrained network 'resnet'"),
        ("keras_applications/ResNet5", {}, "did you mean 'ResNet50'"),
        (
            "keras_applications/ResNet50",
            {"weights": "x.h5"},
            "Weights file not found",
        ),
        ("nowhere.keras", {}, "Model file not found: nowhere.keras"),
        ("keras_applications/VGG16", {"image_size": 0}, "image_size"),
    ],
)
def test_what_is_refused(network, options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        pretrained_backbone(network, **options)


def test_other_files_are_refused(saved, tmp_path):
    _, path = saved
    with pytest.raises(ValueError, match="has weights of its own"):
        pretrained_backbone(path, weights="imagenet")
    vectors = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    vectors.save(tmp_path / "vectors.keras")
    with pytest.raises(ValueError, match="must take images"):
        pretrained_backbone(tmp_path / "vectors.keras")


def test_without_a_connection_it_says_where_the_weights_go(monkeypatch):
    url = "https://storage.example/tensorflow/resnet50_notop.h5"

    def get_file(*args, **kwargs):
        raise Exception(f"URL fetch failure on {url}: None -- unreachable")

    module = sys.modules[keras.applications.ResNet50.__module__]
    monkeypatch.setattr(module.file_utils, "get_file", get_file)
    monkeypatch.setenv("KERAS_HOME", "/home/of/keras")
    with pytest.raises(OSError, match="are not on this machine") as raised:
        pretrained_backbone("keras_applications/ResNet50")
    assert url in str(raised.value)
    assert "/home/of/keras/models/resnet50_notop.h5" in str(raised.value)


@pytest.mark.slow
def test_real_weights(tmp_path):
    """EfficientNet-Lite0, trained on ImageNet."""
    folder = os.environ.get("CAC_TF_PRETRAINED_DIR")
    if not folder:
        pytest.skip("CAC_TF_PRETRAINED_DIR is not set: no weights here")
    path = tmp_path / "efficientnet_lite0.keras"
    script = pathlib.Path(folder) / "make_keras_file.py"
    subprocess.run([sys.executable, script, path], check=True, cwd=folder)
    backbone = pretrained_backbone(path, image_size=64)
    noise = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), "uint8")
    found = keras.ops.convert_to_numpy(backbone(noise))
    assert found.shape == (2, 1280) and np.isfinite(found).all()
    assert found.std() > 0.05
