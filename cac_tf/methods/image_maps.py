# SPDX-License-Identifier: Apache-2.0
"""Images made of small maps, as generators and decoders make them."""

from keras import layers

# Between an image and its smallest map.
_SHRINKS = 8


def smallest_map(image_shape):
    """(height, width) of the map that becomes an image (height, width, C).

    Example:

    >>> smallest_map((32, 32, 3)), smallest_map((13, 20, 3))
    ((4, 4), (2, 3))
    """
    return tuple(-(-size // _SHRINKS) for size in image_shape[:2])


def cropped(x, image_shape):
    """Images from a `smallest_map` doubled three times, cut to their size.

    Args:
        x: (B, h, w, C) Keras tensor.
        image_shape: (height, width, channels).
    """
    rest = [
        _SHRINKS * size - wanted
        for size, wanted in zip(
            smallest_map(image_shape), image_shape[:2], strict=True
        )
    ]
    if not any(rest):
        return x
    cropping = [(0, one) for one in rest]
    return layers.Cropping2D(cropping, name="crop")(x)


def image_of_map(
    x, image_shape, width, *, initializer, slope, normalization, use_bias
):
    """The image that four transposed convolutions make of its smallest map.

    They are those of the generator of Neal et al. (ECCV 2018).

    Args:
        x: (B, h, w, C) Keras tensor, of the size of `smallest_map`.
        image_shape: (height, width, channels).
        width: an eighth of the filters of the first of them.
        initializer: function that gives the initializer of the next one.
        slope: of the leaky ReLUs.
        normalization: class of the batch normalizations.
        use_bias: whether the last convolution has a bias.

    Returns:
        (B, height, width, channels) Keras tensor in [0, 1].
    """
    channels = image_shape[-1]
    for index, (filters, size, strides) in enumerate(
        (
            (8 * width, 1, 1),
            (4 * width, 4, 2),
            (2 * width, 4, 2),
            (channels, 4, 2),
        )
    ):
        is_last = index == 3
        x = layers.Conv2DTranspose(
            filters,
            size,
            strides=strides,
            padding="same",
            use_bias=use_bias and is_last,
            kernel_initializer=initializer(),
            name=f"up{index}",
        )(x)
        if not is_last:
            x = layers.LeakyReLU(slope, name=f"relu{index}")(x)
            x = normalization(momentum=0.9, epsilon=1e-5, name=f"norm{index}")(
                x
            )
    x = layers.Activation("sigmoid", name="pixels")(x)
    return cropped(x, image_shape)
