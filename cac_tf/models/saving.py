# SPDX-License-Identifier: Apache-2.0
"""Loading an open-set classifier from the file that it was saved to."""

import json
import os
import zipfile

import keras

from cac_tf.annotations import Path
from cac_tf.models.keeping import claimed_bytes
from cac_tf.models.open_set_classifier import OpenSetClassifier

# Keras stores the members of its files as they are, and weights hardly shrink
# where somebody has compressed them; a member that expands to more than this
# multiple of its size, and more than this, is not one that was saved.
_LARGEST_EXPANSION = 20
_ALWAYS_ALLOWED = 2**26


class _Refusal(ValueError):
    """Of a file that is whole."""


def load_model(path: Path) -> OpenSetClassifier:
    """Loads an `OpenSetClassifier` from the file that `save` wrote.

    `keras.saving.load_model` does so too, without these checks, after
    `from cac_tf import OpenSetClassifier`: it knows only classes that were
    imported, and `import cac_tf` imports none.

    Args:
        path: a `.keras` file.

    Returns:
        The model: classifier, centers, score, threshold, class names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is cut off or damaged, expands to far more than
            its size, or does not hold an `OpenSetClassifier`; the message
            names it.

    Example:

    >>> import os, tempfile, keras, cac_tf
    >>> classifier = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(classifier, ["left", "right"])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> cac_tf.load_model(path).class_names
    ('left', 'right')
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no model file {path}.")
    check_model_file(path)
    try:
        model = keras.saving.load_model(path)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise ValueError(
            f"{path} cannot be loaded: {_sentences(error)}"
        ) from error
    if not isinstance(model, OpenSetClassifier):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not an OpenSetClassifier."
        )
    return model


def check_model_file(path):
    """Raises ValueError unless a `.keras` file is whole and of a sane size.

    It is an archive. Checksums are compared, so that a damaged weight is not
    taken for a weight, but nothing is read before the sizes are known.

    Args:
        path: of the file.
    """
    size = os.path.getsize(path)
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                _check_expansion(path, member)
            _check_claims(path, archive)
            damaged = archive.testzip()
    except _Refusal:
        raise
    except Exception as error:
        # (Damaged archives raise errors of many kinds.)
        raise ValueError(
            f"{path} ({size:,} bytes) is no model file, or is cut off or "
            f"damaged: {_sentences(error)}"
        ) from error
    if damaged:
        raise ValueError(
            f"{path} is damaged: its member {damaged} does not have the "
            "checksum that it was saved with."
        )


def _check_expansion(path, member):
    allowed = max(_ALWAYS_ALLOWED, _LARGEST_EXPANSION * member.compress_size)
    if member.file_size > allowed:
        raise _Refusal(
            f"{path} is not loaded: its member {member.filename}, "
            f"{member.compress_size:,} bytes, would expand to "
            f"{member.file_size:,} bytes, more than {allowed:,}."
        )


def _check_claims(path, archive):
    """Compares what a configuration claims with the weights that are there."""
    weights = sum(
        member.file_size
        for member in archive.infolist()
        if member.filename.endswith(".h5")
    )
    config = json.loads(archive.read("config.json"))
    if config.get("class_name") != OpenSetClassifier.__name__:
        return
    claimed = claimed_bytes(config["config"])
    if claimed > weights:
        raise _Refusal(
            f"{path} is not loaded: its configuration speaks of statistics of "
            f"{claimed:,} bytes, and its weights have {weights:,}."
        )


def _sentences(error):
    """The text of an error in one line, or its kind where it has none."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
