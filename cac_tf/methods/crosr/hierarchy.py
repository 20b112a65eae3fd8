# SPDX-License-Identifier: Apache-2.0
"""The network of CROSR: a classifier that reconstructs from several depths."""

import keras
from keras import layers

from cac_tf.keras_private import calls_of
from cac_tf.layers.precision import dtype_policy
from cac_tf.methods.reconstruction import image_networks
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import logits_of
from cac_tf.models.features import one_or_all
from cac_tf.models.networks import network_parts


@dtype_policy("float32")
def with_hierarchical_reconstruction(
    network, statistics, latent_channels, weight_decay, seed
):
    r"""A classifier that also draws its input again, from maps of all depths.

    With the maps \\(x_l\\) of `maps_of`, the smallest being \\(x_L\\), and
    \\(g_L = 0\\), the hierarchical reconstruction net (DHRNet) is

    - \\(z_l = \mathrm{relu}(\mathrm{conv}(x_l))\\), of few channels,
    - \\(g_{l-1} = \mathrm{deconv}(\mathrm{conv}(z_l) + g_l)\\), as large as
      \\(x_{l-1}\\), with a ReLU, or, for the reconstruction \\(g_0\\), a
      sigmoid.

    Args:
        network: functional or Sequential model, normalized (B, H, W, C)
            images -> (B, K) logits.
        statistics: mean and std of the channels, for pixels in [0, 1].
        latent_channels: channels M of each z_l.
        weight_decay: L2 penalty on the weights that are added, as of the
            networks.
        seed: seed of their initialization.

    Returns:
        Functional model, (B, H, W, C) -> dict of float32: `logits`; `latents`,
        (B, L M), the means of each z_l over its places, from the largest map
        on; `reconstruction`, (B, H, W, C) in [0, 1], and `pixels`, what it
        should be. It shares its other layers with the network.

    Raises:
        ValueError: the network has no such maps.
    """
    maps = maps_of(network)
    images = one_or_all(network.inputs)
    # Other random numbers than those of the network.
    seeds = network_parts.seed_sequence((seed + 1) % 2**31)
    penalty = network_parts.l2_penalty(weight_decay)

    def made(kind, filters, size, name, **kwargs):
        return kind(
            filters,
            size,
            padding="same",
            kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
            kernel_regularizer=penalty,
            bias_regularizer=penalty,
            name=name,
            **kwargs,
        )

    means, drawn = [], None
    for depth in range(len(maps), 0, -1):
        small = maps[depth - 1]
        large = maps[depth - 2] if depth > 1 else images
        latents = made(
            layers.Conv2D,
            latent_channels,
            3,
            f"lateral{depth}",
            activation="relu",
        )(small)
        means.append(
            layers.GlobalAveragePooling2D(name=f"latents{depth}")(latents)
        )
        back = made(layers.Conv2D, small.shape[-1], 3, f"back{depth}")(latents)
        if drawn is not None:
            back = layers.Add(name=f"sum{depth}")([back, drawn])
        size, wanted = small.shape[1:3], large.shape[1:3]
        strides = tuple(-(-w // s) for w, s in zip(wanted, size, strict=True))
        drawn = made(
            layers.Conv2DTranspose,
            large.shape[-1],
            strides,
            f"up{depth}",
            strides=strides,
            activation="relu" if depth > 1 else "sigmoid",
        )(back)
        rest = [
            (0, f * s - w)
            for f, s, w in zip(strides, size, wanted, strict=True)
        ]
        if any(map(any, rest)):
            drawn = layers.Cropping2D(rest, name=f"crop{depth}")(drawn)
    if len(means) > 1:
        means = layers.Concatenate(name="latents")(means[::-1])
    else:
        (means,) = means
    return keras.Model(
        images,
        {
            "logits": logits_of(network),
            "latents": means,
            "reconstruction": drawn,
            "pixels": image_networks.pixels_again(images, statistics),
        },
        name="crosr",
    )


def maps_of(network):
    """The first map of each size, as the next convolution sees it.

    Sizes count that are at most half of the one before, the image's being the
    first: what follows a strided convolution or a pooling, with its
    normalization, activation and dropout.

    Args:
        network: functional or Sequential model on images.

    Returns:
        List of (B, h, w, c) Keras tensors, the largest first.

    Raises:
        ValueError: there is none.

    Example:

    >>> import cac_tf
    >>> [tuple(x.shape[1:]) for x in maps_of(cac_tf.models.openset_cnn(3))]
    [(16, 16, 128), (8, 8, 128), (4, 4, 128)]
    """
    found, is_open = [], False
    for layer in network.layers if has_graph(network) else ():
        (output, *others), *_ = calls_of(network, layer.name)
        if (
            others
            or len(output.shape) != 4
            or isinstance(layer, layers.ZeroPadding2D)
        ):
            continue
        size = output.shape[1:3]
        last = (found[-1] if found else one_or_all(network.inputs)).shape[1:3]
        is_half = all(2 * s <= b + 1 for s, b in zip(size, last, strict=True))
        if is_half and size != last:  # Of one place, the half is itself.
            found.append(output)
            is_open = True
        elif is_open and size == last and not hasattr(layer, "kernel_size"):
            found[-1] = output
        else:
            is_open = False
    if not found:
        raise ValueError(
            f"The network {network.name!r} has no feature maps to reconstruct "
            "images from: no layer returns (batch, height, width, channels) "
            "with at most half the height and width of the images. Choose a "
            "convolutional network, functional or Sequential."
        )
    return found
