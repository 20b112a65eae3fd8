# SPDX-License-Identifier: Apache-2.0
"""Networks of KerasHub, from raw inputs to what they make of them."""

import os

import keras

from cac_tf import lazy
from cac_tf.layers.tokens_of_texts import TokensOfTexts
from cac_tf.models.networks import registry as networks

keras_hub = lazy.module("keras_hub", "hub")


def image_size_of(network: str) -> int | None:
    """Height and width of the images that a network is made for.

    None: it says none, or takes texts.
    """
    maker = keras_hub.layers.ImageConverter
    try:
        size = maker.from_preset(_preset(network)).image_size
    except Exception:  # (Whatever is wrong, the network itself will say.)
        return None
    return None if size is None else max(size)


def takes_texts(network: keras.Model) -> bool:
    """Whether a backbone of KerasHub is one of tokens."""
    return isinstance(network.input, dict) and "token_ids" in network.input


def backbone_of(network: str) -> keras.Model:
    """`keras_hub.models.Backbone` with trained weights.

    Args:
        network: "keras_hub/" and a preset.

    Raises:
        ModuleNotFoundError: there is no package keras_hub.
        ValueError: no such preset, or one that cannot be used here.
        OSError: it is not on this machine, and cannot be downloaded.
    """
    maker = keras_hub.models.Backbone
    preset = _preset(network)
    try:
        found = maker.from_preset(preset)
    except (ImportError, MemoryError):
        raise
    except OSError as error:  # (Of connections, too.)
        kept = os.environ.get("KAGGLEHUB_CACHE", "~/.cache/kagglehub")
        raise OSError(
            f"{network} is not on this machine, and there is no connection to "
            "download it. On another machine, save it with "
            f"keras_hub.models.Backbone.from_preset({preset!r})"
            ".save_to_preset(FOLDER), including its preprocessor, and use "
            f"{networks.HUB}FOLDER; or copy what keras_hub has downloaded "
            f"there into {os.path.expanduser(kept)}."
        ) from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{network} cannot be loaded: {text}") from error
    if isinstance(found.input, dict) and not takes_texts(found):
        names = ", ".join(found.input)
        raise ValueError(
            f"{network} takes {names}; a pretrained network must take only "
            "images or only texts."
        )
    return found


def scale_of_pixels(network: str) -> keras.Layer:
    """From [0, 1] to what a network of images wants."""
    converter = keras_hub.layers.ImageConverter.from_preset(_preset(network))
    scale = 1.0 if converter.scale is None else converter.scale
    offset = 0.0 if converter.offset is None else converter.offset
    if isinstance(scale, (tuple, list)):
        scale = [255.0 * one for one in scale]
    else:
        scale = 255.0 * scale
    return keras.layers.Rescaling(scale, offset, dtype="float32", name="scale")


def layers_of_texts(network: str, backbone: keras.Model) -> list[keras.Layer]:
    """From texts to the mean over what a network makes of their tokens.

    Args:
        network: as of `backbone_of`.
        backbone: its result.
    """
    preprocessor = keras_hub.models.TextClassifierPreprocessor.from_preset(
        _preset(network)
    )
    outputs = backbone.output
    if isinstance(outputs, dict):
        outputs = outputs["sequence_output"]
    mask = keras.ops.cast(backbone.input["padding_mask"], "bool")
    pool = keras.layers.GlobalAveragePooling1D(name="pool")
    return [
        TokensOfTexts(preprocessor, name="tokens"),
        keras.Model(backbone.input, pool(outputs, mask=mask), name="encoder"),
    ]


def _preset(network):
    return network.removeprefix(networks.HUB)
