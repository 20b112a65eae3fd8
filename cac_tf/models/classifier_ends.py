# SPDX-License-Identifier: Apache-2.0
"""Trained classifiers end in probabilities of some kind; here, in logits."""

import keras
import numpy as np
from keras import ops

from cac_tf.keras_private import operation_behind
from cac_tf.keras_private import sources_of
from cac_tf.models.backbone_checks import bounded_activation
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import last_tensor
from cac_tf.models.backbone_checks import logits_of
from cac_tf.models.backbone_checks import named_tensors
from cac_tf.models.features import model_like
from cac_tf.models.features import one_or_all

_OF_ONE_CLASS = ("softmax", "log_softmax", "logsoftmax")


def ending_in_logits(classifier, num_classes):
    """The classifier without a softmax or sigmoid at its end.

    Softmax and log-softmax are taken off. A binary classifier with one output,
    the logit z of its second class or the sigmoid of it, gets two: (-z/2, z/2).
    Their softmax is (1 - sigmoid(z), sigmoid(z)); and unlike (0, z), which has
    the same, they treat both classes alike in scores that look at the largest
    logit.

    Args:
        classifier: Keras model, (B, ...) -> (B, N), or a dict with such
            `logits`.
        num_classes: N; None: as many as it has outputs.

    Returns:
        Keras model, (B, ...) -> (B, N) logits, or that dict. It shares all
        layers, except a dense one at the end that has to change: its weights
        are copied. The classifier itself if it ends in N logits, or if its
        layers are called by its own code.

    Raises:
        ValueError: an end that is none of these, one that is part of a layer
            that is not dense, layers behind it, or several outputs without
            names.

    Example:

    >>> classifier = keras.Sequential([
    ...     keras.Input([4]), keras.layers.Dense(1, activation="sigmoid")])
    >>> logits = ending_in_logits(classifier, 2)
    >>> x = np.ones((1, 4), "float32")
    >>> np.allclose(ops.softmax(logits(x))[:, 1:], classifier(x), atol=1e-6)
    True
    """
    if not has_graph(classifier):
        # Its outputs are checked when centers or the score are fitted.
        return classifier
    tensor, end = last_tensor(classifier), logits_of(classifier)
    last = operation_behind(tensor)
    is_one = num_classes in (2, None) and end.shape[-1] == 1
    if isinstance(last, keras.Model) and has_graph(last):
        inner = ending_in_logits(last, num_classes)
        if inner is last:
            return classifier
        if len(last.outputs) > 1:
            raise ValueError(
                f"The classifier ends in the model {last.name!r}, which has "
                f"{len(last.outputs)} outputs: make a model that ends in one."
            )
        _require_end(tensor, end, last)
        return _with_end(classifier, inner(one_or_all(sources_of(tensor))))
    kind = bounded_activation(last)
    if kind is None and not is_one:
        return classifier
    if kind in _OF_ONE_CLASS or (kind == "sigmoid" and is_one):
        _require_end(tensor, end, last)
        end = _without_activation(tensor, last, is_one)
    elif kind is not None:
        raise ValueError(_refusal(kind, end.shape[-1]))
    if is_one and end.shape[-1] == 1:
        end = _two_of_one(end)
    return _with_end(classifier, end)


def _refusal(kind, width):
    if "sigmoid" not in kind:
        return (
            f"The classifier ends in a {kind}, whose outputs are neither "
            "logits nor probabilities: make a model that ends before it."
        )
    return (
        f"The classifier ends in {width} outputs of a {kind}: independent "
        "yes/no outputs (multi-label), so an input may have several classes. "
        "An OpenSetClassifier assigns exactly one class to each input. If "
        f"exactly one of the {width} is true for each input, make a model "
        f"that ends before the {kind} and returns the logits."
    )


def _require_end(tensor, end, last):
    if tensor is not end:
        kind = bounded_activation(last) or "model"
        raise ValueError(
            f"The {kind} {last.name!r} at the end of the classifier is "
            "followed by other layers: make a model that ends before it."
        )


def _with_end(classifier, end):
    named = named_tensors(classifier)
    if len(named) > 1:
        end = {**named, "logits": end}
    return model_like(classifier, end, name=classifier.name)


def _without_activation(tensor, last, is_one):
    """What a softmax or sigmoid at the end was applied to."""
    if isinstance(last, keras.layers.Dense):
        return _dense_like(last, sources_of(tensor), is_one)
    if isinstance(last, (keras.layers.Softmax, keras.layers.Activation)) or (
        not isinstance(last, keras.layers.Layer)  # Of keras.ops.
    ):
        (before,) = sources_of(tensor)
        return before
    raise ValueError(
        f"The {bounded_activation(last)} is part of the layer {last.name!r}, "
        f"a {type(last).__name__}: build the layer without it and reuse the "
        "weights."
    )


def _two_of_one(end):
    """Two logits, (B, 2), from the logit of the second class, (B, 1)."""
    last = operation_behind(end)
    is_linear = isinstance(last, keras.layers.Dense) and (
        last.activation is keras.activations.linear
    )
    if is_linear:
        # In one layer, whose inputs are the features.
        return _dense_like(last, sources_of(end), is_one=True)
    return ops.concatenate([-0.5 * end, 0.5 * end], axis=-1)


def _dense_like(dense, sources, is_one):
    """A linear dense layer with the same weights, called on these sources.

    Args:
        dense: the layer.
        sources: what it was called with.
        is_one: whether its one output z becomes (-z/2, z/2).
    """
    config = {**dense.get_config(), "activation": "linear"}
    # In float32: half precision is too coarse for logits.
    config["dtype"] = "float32"
    # Another name: the layer itself may stay, where another output is its own.
    config["name"] += "_linear_float32"
    weights = dense.get_weights()
    if is_one:
        config["units"] = 2
        weights = [
            w * np.float32([-0.5, 0.5]) for w in map(np.float32, weights)
        ]
    made = keras.layers.Dense.from_config(config)
    outputs = made(*sources)
    made.set_weights(weights)
    return outputs
