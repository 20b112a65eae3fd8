# SPDX-License-Identifier: Apache-2.0
"""Networks that somebody has trained, as far as their embedding."""

import importlib
import os
import re

import keras
import numpy as np

from cac_tf import keras_private
from cac_tf.annotations import Path
from cac_tf.arguments import whole_number
from cac_tf.layers.image_preprocessing import ImagePreprocessing
from cac_tf.models import hub_network
from cac_tf.models.features import with_features
from cac_tf.models.inputs import check_takes_one_array
from cac_tf.models.inputs import kind_of_inputs
from cac_tf.models.keras_file import load_keras_file
from cac_tf.models.networks import registry as networks
from cac_tf.models.raw_inputs import TEXTS
from cac_tf.registry import did_you_mean

# Of images, for networks that take any size: most are trained with it.
_USUAL_SIZE = 224


def pretrained_backbone(
    network: Path,
    *,
    weights: Path | None = None,
    image_size: int | None = None,
) -> keras.Model:
    """A pretrained network, from raw inputs to its embedding.

    It is frozen: no weight is trained, and batch normalization uses its stored
    statistics. Pixel scaling or text tokenization is one of its layers.

    Args:
        network: "keras_applications/NAME", a function in `keras.applications`;
            "keras_hub/PRESET", a backbone of KerasHub for images or texts,
            whose PRESET is a name there or a folder that its `save_to_preset`
            wrote; or the path of a `.keras` file with any model of images of
            0...255, whose last dense layer is removed, if it ends in one.
            Feature maps and tokens are averaged.
        weights: None: the network's own, ImageNet's for `keras.applications`;
            "imagenet"; a weights file for the network without its top; or
            "none" for random weights.
        image_size: height and width that images are resampled to. None: for
            `keras.applications` and KerasHub, the preset's size or 224; for a
            file, the size of its `Input`, or no resampling if that takes any
            size. If the file takes only one size, only that size (its longer
            side) is allowed.

    Returns:
        Keras model, (B, H, W, C) pixels of 0...255, or (B,) texts, -> (B, E)
        float32.

    Raises:
        ValueError: no such network, weights that do not fit, or a file that
            `cac_tf.load_model` would not load either.
        FileNotFoundError: no such file.
        ModuleNotFoundError: a KerasHub network without that package.
        OSError: the weights are not on this machine, and cannot be downloaded;
            the message says where they were looked for.

    Example:

    >>> backbone = pretrained_backbone(
    ...     "keras_applications/MobileNetV2", weights="none", image_size=32)
    >>> backbone(np.zeros((2, 50, 40, 3), "uint8")).shape[1], backbone.trainable
    (1280, False)
    """
    network = os.fspath(network)
    if image_size is not None:
        image_size = whole_number("image_size", image_size)
    given = None if weights is None else os.fspath(weights)
    if network.startswith(networks.APPLICATIONS):
        name = network.removeprefix(networks.APPLICATIONS)
        parts = _of_applications(name, given, image_size)
    elif network.startswith(networks.HUB):
        parts = _of_hub(network, given, image_size)
    elif network.endswith(networks.FILE):
        parts = _of_file(network, given, image_size)
    else:
        raise ValueError(
            f"Unknown pretrained network {network!r}: must be "
            f"{networks.PRETRAINED}."
        )
    shape, layers = parts
    inputs = (
        keras.Input(shape, name="images")
        if shape
        else keras.Input(shape, dtype=TEXTS, name="inputs")
    )
    x = inputs
    for layer in layers:
        x = layer(x)
    if len(x.shape) == 3:  # Tokens, or patches in a row.
        x = keras.layers.GlobalAveragePooling1D(name="pool")(x)
    elif len(x.shape) == 4:
        x = keras.layers.GlobalAveragePooling2D(name="pool")(x)
    if len(x.shape) != 2:
        raise ValueError(
            f"The embedding of {network} must be a vector or a feature map "
            f"for each input; it has shape {tuple(x.shape)}."
        )
    x = keras.layers.Activation("linear", dtype="float32", name="embedding")(x)
    backbone = keras.Model(inputs, x, name="backbone")
    backbone.trainable = False
    return backbone


def image_size_of(network: Path) -> int:
    """Height and width of the images that a pretrained network is made for.

    Args:
        network: as of `pretrained_backbone`.

    Returns:
        Of a file the size that its model takes, the longer side, and of
        KerasHub what the preset says; 224 where that is any size, and for
        networks of `keras.applications`.

    Raises:
        ValueError, FileNotFoundError: as of `pretrained_backbone`.
    """
    network = os.fspath(network)
    if network.startswith(networks.HUB):
        return hub_network.image_size_of(network) or _USUAL_SIZE
    if not network.endswith(networks.FILE):
        return _USUAL_SIZE
    model = _model_in(network)
    sizes = kind_of_inputs(model).fixed_shape[:2]
    return _USUAL_SIZE if None in sizes else max(sizes)


def thaw(backbone: keras.Model) -> None:
    """Lets a network be trained on, but for its batch normalization.

    That has statistics of many images, and keeps them.

    Args:
        backbone: of `pretrained_backbone`.
    """
    backbone.trainable = True
    for layer in keras_private.layers_inside(backbone):
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False


def _of_applications(name, weights, image_size):
    """Input shape, and the layers: a resampling, a scaling, the network."""
    make = getattr(keras.applications, name, None)
    names = [
        one for one in dir(keras.applications) if one[0].isupper()
    ]  # Functions; modules are in lower case.
    if name not in names:
        raise ValueError(
            "keras.applications has no network "
            f"{name!r}{did_you_mean(name, names)} Available: "
            f"{', '.join(names)}."
        )
    if weights is None:
        weights = "imagenet"
    elif weights not in ("imagenet", "none"):
        _check_file(weights)
    try:
        network = make(
            include_top=False,
            pooling="avg",
            weights=None if weights == "none" else weights,
        )
    except Exception as error:
        url = re.search(r"https?://\S+/([^/\s:]+)", str(error))
        if url is None or weights != "imagenet":
            raise ValueError(
                f"{networks.APPLICATIONS}{name} cannot be created with "
                f"weights={weights!r}: {' '.join(str(error).split())}"
            ) from error
        raise OSError(
            f"The weights of {name} are not on this machine, and there is no "
            f"connection to download them: save the file from {url.group()} "
            f"as {_kept_at(url.group(1))}, or set weights= to a file that you "
            "have."
        ) from error
    module = importlib.import_module(
        "keras.applications." + make.__module__.rsplit(".", 1)[-1]
    )
    size = image_size or _USUAL_SIZE
    return (None, None, 3), [
        ImagePreprocessing(size, size, "bicubic", name="prepare"),
        _scaling(module.preprocess_input),
        network,
    ]


def _of_hub(network, weights, image_size):
    _has_own_weights(network, weights)
    backbone = hub_network.backbone_of(network)
    if hub_network.takes_texts(backbone):
        if image_size is not None:
            raise ValueError(
                f"{network} takes texts, so image_size={image_size} cannot be "
                "used."
            )
        return (), hub_network.layers_of_texts(network, backbone)
    *size, channels = backbone.input_shape[1:]
    if None in size and image_size is None:
        image_size = image_size_of(network)
    size = _size_taken(network, size, image_size)
    return (None, None, channels), [
        ImagePreprocessing(*size, "bicubic", name="prepare"),
        hub_network.scale_of_pixels(network),
        backbone,
    ]


def _of_file(path, weights, image_size):
    _has_own_weights(path, weights)
    model = _model_in(path)
    shape = tuple(model.input_shape[1:])
    try:
        cut = with_features(model)[0]
        model = keras.Model(cut.inputs[0], cut.outputs[0], name=model.name)
    except ValueError:
        if len(model.outputs) != 1:
            raise
        # It ends in no dense layer: in an embedding, or a map.
    *size, channels = shape
    if None in size and image_size is None:
        return shape, [model]
    size = _size_taken(path, size, image_size)
    return (None, None, channels), [
        ImagePreprocessing(*size, "bicubic", name="prepare"),
        keras.layers.Rescaling(255.0, dtype="float32", name="pixels"),
        model,
    ]


def _has_own_weights(network, weights):
    if weights is not None:
        raise ValueError(
            f"{network} has weights of its own: leave out weights={weights!r}."
        )


def _size_taken(network, size, image_size):
    """Height and width that a network gets, from those it takes."""
    if None in size:
        return [image_size, image_size]
    if image_size not in (None, max(size)):
        raise ValueError(
            f"{network} accepts only images of {'x'.join(map(str, size))}: "
            f"leave out image_size={image_size}."
        )
    return size


def _model_in(path):
    """The model of images in a file."""
    model = load_keras_file(path)
    model = getattr(model, "classifier", model)  # Of an OpenSetClassifier.
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"{path} contains a {type(model).__name__}, not a model."
        )
    check_takes_one_array(model, path)
    shape = tuple(model.input_shape[1:])
    if len(shape) != 3:
        raise ValueError(
            f"{path} expects inputs of shape {shape}; a pretrained network "
            "must take images, (height, width, channels)."
        )
    return model


def _scaling(preprocess_input):
    """A layer from [0, 1] to what `preprocess_input` makes of 0...255.

    It is affine in each pixel, so its values of four pixels say all of it:
    the means of Caffe's networks, which take blue first, as well as PyTorch's.
    """
    pixels = np.zeros((1, 1, 4, 3), "float64")
    pixels[0, 0, :3] = 255.0 * np.eye(3)
    *colors, offset = preprocess_input(pixels, data_format="channels_last")[
        0, 0
    ]
    kernel = np.stack(colors) - offset
    scale = np.diag(kernel)
    if np.array_equal(kernel, np.diag(scale)):
        if np.ptp(scale) == np.ptp(offset) == 0:
            scale, offset = scale[:1], offset[:1]
        scale, offset = (
            [float(one) for one in values] for values in (scale, offset)
        )
        if len(scale) == 1:
            scale, offset = scale[0], offset[0]
        return keras.layers.Rescaling(
            scale, offset, dtype="float32", name="scale"
        )
    layer = keras.layers.Dense(3, dtype="float32", name="scale")
    layer.build((None, None, None, 3))
    layer.set_weights([kernel, offset])
    return layer


def _check_file(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"Weights file not found: {path}. weights must be a file, "
            '"imagenet" or "none".'
        )


def _kept_at(name):
    """Where Keras looks for a file of weights."""
    home = os.environ.get("KERAS_HOME", os.path.join("~", ".keras"))
    return os.path.join(os.path.expanduser(home), "models", name)
