# SPDX-License-Identifier: Apache-2.0
"""Networks of KerasHub, from presets that are made here."""

import importlib.util

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf.models import pretrained
from cac_tf.models import pretrained_backbone
from cac_tf.models.copying import copied
from tests.execution import BACKEND
from tests.hub_presets import save_bert

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("keras_hub") is None,
    reason="There is no package keras_hub",
)

TEXTS = np.array(["My card", "where is my card lost", "?"], object)


@pytest.fixture(scope="module")
def of_images(tmp_path_factory):
    """Folder of a preset, and what KerasHub's own pipeline makes of images."""
    import keras_hub

    keras.utils.set_random_seed(0)
    converter = keras_hub.layers.ResNetImageConverter(
        image_size=(32, 32), scale=[0.01, 0.02, 0.03], offset=[-1.0, 0.5, 0.0]
    )
    network = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64],
        stackwise_num_blocks=[1],
        stackwise_num_strides=[1],
        block_type="basic_block",
    )
    folder = str(tmp_path_factory.mktemp("hub") / "images")
    keras_hub.models.ResNetImageClassifier(
        backbone=network,
        preprocessor=keras_hub.models.ResNetImageClassifierPreprocessor(
            image_converter=converter
        ),
        num_classes=3,
    ).save_to_preset(folder)

    def own(images):
        maps = network(converter(images.astype("float32")))
        return keras.ops.convert_to_numpy(maps).mean(axis=(1, 2))

    return folder, own


@pytest.fixture(scope="module")
def of_texts(tmp_path_factory):
    """Folder of a preset, and the means over its own tokens."""
    folder = str(tmp_path_factory.mktemp("hub") / "texts")
    words = ["my", "card", "is", "lost", "where"]
    preprocessor, network = save_bert(folder, words)

    def own(texts):
        tokens = preprocessor(list(texts))
        outputs = np.asarray(network(tokens)["sequence_output"])
        mask = np.asarray(tokens["padding_mask"])[..., None]
        return (outputs * mask).sum(axis=1) / mask.sum(axis=1)

    return folder, own


def test_images_get_the_scale_that_the_network_was_trained_with(of_images, rng):
    folder, own = of_images
    name = f"keras_hub/{folder}"
    backbone = pretrained_backbone(name)
    images = rng.integers(0, 256, (3, 32, 32, 3)).astype("uint8")
    found = keras.ops.convert_to_numpy(backbone(images))
    np.testing.assert_allclose(found, own(images), rtol=1e-4, atol=1e-5)
    assert not backbone.trainable_weights
    assert pretrained.image_size_of(name) == 32
    assert pretrained_backbone(name, image_size=40)(images).shape == (3, 64)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="texts")
def test_texts_become_the_mean_over_their_tokens(of_texts, tmp_path):
    """As KerasHub takes them apart; also in a product, saved and loaded."""
    folder, own = of_texts
    backbone = pretrained_backbone(f"keras_hub/{folder}")
    expected = own(TEXTS)
    np.testing.assert_allclose(
        backbone.predict(TEXTS, verbose=0), expected, rtol=1e-4, atol=1e-5
    )
    again = copied(keras.Sequential([backbone, keras.layers.Dense(2)]))
    np.testing.assert_array_equal(
        again.layers[-2].predict(TEXTS, verbose=0),
        backbone.predict(TEXTS, verbose=0),
    )
    y = np.arange(30) % 3
    head = keras.Sequential([keras.Input([32]), keras.layers.Dense(3)])
    head.set_weights([np.linalg.pinv(expected)[:, :3], np.zeros(3)])
    model = cac_tf.OpenSetClassifier.from_classifier(
        head,
        (expected[y], y),
        score="knn",
        validation_data=(expected[y], y),
    ).with_backbone(backbone)
    found = model.predict_open_set(TEXTS)
    np.testing.assert_array_equal(found.predicted_class_id, [0, 1, 2])
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = cac_tf.load_model(path).predict_open_set(TEXTS)
    np.testing.assert_array_equal(loaded.unknown_score, found.unknown_score)


def test_what_is_refused(of_images, of_texts, monkeypatch):
    folder, _ = of_images
    with pytest.raises(ValueError, match="keras_hub/nonesuch cannot be loa"):
        pretrained_backbone("keras_hub/nonesuch")
    with pytest.raises(ValueError, match="has weights of its own"):
        pretrained_backbone(f"keras_hub/{folder}", weights="imagenet")
    with pytest.raises(
        ValueError, match="takes texts, so image_size=9 cannot be used"
    ):
        pretrained_backbone(f"keras_hub/{of_texts[0]}", image_size=9)
    import keras_hub

    def from_preset(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(keras_hub.models.Backbone, "from_preset", from_preset)
    with pytest.raises(
        OSError, match="save it with keras_hub.models.Backbone.f"
    ):
        pretrained_backbone("keras_hub/bert_tiny_en_uncased")
