# SPDX-License-Identifier: Apache-2.0
"""A copy of a classifier, or a watch on one that is shared."""

import os
import tempfile
import warnings
import zlib

import keras
import numpy as np

from cac_tf import keras_private
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import named_tensors
from cac_tf.models.features import model_like


def copied(classifier):
    """A copy of a classifier with weights of its own, or None.

    Through a file, because only so all layers take what they hold besides
    weights (vocabularies, the statistics of `Normalization`).

    Args:
        classifier: built Keras model.

    Returns:
        The copy, not compiled; None of a model that cannot be made again from
        its config.
    """
    if has_graph(classifier):
        # Without its optimizer and losses, which may be of any kind.
        named = named_tensors(classifier)
        outputs = named if len(named) > 1 else named["logits"]
        classifier = model_like(classifier, outputs, name=classifier.name)
    own = {
        type(layer).__name__: type(layer)
        for layer in keras_private.layers_inside(classifier)
        if not type(layer).__module__.startswith("keras.")
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "classifier.keras")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                classifier.save(path)
                made = keras.saving.load_model(
                    path, custom_objects=own, compile=False, safe_mode=False
                )
        except Exception:  # Of code that is the user's own.
            return None
    is_whole = made.built and len(made.weights) == len(classifier.weights)
    return made if is_whole else None


def fingerprint(model):
    """A number that changes when a weight of a model does.

    Example:

    >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    >>> before = fingerprint(model)
    >>> model.set_weights([weight + 1 for weight in model.get_weights()])
    >>> fingerprint(model) == before
    False
    """
    found = 0
    for variable in model.weights:
        values = np.ascontiguousarray(keras.ops.convert_to_numpy(variable))
        found = zlib.crc32(values.view("uint8").reshape(-1), found)
    return found
