# SPDX-License-Identifier: Apache-2.0
"""What an open-set classifier requires of a classifier and class names."""

import warnings

import keras

from cac_tf import labels
from cac_tf.keras_private import is_in_a_graph
from cac_tf.keras_private import operation_behind
from cac_tf.keras_private import sources_of

# Operations whose outputs cannot reach an anchor. By class name, because
# Keras has each of them as a layer, as an operation and as a function.
_BOUNDED = {
    "softmax",
    "log_softmax",
    "logsoftmax",
    "sparsemax",
    "sparse_sigmoid",
    "sparsesigmoid",
    "sigmoid",
    "hard_sigmoid",
    "hardsigmoid",
    "log_sigmoid",
    "logsigmoid",
    "tanh",
    "hard_tanh",
    "hardtanh",
    "softsign",
    "soft_sign",
    "relu6",
}
_PASS_THROUGH = {"dropout", "flatten", "identity", "reshape", "cast"}


def check_class_names(class_names, reserved):
    """The names as a list; raises ValueError on fewer than two or bad ones."""
    if isinstance(class_names, (str, bytes)):
        raise ValueError(
            "class_names must be a list of strings, not a single string; got "
            f"{class_names!r}."
        )
    names = labels.check_class_names(class_names)
    if len(names) < 2:
        raise ValueError(
            f"An open-set classifier needs at least two known classes; got "
            f"{names}."
        )
    if reserved in names:
        raise ValueError(
            f"A known class cannot be named {reserved!r}: that is the answer "
            "for inputs that belong to no known class."
        )
    return names


def check_logits(network, num_classes, width):
    """Raises ValueError unless a classifier gives a value for each class.

    Args:
        network: `Network`.
        num_classes: number of class names.
        width: number of values by which the classifier tells the classes.
    """
    if (network.width, num_classes) == (1, 2):
        raise ValueError(
            "The classifier has one output for two classes, and because it "
            "uses custom code, this may be a logit or a probability: let it "
            "return two logits, -z/2 and z/2."
        )
    if width != num_classes:
        raise ValueError(
            f"The classifier has {width} outputs for {num_classes} class "
            "names. (For vectors of another width: pass the centers of the "
            "classes, or let the classifier also return class_distances, "
            "computed by layers.ClassDistances.)"
        )
    last = last_operation(network.classifier)
    dtype = getattr(last, "compute_dtype", None)
    if dtype in ("float16", "bfloat16"):
        warnings.warn(
            f"The classifier's last layer computes in {dtype}, which is too "
            "coarse for logits near 10 (steps of 0.06 in bfloat16). Set "
            'dtype="float32" for that layer.',
            stacklevel=4,
        )


def last_operation(model):
    """The layer or operation that gives a model's logits, as far as visible."""
    if not has_graph(model):
        is_plain = type(model).call is keras.Sequential.call
        if isinstance(model, keras.Sequential) and is_plain and model.layers:
            return model.layers[-1]
        # A layer, or a subclassed model, whose last step is not visible.
        return model
    operation = operation_behind(last_tensor(model))
    if operation is not model and isinstance(operation, keras.Model):
        return last_operation(operation)
    return operation


def has_graph(model):
    """Whether a model's tensors can be followed from outputs to inputs.

    Not where a subclass of a functional model has a `call` of its own.
    """
    outputs = getattr(model, "outputs", None)
    if not outputs or not is_in_a_graph(outputs[0]):
        return False
    return type(model).call.__module__.startswith("keras.")


def logits_of(model):
    """The tensor that holds the logits of a model with a graph."""
    return named_tensors(model)["logits"]


def named_tensors(model):
    """Dict of the tensors that a model with a graph gives, by name."""
    # For a Sequential model, `output` is that of its first call anywhere.
    is_sequential = isinstance(model, keras.Sequential)
    output = list(model.outputs) if is_sequential else model.output
    return by_name(output, model.name)


def by_name(outputs, model_name):
    """The outputs of a model as a dict.

    Args:
        outputs: what a call of the model returns: a tensor, the logits, or a
            dict of tensors with `logits`.
        model_name: for the message.

    Raises:
        ValueError: several outputs without names, or no `logits`.
    """
    if isinstance(outputs, (list, tuple)) and len(outputs) == 1:
        (outputs,) = outputs
    if isinstance(outputs, (list, tuple)):
        raise ValueError(
            f"The model {model_name!r} returns {len(outputs)} outputs without "
            "names, so it is not clear which of them are the logits. Let it "
            "return a dict with the key 'logits': keras.Model(model.input, "
            "{'logits': model.outputs[i]})."
        )
    if not isinstance(outputs, dict):
        return {"logits": outputs}
    if "logits" not in outputs:
        raise ValueError(
            f"The model {model_name!r} returns a dict without the key "
            f"'logits'; its outputs are {', '.join(sorted(outputs))}. Rename "
            "one of them: keras.Model(model.input, {'logits': "
            "model.output[name]})."
        )
    return outputs


def last_tensor(model):
    """The logits of a model with a graph, before layers that pass them on."""
    tensor = logits_of(model)
    while _passes_through(operation_behind(tensor)):
        sources = sources_of(tensor)
        if len(sources) != 1:
            break
        (tensor,) = sources
    return tensor


def _name_of(operation):
    return type(operation).__name__.lower()


def _passes_through(operation):
    activation = getattr(operation, "activation", None)
    return _name_of(operation) in _PASS_THROUGH or (
        _name_of(operation) == "activation"
        and getattr(activation, "__name__", "") == "linear"
    )


def bounded_activation(operation):
    """What bounds the outputs of a layer or operation, as text; or None."""
    activation = getattr(operation, "activation", None)
    for name in (
        _name_of(operation),
        getattr(activation, "__name__", type(activation).__name__).lower(),
    ):
        if name in _BOUNDED:
            return name
    if (
        _name_of(operation) == "relu"
        and getattr(operation, "max_value", None) is not None
    ):
        return f"relu with max_value={operation.max_value}"
    return None
