# SPDX-License-Identifier: Apache-2.0
"""The features of a classifier: the inputs of its last layer."""

import keras
import numpy as np
from keras import ops

from cac_tf.keras_private import calls_of
from cac_tf.keras_private import operation_behind
from cac_tf.keras_private import sources_of
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import last_tensor
from cac_tf.models.backbone_checks import logits_of
from cac_tf.scores.score import LastLayer

_MOST_NAMES = 30


def with_features(backbone, features_layer=None):
    """A model that gives the features of a backbone and its logits.

    Args:
        backbone: built Keras model, (B, ...) -> (B, N) logits.
        features_layer: name of the layer whose output is the features. None:
            the input of the dense layer that gives the logits.

    Returns:
        A functional model, (B, ...) -> (features, logits), which shares all
        layers; and the dense `keras.layers.Layer` that computes the logits
        from these features, or None if there is none.

    Raises:
        ValueError: no features can be found. The message names the existing
            layers.

    Example:

    >>> inputs = keras.Input([8])
    >>> hidden = keras.layers.Dense(5, activation="relu")(inputs)
    >>> backbone = keras.Model(inputs, keras.layers.Dense(3)(hidden))
    >>> both, last = with_features(backbone)
    >>> [tuple(output.shape) for output in both.outputs], last.units
    ([(None, 5), (None, 3)], 3)
    """
    if not has_graph(backbone):
        raise ValueError(
            f"The features of {type(backbone).__name__} {backbone.name!r} "
            "cannot be found, because custom code calls its layers "
            f"({_layer_names(backbone)}). Make it a functional or Sequential "
            "model, or choose a score that needs only logits."
        )
    if features_layer is None:
        found = _before_last_layer(backbone)
        if found is None:
            raise ValueError(
                "The features cannot be found, because the logits are not "
                "the output of a dense layer. Name the layer of the features "
                "with features_layer=; the layers are: "
                f"{_layer_names(backbone)}."
            )
        return found
    calls = calls_of(backbone, features_layer)
    if len(calls) != 1:
        problem = (
            "There is no layer" if not calls else "There are several calls of"
        )
        raise ValueError(
            f"{problem} {features_layer!r} for the features; the layers are: "
            f"{_layer_names(backbone)}."
        )
    if len(calls[0]) != 1:
        raise ValueError(
            f"The layer {features_layer!r} has {len(calls[0])} outputs; "
            "features must come from a layer with a single output."
        )
    ((features,),) = calls
    found = _before_last_layer(backbone)
    if found is not None and found[0].outputs[0] is features:
        return found
    return model_like(backbone, [features, logits_of(backbone)]), None


def flat(features):
    """(B, D) features: those of a map are averaged over its positions.

    Lee et al. (2018) treat the features of convolutions in this way.
    """
    if len(features.shape) > 2:
        axes = tuple(range(1, len(features.shape) - 1))
        features = ops.mean(ops.cast(features, "float32"), axis=axes)
    return ops.cast(features, "float32")


def last_layer_of(dense):
    """`LastLayer` of a dense layer's current weights; None for None."""
    if dense is None:
        return None
    kernel = np.float32(ops.convert_to_numpy(dense.kernel))
    bias = np.zeros(kernel.shape[1], "float32")
    if dense.bias is not None:
        bias = np.float32(ops.convert_to_numpy(dense.bias))
    return LastLayer(kernel, bias)


def model_like(like, outputs, **kwargs):
    """A model with the inputs of another one."""
    return keras.Model(one_or_all(like.inputs), outputs, **kwargs)


def one_or_all(tensors):
    """The tensor, or the list of them where there are several."""
    return tensors[0] if len(tensors) == 1 else tensors


def _before_last_layer(model):
    """`with_features` for the dense layer at a model's end, or None."""
    tensor = last_tensor(model)
    last = operation_behind(tensor)
    if isinstance(last, keras.layers.Dense):
        (features,) = sources_of(tensor)
        return model_like(model, [features, logits_of(model)]), last
    is_end = tensor is logits_of(model)
    if is_end and isinstance(last, keras.Model) and has_graph(last):
        # This model ends in another model.
        found = _before_last_layer(last)
        if found is not None:
            both, dense = found
            outputs = both(one_or_all(sources_of(tensor)))
            return model_like(model, outputs), dense
    return None


def _layer_names(model):
    names = [layer.name for layer in getattr(model, "layers", [])] or ["none"]
    shown = ", ".join(names[-_MOST_NAMES:])
    return shown if len(names) <= _MOST_NAMES else f"..., {shown}"
