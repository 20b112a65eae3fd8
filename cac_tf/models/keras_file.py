# SPDX-License-Identifier: Apache-2.0
"""Loading any model from a `.keras` file that somebody else may have made."""

import json
import os
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import h5py
import keras

from cac_tf import keras_private
from cac_tf.annotations import Path

# Keras stores the members of its files as they are, and weights hardly shrink
# where somebody has compressed them: what a file holds, its records and the
# weights of its configuration take no more than this multiple of its size, or
# than this.
_LARGEST_EXPANSION = 20
_ALWAYS_ALLOWED = 2**26
# Three, and one for the vocabulary of each layer that has one.
_MOST_MEMBERS = 1000
_WEIGHTS, _ASSETS = "model.weights.h5", "assets/"
_TRUSTED = {"keras", "cac_tf", "builtins"}
_OTHERS = {_WEIGHTS, "config.json", "metadata.json"}


class _Refusal(ValueError):
    """Of a file that is whole."""


def load_keras_file(
    path: Path, custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """The model in a `.keras` file, for prediction.

    Args:
        path: of the file.
        custom_objects: the user's own classes and functions, by name.

    Returns:
        What the file holds.

    Raises:
        FileNotFoundError, ValueError: see `cac_tf.load_model`.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"Model file not found: {path}.")
    if os.path.isdir(path):
        raise ValueError(_about_a_folder(path))
    config = check_model_file(path)
    try:
        _check_plan(path, config, custom_objects)
        return keras.saving.load_model(
            path, custom_objects=custom_objects, compile=False
        )
    except (MemoryError, KeyboardInterrupt, _Refusal):
        raise
    except Exception as error:
        raise ValueError(
            f"{path} cannot be loaded: {_sentences(error)}"
        ) from error


def _about_a_folder(path):
    files = sorted(n for n in os.listdir(path) if n.endswith(".keras"))
    if "model.keras" in files:
        files = ["model.keras"]
    if files:
        return f"{path} is a folder; load the model file in it: {files[0]}."
    return (
        f"{path} is a folder without a model file, which must end in .keras. "
        "(A model exported for a server cannot be loaded again.)"
    )


def check_model_file(path: Path) -> dict[str, Any]:
    """Raises ValueError unless a `.keras` file is whole and of a sane size.

    It is an archive. Checksums are compared, so that a damaged weight is not
    taken for a weight, but nothing is read before the sizes are known.

    Args:
        path: of the file.

    Returns:
        The configuration that it holds.
    """
    size = os.path.getsize(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(path, archive.infolist())
            damaged = archive.testzip()
            if not damaged:
                with archive.open(_WEIGHTS) as file:
                    _check_size(path, "its records", _size_of_records(file))
                return json.loads(archive.read("config.json"))
    except _Refusal:
        raise
    except Exception as error:
        # (Damaged archives raise errors of many kinds.)
        raise ValueError(
            f"{path} ({size:,} bytes) is not a model file, or is truncated or "
            f"damaged: {_sentences(error)}"
        ) from error
    raise ValueError(
        f"{path} is damaged: the checksum of its member {damaged} is wrong."
    )


def _check_members(path, members):
    names = {member.filename for member in members}
    others = [name for name in names - _OTHERS if not name.startswith(_ASSETS)]
    if others:
        raise _Refusal(
            f"{path} was not loaded: a model file does not contain "
            f"{min(others)!r}."
        )
    if len(members) > min(_MOST_MEMBERS, len(names)):
        raise _Refusal(
            f"{path} was not loaded: it has {len(members):,} members, more "
            f"than {_MOST_MEMBERS:,} or with duplicate names."
        )
    _check_size(path, "its members", sum(one.file_size for one in members))


def _size_of_records(file):
    """Bytes of the weights in a file, as they will be in memory."""
    sizes = []

    def add(name, found):
        if isinstance(found, h5py.Dataset):
            sizes.append(found.nbytes)

    with h5py.File(file) as records:
        records.visititems(add)
    return sum(sizes)


def _check_plan(path, config, custom_objects):
    """Compares the weights that a configuration speaks of with the file."""
    try:
        count = keras_private.planned_weights(config, custom_objects)
    except ValueError as error:
        modules = re.findall('"module": "([^".]+)', json.dumps(config))
        if "stateless scope" in str(error) and set(modules) - _TRUSTED:
            # The user's own layer makes a variable in a way of its own.
            return
        raise
    _check_size(path, "the weights of its configuration", 4 * count)


def _check_size(path, what, size):
    allowed = max(_ALWAYS_ALLOWED, _LARGEST_EXPANSION * os.path.getsize(path))
    if size > allowed:
        raise _Refusal(
            f"{path} was not loaded: {what} would need {size:,} bytes; the "
            f"limit for a file of its size is {allowed:,}."
        )


def _sentences(error):
    """The text of an error in one line, or its kind where it has none."""
    # (Keras puts whole configurations around what is wrong.)
    text = " ".join(str(error).split()).split("Exception encountered: ")[-1]
    text, _, config = text.partition(" Full object config: ")
    module = re.search("'module': '([^']+)'", config)
    if module:
        text += f" (It belongs to the module {module.group(1)}.)"
    if "`Lambda`" in text:
        return (
            "it has a Lambda layer, and code stored in files is not "
            "executed. Build the classifier from other layers: those of "
            "keras.layers (Rescaling, Normalization) and cac_tf.layers "
            "(ImagePreprocessing), or a class of your own that you pass to "
            "load_model as custom_objects. For a file that you trust, first "
            "call keras.config.enable_unsafe_deserialization()."
        )
    return text or type(error).__name__
