# SPDX-License-Identifier: Apache-2.0
"""Graphs from what a served model takes to its embedding."""

from collections.abc import Callable
from typing import Any

from cac_tf.export.defaults import DEFAULT_MAX_PIXELS
from cac_tf.export.image_decoding import decode_images
from cac_tf.models.embeddings import embedding_model
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.models.raw_inputs import takes_encoded_images


def embedding_graphs(model: OpenSetClassifier) -> dict[str, Callable[..., Any]]:
    """Functions that compute (B, E) embeddings, by what they take.

    Args:
        model: `OpenSetClassifier`.

    Returns:
        Dict: `inputs`, of (B, ...) raw inputs, and `files`, of (B,) contents of
        files, which a model of images of a known size with one or three
        channels has.

    Raises:
        ValueError: see `embedding_model`.
    """
    import tensorflow as tf

    network = embedding_model(model.classifier)
    taken, shape = model.inputs_taken, model.inputs_taken.fixed_shape

    def inputs(rows):
        return network(tf.cast(rows, taken.dtype), training=False)

    def files(contents):
        pixels, _ = decode_images(
            contents,
            *shape,
            DEFAULT_MAX_PIXELS,
            interpolation=taken.interpolation,
        )
        return inputs(pixels)

    spec = tf.TensorSpec((None, *shape), taken.dtype)
    made = {"inputs": tf.function(inputs, [spec], autograph=False)}
    if takes_encoded_images(shape):
        spec = tf.TensorSpec((None,), tf.string)
        made["files"] = tf.function(files, [spec], autograph=False)
    return made
