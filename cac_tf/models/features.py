# SPDX-License-Identifier: Apache-2.0
"""The features of a classifier: what its last layer makes logits of."""

import keras
import numpy as np
from keras import ops

from cac_tf.models.backbone_checks import bounded_activation
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import last_tensor
from cac_tf.models.backbone_checks import sources_of
from cac_tf.scores import LastLayer

_MOST_NAMES = 30


def with_features(backbone, features_layer=None):
    """A model that gives the features of a backbone beside its logits.

    Args:
        backbone: built Keras model, (B, ...) -> (B, N) logits.
        features_layer: name of a layer whose output are the features. None:
            what goes into the dense layer that gives the logits.

    Returns:
        A functional model, (B, ...) -> (features, logits), which shares all
        layers; and the dense `keras.layers.Layer` that makes the logits of
        these features, or None where there is none.

    Raises:
        ValueError: no features can be found. The message names the layers
            there are.

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
            "cannot be seen: its layers "
            f"({_layer_names(backbone)}) are called by code of its own. Make "
            "it a functional or Sequential model, or choose a score that "
            "needs logits alone."
        )
    if features_layer is None:
        found = _before_last_layer(backbone)
        if found is None:
            raise ValueError(
                "The features were not found, because the logits do not come "
                "out of a dense layer. Name the layer that gives them by "
                f"features_layer=; there are: {_layer_names(backbone)}."
            )
        return found
    # The nodes of this very graph: a layer may stand in others too.
    graph = getattr(backbone, "_functional", None) or backbone
    nodes = [
        node
        for same_depth in graph._nodes_by_depth.values()
        for node in same_depth
        if node.operation.name == features_layer
    ]
    if len(nodes) != 1:
        problem = "There is no layer" if not nodes else "More than one call of"
        raise ValueError(
            f"{problem} {features_layer!r} for the features; there are: "
            f"{_layer_names(backbone)}."
        )
    (features,) = nodes[0].outputs
    found = _before_last_layer(backbone)
    if found is not None and found[0].outputs[0] is features:
        return found
    return _model(backbone, [features, backbone.outputs[0]]), None


def flat(features):
    """(B, D) of features: means over the places of a map.

    As Lee et al. (2018) take the features of convolutions.
    """
    if len(features.shape) > 2:
        axes = tuple(range(1, len(features.shape) - 1))
        features = ops.mean(ops.cast(features, "float32"), axis=axes)
    return ops.cast(features, "float32")


def last_layer_of(dense):
    """`LastLayer` of a dense layer's present weights; None of None."""
    if dense is None:
        return None
    kernel = np.float32(ops.convert_to_numpy(dense.kernel))
    bias = np.zeros(kernel.shape[1], "float32")
    if dense.bias is not None:
        bias = np.float32(ops.convert_to_numpy(dense.bias))
    return LastLayer(kernel, bias)


def without_softmax(classifier):
    """The classifier without a softmax at its end; itself if it has none.

    Args:
        classifier: Keras model, (B, ...) -> (B, N) logits or probabilities.

    Returns:
        Keras model, (B, ...) -> (B, N) logits, that shares all layers but a
        dense one whose activation was the softmax: its weights are copied.

    Raises:
        ValueError: the softmax is part of a layer that is not dense, or more
            layers follow on it.

    Example:

    >>> classifier = keras.Sequential([
    ...     keras.Input([4]), keras.layers.Dense(3, activation="softmax")])
    >>> logits = without_softmax(classifier)
    >>> x = np.ones((1, 4), "float32")
    >>> np.allclose(keras.ops.softmax(logits(x)), classifier(x), atol=1e-6)
    True
    """
    if not has_graph(classifier):
        # Its outputs are looked at when the score is fitted.
        return classifier
    tensor = last_tensor(classifier)
    last = tensor._keras_history.operation
    inner = last
    if isinstance(last, keras.Model) and has_graph(last):
        inner = without_softmax(last)
        if inner is last:
            return classifier
    elif bounded_activation(last) != "softmax":
        # What else it may end in, the classifier's own checks refuse.
        return classifier
    if tensor is not classifier.outputs[0]:
        raise ValueError(
            f"Layers follow on the softmax {last.name!r} at the classifier's "
            "end: make a model that ends before it."
        )
    if inner is not last:
        outputs = inner(_one_or_all(sources_of(tensor)))
    elif isinstance(last, keras.layers.Dense):
        config = {**last.get_config(), "activation": "linear"}
        # In float32: half precision is too coarse for logits.
        config.pop("dtype", None)
        dense = keras.layers.Dense.from_config({**config, "dtype": "float32"})
        outputs = dense(*sources_of(tensor))
        dense.set_weights(last.get_weights())
    elif isinstance(last, (keras.layers.Softmax, keras.layers.Activation)):
        (outputs,) = sources_of(tensor)
    elif not isinstance(last, keras.layers.Layer):
        (outputs,) = sources_of(tensor)  # Of keras.ops.
    else:
        raise ValueError(
            f"The softmax is part of the layer {last.name!r}, a "
            f"{type(last).__name__}: build it without one, with its weights."
        )
    return _model(classifier, outputs, name=classifier.name)


def _model(like, outputs, **kwargs):
    """A model with the inputs of another one."""
    return keras.Model(_one_or_all(like.inputs), outputs, **kwargs)


def _one_or_all(tensors):
    """The tensor, or the list of them where there are several."""
    return tensors[0] if len(tensors) == 1 else tensors


def _before_last_layer(model):
    """`with_features` of the dense layer at a model's end; None without."""
    tensor = last_tensor(model)
    last = tensor._keras_history.operation
    if isinstance(last, keras.layers.Dense):
        (features,) = sources_of(tensor)
        return _model(model, [features, model.outputs[0]]), last
    is_end = tensor is model.outputs[0]
    if is_end and isinstance(last, keras.Model) and has_graph(last):
        # A model that stands at the end of this one.
        found = _before_last_layer(last)
        if found is not None:
            both, dense = found
            outputs = both(_one_or_all(sources_of(tensor)))
            return _model(model, outputs), dense
    return None


def _layer_names(model):
    names = [layer.name for layer in getattr(model, "layers", [])] or ["none"]
    shown = ", ".join(names[-_MOST_NAMES:])
    return shown if len(names) <= _MOST_NAMES else f"..., {shown}"
