# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import PIL.Image
import pytest

from cac_tf.data.channel_statistics import channel_statistics
from cac_tf.layers import ChannelNormalization
from cac_tf.layers import ImagePreprocessing


def test_normalizes_the_images_its_statistics_come_from(rng):
    images = rng.integers(0, 256, (50, 6, 6, 3)).astype("uint8")
    mean, std = channel_statistics(images)
    prepared = ImagePreprocessing(6, 6)(images)
    # The sums of 1800 pixels would round more than the layer does.
    out = np.float64(ChannelNormalization(mean, std)(prepared))
    np.testing.assert_allclose(out.mean(axis=(0, 1, 2)), 0.0, atol=1e-6)
    np.testing.assert_allclose(out.std(axis=(0, 1, 2)), 1.0, atol=1e-6)


def test_uint8_and_float_give_the_same(rng):
    images = rng.integers(0, 256, (4, 6, 6, 3)).astype("uint8")
    layer = ImagePreprocessing(8, 8)
    np.testing.assert_array_equal(
        np.asarray(layer(images)), np.asarray(layer(images.astype("float32")))
    )


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [8, 24])
def test_resizes_like_pillow(rng, size, interpolation):
    """With antialiasing; Pillow rounds to whole grey levels."""
    coarse = rng.integers(0, 256, (4, 4)).astype("uint8")
    picture = PIL.Image.fromarray(coarse).resize((16, 16))
    way = PIL.Image.Resampling[interpolation.upper()]
    resized = picture.resize((size, size), way)
    images = np.asarray(picture)[None, :, :, None]
    layer = ImagePreprocessing(size, size, interpolation)
    out = 255 * np.asarray(layer(images))[0, :, :, 0]
    assert out.min() >= 0
    assert out.max() <= 255
    assert np.abs(out - np.asarray(resized)).max() <= 1.01


@pytest.mark.parametrize("size", [8, 16, None])
def test_only_tensorflow_cannot_shrink_in_xla(size):
    layer = ImagePreprocessing(8, 8)
    layer.build((None, size, size, 1))
    is_tensorflow = keras.backend.backend() == "tensorflow"
    assert layer.supports_jit is (size == 8 or not is_tensorflow)


def test_a_constant_channel_has_deviation_one():
    mean, std = channel_statistics(np.full((3, 2, 2, 1), 51, "uint8"))
    assert mean == [0.2]
    assert std == [1.0]


def test_bad_arguments():
    with pytest.raises(ValueError, match="at least 1"):
        ImagePreprocessing(0, 8)
    with pytest.raises(ValueError, match="interpolation must be one of bilin"):
        ImagePreprocessing(8, 8, "cubic")
    with pytest.raises(ValueError, match="std must be finite and > 0"):
        ChannelNormalization([0.5], [0.0])
    with pytest.raises(ValueError, match="mean must be finite"):
        ChannelNormalization([np.nan], [1.0])
    with pytest.raises(ValueError, match="mean has 2 entries for .* 3 chan"):
        ChannelNormalization([0.1, 0.2], [1.0])(np.zeros((1, 8, 8, 3)))
    with pytest.raises(ValueError, match="must have shape"):
        ImagePreprocessing(8, 8)(np.zeros((8, 8, 3)))
    with pytest.raises(ValueError, match="at least one image"):
        channel_statistics(np.zeros((0, 2, 2, 1)))
