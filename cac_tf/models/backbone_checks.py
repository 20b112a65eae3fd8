# SPDX-License-Identifier: Apache-2.0
"""What an open-set classifier asks of its backbone and class names."""

import unicodedata
import warnings

import keras

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
            "class_names must be a list of texts, not one text; got "
            f"{class_names!r}."
        )
    names = list(class_names)
    if len(names) < 2:
        raise ValueError(
            f"An open-set classifier needs at least two known classes; got "
            f"{names}."
        )
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"Class names must be texts that are not empty; got {name!r}."
            )
        if not _is_one_line_of_utf8(name):
            raise ValueError(
                "Class names must be UTF-8 text on one line, without control "
                f"characters; got {name!r}."
            )
        if name == reserved:
            raise ValueError(
                f"A known class cannot be called {reserved!r}: that is the "
                "answer for inputs of no known class."
            )
    duplicates = sorted({n for n in names if names.count(n) > 1})
    if duplicates:
        raise ValueError(
            f"Class names must differ; these do not: {', '.join(duplicates)}."
        )
    return names


def _is_one_line_of_utf8(text):
    """Labels are files of lines. (Folders' names may be in other encodings.)"""
    if len(text.splitlines()) != 1:
        return False
    # Cc: control characters; Cs: what stands for bytes that are no UTF-8.
    return not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)


def check_backbone(backbone, num_classes):
    """Raises ValueError unless the backbone can end in N logits."""
    last = last_operation(backbone)
    bounded = bounded_activation(last)
    if bounded:
        raise ValueError(
            f"The backbone ends in a {bounded}, whose outputs are bounded and "
            "can never reach an anchor. Remove it: the last layer must give "
            "logits (no activation)."
        )
    shape = getattr(backbone, "output_shape", None) if backbone.built else None
    if shape and (len(shape) != 2 or shape[-1] != num_classes):
        raise ValueError(
            f"The backbone's output has shape {tuple(shape)}; for the "
            f"{num_classes} class names it must be (batch, {num_classes})."
        )
    dtype = getattr(last, "compute_dtype", None)
    if dtype in ("float16", "bfloat16"):
        warnings.warn(
            f"The backbone's last layer computes in {dtype}, where logits "
            "near 10 have coarse steps (0.06 in bfloat16). Give that layer "
            'dtype="float32".',
            stacklevel=3,
        )


def uses_float16(layer):
    """Whether a layer, or one inside of it, computes in float16."""
    if getattr(layer, "compute_dtype", None) == "float16":
        return True
    return any(
        uses_float16(inner) for inner in getattr(layer, "layers", None) or []
    )


def last_operation(model):
    """The layer or operation that gives a model's output, if it can be seen."""
    if not has_graph(model):
        if isinstance(model, keras.Sequential) and model.layers:
            return model.layers[-1]
        # A layer, or a subclassed model, whose last step cannot be seen.
        return model
    operation = last_tensor(model)._keras_history.operation
    if operation is not model and isinstance(operation, keras.Model):
        return last_operation(operation)
    return operation


def has_graph(model):
    """Whether a model has tensors to go back by, from outputs to inputs."""
    outputs = getattr(model, "outputs", None)
    return bool(outputs) and hasattr(outputs[0], "_keras_history")


def last_tensor(model):
    """The output of a model with a graph, before what only passes it on."""
    tensor = model.outputs[0]
    while _passes_through(tensor._keras_history.operation):
        sources = sources_of(tensor)
        if len(sources) != 1:
            break
        (tensor,) = sources
    return tensor


def sources_of(tensor):
    """The tensors that the operation behind a Keras tensor was called with."""
    operation, node, _ = tensor._keras_history
    return operation._inbound_nodes[node].input_tensors


def _name_of(operation):
    return type(operation).__name__.lower()


def _passes_through(operation):
    activation = getattr(operation, "activation", None)
    return _name_of(operation) in _PASS_THROUGH or (
        _name_of(operation) == "activation"
        and getattr(activation, "__name__", "") == "linear"
    )


def bounded_activation(operation):
    """What bounds the outputs of a layer or operation, a text; or None."""
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
