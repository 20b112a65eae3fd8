# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys

import keras
import numpy as np
import PIL.Image
import pytest

from cac_tf.data.streamed_images import StreamedImages
from cac_tf.training.computed_features import computed_features
from cac_tf.training.computed_features import identity

module = sys.modules[computed_features.__module__]


@pytest.fixture
def network():
    return keras.Sequential(
        [
            keras.Input([4, 4, 3]),
            keras.layers.Conv2D(5, 3),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )


@pytest.fixture
def images(rng):
    return rng.integers(0, 256, (11, 4, 4, 3)).astype("uint8")


@pytest.fixture
def computed(network, monkeypatch):
    """The numbers of images that the network has computed, call by call."""
    counts = []
    predict = network.predict

    def counted(x, *args, **kwargs):
        counts.append(len(x))
        return predict(x, *args, **kwargs)

    monkeypatch.setattr(network, "predict", counted)
    monkeypatch.setattr(module, "_ROWS", 4)
    return counts


def test_each_image_is_computed_once(network, images, computed, tmp_path):
    expected = np.asarray(network(images), "float16")
    found = computed_features(network, images[[3, 3, 7, 1]], tmp_path)
    np.testing.assert_allclose(found, expected[[3, 3, 7, 1]], rtol=2e-3)
    assert computed == [3]
    found = computed_features(network, images[::-1], tmp_path)
    np.testing.assert_allclose(found, expected[::-1], rtol=2e-3)
    assert computed == [3, 4, 4]
    again = computed_features(network, images, tmp_path)
    np.testing.assert_array_equal(again, found[::-1])
    assert computed == [3, 4, 4]
    # Nor is anything computed for no images.
    assert computed_features(network, images[:0], tmp_path).shape == (0, 5)


def test_what_was_killed_goes_on(
    network, images, computed, tmp_path, monkeypatch
):
    write, blocks = module._write, []

    def killed(*args):
        if blocks:
            raise KeyboardInterrupt
        blocks.append(args)
        write(*args)

    monkeypatch.setattr(module, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        computed_features(network, images, tmp_path)
    # What a kill in the middle of writing leaves is not read.
    (folder,) = tmp_path.iterdir()
    (folder / ".cac_tf-writing-x.npz").write_bytes(b"half")
    monkeypatch.setattr(module, "_write", write)
    del computed[:]
    found = computed_features(network, images, tmp_path)
    assert computed == [4, 3]
    np.testing.assert_allclose(found, network(images), rtol=2e-3, atol=0.1)


def test_another_network_or_size_is_computed_anew(
    network, images, computed, tmp_path
):
    before = computed_features(network, images, tmp_path)
    del computed[:]
    network.set_weights([2 * weight for weight in network.get_weights()])
    after = computed_features(network, images, tmp_path)
    assert sum(computed) == len(images)
    np.testing.assert_allclose(after, 2 * before, rtol=4e-3)


def test_the_identity_is_not_a_matter_of_names(network):
    config = network.get_config()
    again = keras.models.clone_model(network)
    again.set_weights(network.get_weights())
    renamed = keras.Sequential(
        [
            keras.Input([4, 4, 3]),
            keras.layers.Conv2D(5, 3, name="other"),
            keras.layers.GlobalAveragePooling2D(name="names"),
        ],
        name="another",
    )
    renamed.set_weights(network.get_weights())
    assert identity(network) == identity(again) == identity(renamed)
    config["layers"][1]["config"]["activation"] = "relu"
    other = keras.Sequential.from_config(config)
    other.set_weights(network.get_weights())
    assert identity(other) != identity(network)


def test_files_that_are_decoded_when_needed(
    network, images, computed, tmp_path
):
    paths = []
    for place, image in enumerate(images):
        path = tmp_path / f"{place}.png"
        PIL.Image.fromarray(image).save(path)
        paths.append(os.fspath(path))
    kept = pathlib.Path(tmp_path, "kept")
    streamed = StreamedImages(paths, 4)
    digests = streamed.digests
    np.testing.assert_array_equal(streamed.facts.digests, digests)
    streamed = StreamedImages(paths, 4)  # Whose facts are not known.
    found = computed_features(network, streamed, kept)
    np.testing.assert_allclose(found, network(images), rtol=2e-3, atol=0.1)
    del computed[:]
    computed_features(network, StreamedImages(paths[::-1], 4), kept)
    assert computed == []


def test_a_network_that_gives_a_map_is_refused(images, tmp_path):
    network = keras.Sequential([keras.Input([4, 4, 3]), keras.layers.ReLU()])
    with pytest.raises(ValueError, match=r"\(None, 4, 4, 3\)\. Pool them"):
        computed_features(network, images, tmp_path)
    assert not any(tmp_path.iterdir())
