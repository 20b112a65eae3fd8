# SPDX-License-Identifier: Apache-2.0
"""Weights that the paper's authors released, as an `OpenSetClassifier`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cac_tf.annotations import Path
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.models.image_classifier import image_parts
from cac_tf.models.networks.openset_cnn import openset_cnn
from cac_tf.models.open_set_classifier import OpenSetClassifier

if TYPE_CHECKING:
    import keras

_CONVOLUTIONS = range(1, 10)
_LAST_CHANNELS = 128
_DOWNSAMPLING = 8


def import_authors_weights(
    path: Path,
    class_names: Sequence[str],
    image_shape: tuple[int, ...],
    mean: float | Sequence[float] | np.ndarray,
    std: float | Sequence[float] | np.ndarray,
    augmentation: keras.layers.Layer | None = None,
    dropout: float = 0.2,
) -> OpenSetClassifier:
    """Makes a classifier from a checkpoint that the paper's authors released.

    The checkpoints are at github.com/dimitymiller/cac-openset. Only the
    benchmark's network is supported, not ResNet-18. Reading the file never runs
    code in it.

    Args:
        path: the .pth file of a CAC or a cross-entropy classifier.
        class_names: names of the known classes, in the order of the split
            that the checkpoint was trained on.
        image_shape: (height, width, channels) of the prepared images.
        mean, std: normalization that the weights were trained with, one
            number per channel.
        augmentation: layer that was used in training, to continue training.
        dropout: the dropout used in training.

    Returns:
        `OpenSetClassifier` with anchors and without a threshold; its score is
        gamma, or the largest softmax probability for a cross-entropy
        classifier.

    Raises:
        ValueError: PyTorch is not installed; the file is not such a
            checkpoint; or its number of classes, number of channels or input
            size does not match.
    """
    arrays, magnitude = read_authors_weights(path)
    _check_fit(arrays, path, class_names, image_shape)
    height, width, channels = image_shape
    network = openset_cnn(
        len(class_names), (height, width, channels), dropout=dropout
    )
    for i in _CONVOLUTIONS:
        kernel = arrays[f"encoder.conv{i}.weight"]  # (out, in, 3, 3)
        network.get_layer(f"conv{i}").set_weights(
            [kernel.transpose(2, 3, 1, 0)]
        )
        network.get_layer(f"norm{i}").set_weights(
            [
                arrays[f"encoder.bn{i}.{name}"]
                for name in ("weight", "bias", "running_mean", "running_var")
            ]
        )
    # PyTorch flattens (channels, height, width), Keras the other way round.
    kernel = arrays["classify.weight"].reshape(
        -1, _LAST_CHANNELS, height // _DOWNSAMPLING, width // _DOWNSAMPLING
    )
    kernel = kernel.transpose(2, 3, 1, 0).reshape(-1, len(class_names))
    network.get_layer("logits").set_weights([kernel, arrays["classify.bias"]])
    parts = image_parts(
        image_shape,
        np.broadcast_to(mean, channels),
        np.broadcast_to(std, channels),
        network,
        augmentation,
    )
    return OpenSetClassifier(
        parts.classifier(),
        class_names,
        score="gamma" if magnitude else "max_softmax",
        centers=magnitude or MAGNITUDE,
    )


def read_authors_weights(
    path: Path,
) -> tuple[dict[str, np.ndarray], float | None]:
    """The arrays of a checkpoint, without looking at any data.

    Args:
        path: the .pth file.

    Returns:
        Arrays by name, and the length of the anchors; None for a classifier
        trained by cross-entropy.

    Raises:
        ValueError: as `import_authors_weights`, but for what does not match.
    """
    arrays = _read(path)
    return arrays, _magnitude(arrays, path)


def _read(path):
    """The checkpoint's arrays by name."""
    if not os.path.isfile(path):
        raise ValueError(f"File not found: {path}.")
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            "Reading a .pth file needs PyTorch: pip install 'cac-tf[torch]'."
        ) from error
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} was not loaded: it is damaged, or it contains more than "
            "weights (such a file could run arbitrary code). "
            f"{str(error).splitlines()[0]}"
        ) from error
    except Exception as error:
        raise ValueError(
            f"{path} is not a readable PyTorch file: {error}"
        ) from error
    state = content.get("net") if isinstance(content, dict) else None
    needed = [
        *(f"encoder.conv{i}.weight" for i in _CONVOLUTIONS),
        *(
            f"encoder.bn{i}.{name}"
            for i in _CONVOLUTIONS
            for name in ("weight", "bias", "running_mean", "running_var")
        ),
        "classify.weight",
        "classify.bias",
    ]
    missing = [
        n for n in needed if not isinstance(state, dict) or n not in state
    ]
    if missing:
        raise ValueError(
            f"{path} is not a checkpoint of the paper's authors: "
            f"{len(missing)} of {len(needed)} arrays are missing, including "
            f"{missing[0]!r}."
        )
    return {
        name: value.numpy()
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _magnitude(arrays, path):
    """Length of the anchors; None for a cross-entropy classifier."""
    anchors = arrays.get("means")
    if anchors is None:
        return None
    magnitude = float(anchors.flat[0])
    if magnitude <= 0 or np.any(anchors != magnitude * np.eye(len(anchors))):
        raise ValueError(
            f"The anchors in {path} are not a multiple of the unit vectors."
        )
    return magnitude


def _check_fit(arrays, path, class_names, image_shape):
    height, width, channels = image_shape
    num_classes, width_of_features = arrays["classify.weight"].shape
    if num_classes != len(class_names):
        raise ValueError(
            f"{path} has {num_classes} classes, but the split of the data set "
            f"has {len(class_names)}: {', '.join(class_names)}."
        )
    own_channels = arrays["encoder.conv1.weight"].shape[1]
    if own_channels != channels:
        raise ValueError(
            f"{path} expects images with {own_channels} channels; the data "
            f"set has {channels}."
        )
    places = (height // _DOWNSAMPLING) * (width // _DOWNSAMPLING)
    if (
        height % _DOWNSAMPLING
        or width % _DOWNSAMPLING
        or width_of_features != places * _LAST_CHANNELS
    ):
        size = round((width_of_features / _LAST_CHANNELS) ** 0.5)
        size *= _DOWNSAMPLING
        raise ValueError(
            f"{path} expects images of {size}x{size} pixels; the data set has "
            f"{height}x{width}."
        )
