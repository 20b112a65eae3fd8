# SPDX-License-Identifier: Apache-2.0
"""What a classifier takes: one array of numbers, of a shape, type and scale.

Kinds of models that take anything else are refused when a classifier is made;
data of another kind, when they come.
"""

import warnings

import keras
import numpy as np

from cac_tf.models import input_checks
from cac_tf.models.backbone_checks import has_graph

_TAKE_TEXTS = (keras.layers.TextVectorization, keras.layers.StringLookup)
_BRIGHTEST = 255


def check_takes_one_array(layer, what):
    """Raises ValueError for a model that takes a dict, several inputs or texts.

    Args:
        layer: Keras model or layer.
        what: the subject of the message, e.g. "The backbone".
    """
    inputs = _inputs_of(layer)
    is_dict = isinstance(_structure(layer), dict)
    if is_dict or len(inputs) > 1:
        names = ", ".join(tensor.name for tensor in inputs)
        kind = "a dict of inputs" if is_dict else f"{len(inputs)} inputs"
        raise ValueError(
            f"{what} takes {kind} ({names}); an OpenSetClassifier takes one "
            "array. Put them side by side in one array, and let the first "
            "layers of the model take it apart."
        )
    is_text = inputs and inputs[0].dtype == "string"
    if is_text or isinstance(_first_layer(layer), _TAKE_TEXTS):
        raise ValueError(
            f"{what} takes texts; an OpenSetClassifier takes numbers. Apply "
            "the layer that turns texts into numbers to the data, and make a "
            "model of the layers behind it."
        )


def dtype_taken_by(layer):
    """The type of the raw inputs: whole numbers where `layer` takes them.

    Returns:
        "float32", or e.g. "int32" for a model on token ids.

    Example:

    >>> dtype_taken_by(keras.Sequential([
    ...     keras.Input([7], dtype="int32"), keras.layers.Embedding(99, 8)]))
    'int32'
    """
    inputs = _inputs_of(layer)
    if not inputs or inputs[0].dtype == "float32":
        # Keras says float32 where a Sequential model declares no inputs.
        is_embedding = isinstance(_first_layer(layer), keras.layers.Embedding)
        return "int32" if is_embedding else "float32"
    dtype = keras.backend.standardize_dtype(inputs[0].dtype)
    return dtype if dtype.startswith(("int", "uint", "bool")) else "float32"


def _inputs_of(layer):
    return list(getattr(layer, "inputs", None) or ())


def _structure(layer):
    """How a functional model wants its inputs: a tensor, list or dict."""
    is_functional = has_graph(layer) and not isinstance(layer, keras.Sequential)
    return layer.input if is_functional else None


def _first_layer(layer):
    while isinstance(layer, keras.Sequential) and layer.layers:
        layer = layer.layers[0]
    return layer


class RawInputs:
    """Checks the raw inputs of one call, batch by batch.

    Args:
        network: `Network`, built or not.
    """

    def __init__(self, network):
        self._network = network
        # Layers with this method take pixels in 0...255.
        self._are_pixels = hasattr(network.preprocessing, "to_unit_range")
        self._allowed_shapes = set()
        self._largest = None

    def check(self, inputs, where="", what="Inputs"):
        """The inputs as an array, of whole numbers where the model takes them.

        Args:
            inputs: (B, ...) array.
            where: put in front of a position, e.g. "batch 3, ".
            what: the subject of messages.

        Raises:
            ValueError: inputs that are not numbers or not finite, have another
                shape, cannot be pixels where the model takes pixels, or are
                not whole where it takes whole numbers.
        """
        inputs = np.asarray(inputs)
        # (V: bfloat16.)
        if inputs.dtype.kind not in "biufV":
            raise ValueError(
                f"{what} must be an array of numbers; got the type "
                f"{inputs.dtype}."
            )
        input_checks.check_finite(inputs, what, where)
        if inputs.shape[1:] not in self._allowed_shapes:
            self._check_shape(inputs.shape[1:])
            self._allowed_shapes.add(inputs.shape[1:])
        if self._are_pixels and inputs.dtype != np.uint8:
            self._check_pixels(inputs, where, what)
        dtype = self._network.raw_input_dtype
        if dtype == "float32" or str(inputs.dtype) == dtype:
            return inputs
        return _whole(inputs, dtype, where, what)

    def _check_shape(self, shape):
        network = self._network
        if network.built:
            input_checks.check_shape(shape, network.raw_input_shape)
        if not has_graph(network.backbone):
            return
        layer, given = network.preprocessing, shape
        if layer is not None:
            try:
                given = layer.compute_output_shape((None, *shape))[1:]
            except NotImplementedError:
                return  # Of a layer of one's own.
        taken = network.backbone.inputs[0].shape[1:]
        if len(taken) != len(given) or any(
            size not in (None, other)
            for size, other in zip(taken, given, strict=True)
        ):
            hint = "" if layer is None else ", after preprocessing"
            raise ValueError(
                f"The model takes inputs of shape {tuple(taken)}{hint}; got "
                f"{tuple(given)}. (The first axis is that of the batch; a "
                "model whose preprocessing is ImagePreprocessing resizes.)"
            )

    def _check_pixels(self, images, where, what):
        if not images.size:
            return
        least, largest = float(images.min()), float(images.max())
        if least < 0 or largest > _BRIGHTEST:
            is_bad = (images < 0) | (images > _BRIGHTEST)
            row = int(np.argwhere(is_bad)[0, 0])
            raise ValueError(
                f"{what} must be pixels in 0...255, but {where}position {row} "
                f"holds {images[is_bad].flat[0]}. (The model scales and "
                "normalizes them itself.)"
            )
        # (Whole numbers are what they are.)
        if images.dtype.kind in "fV":
            self._largest = max(self._largest or 0.0, largest)

    def finish(self):
        """Warns of images on the scale of 0...1; call it after the last one."""
        if self._largest is not None and 0.0 < self._largest <= 1.0:
            warnings.warn(
                f"The largest pixel of all images is {self._largest:.3g}: "
                "they look scaled to 0...1, but the model takes pixels in "
                "0...255 and scales them itself. Multiply them by 255.",
                stacklevel=4,
            )
        self._largest = None


def _whole(inputs, dtype, where, what):
    """The inputs as whole numbers of a type."""
    if np.can_cast(inputs.dtype, dtype):
        return inputs.astype(dtype)
    if inputs.dtype.kind in "fV":
        is_whole = inputs == np.floor(inputs)
        if not is_whole.all():
            row = int(np.argwhere(~is_whole)[0, 0])
            raise ValueError(
                f"{what} must be whole numbers ({dtype}), but {where}position "
                f"{row} holds {inputs[~is_whole].flat[0]}."
            )
    if np.dtype(dtype).kind in "iu":
        allowed = np.iinfo(dtype)
        low, high = allowed.min, allowed.max + 1
        if inputs.dtype.kind in "fV":
            # Powers of two (the largest number itself may not be there), or
            # infinity where the type ends before.
            with np.errstate(over="ignore"):
                low, high = map(inputs.dtype.type, map(float, (low, high)))
        is_there = (inputs >= low) & (inputs < high)
        if not is_there.all():
            row = int(np.argwhere(~is_there)[0, 0])
            raise ValueError(
                f"{what} must be whole numbers of {allowed.min} to "
                f"{allowed.max} ({dtype}), but {where}position {row} holds "
                f"{inputs[~is_there].flat[0]}."
            )
    return inputs.astype(dtype)
