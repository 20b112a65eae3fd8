# SPDX-License-Identifier: Apache-2.0
"""What a classifier takes: one array of numbers, of a shape, type and scale.

Kinds of models that take anything else are refused when a classifier is made;
data of another kind, when they come.
"""

import typing
import warnings

import keras
import numpy as np

from cac_tf.layers.image_preprocessing import ImagePreprocessing
from cac_tf.models import input_checks
from cac_tf.models.backbone_checks import has_graph

_TAKE_TEXTS = (keras.layers.TextVectorization, keras.layers.StringLookup)
_BRIGHTEST = 255
# Of a first layer that takes pixels to [0, 1] or [-1, 1].
_SCALES_OF_PIXELS = (1 / 255, 1 / 127.5)
# What may stand before that layer without changing the range of pixels.
_BEFORE_SCALING = (
    keras.layers.InputLayer,
    keras.layers.Identity,
    keras.layers.RandomFlip,
    keras.layers.RandomCrop,
    keras.layers.RandomRotation,
    keras.layers.RandomTranslation,
    keras.layers.RandomZoom,
    keras.layers.CenterCrop,
)


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


def _first_layer(model):
    for layer in _first_layers(model):
        if not isinstance(layer, keras.layers.InputLayer):
            return layer
    return None


class InputKind(typing.NamedTuple):
    """What a classifier takes."""

    # Of one raw input; None where any size will do.
    shape: tuple
    # "float32", or e.g. "int32" for token ids. (Floats, and whole numbers in
    # 0...255 where the classifier scales pixels itself, count as float32.)
    dtype: str
    # Whether values are pixels in 0...255, which the classifier scales itself.
    are_pixels: bool
    # (height, width) that images are resized to, or None.
    size: tuple | None = None

    @property
    def fixed_shape(self):
        """`shape`, with the size that images are resized to where any will do.

        Example:

        >>> InputKind((None, None, 3), "float32", True, (32, 32)).fixed_shape
        (32, 32, 3)
        """
        if self.size is None or len(self.shape) != 3:
            return self.shape
        height, width, channels = self.shape
        return (height or self.size[0], width or self.size[1], channels)


def kind_of_inputs(classifier, shape=None):
    """What a classifier takes, as far as its layers tell.

    Args:
        classifier: built Keras model.
        shape: of one raw input; None: that of the model's own `Input`.

    Returns:
        `InputKind`.

    Example:

    >>> kind_of_inputs(keras.Sequential([
    ...     keras.Input([8, 8, 1]), keras.layers.Rescaling(1 / 255)]))
    InputKind(shape=(8, 8, 1), dtype='float32', are_pixels=True, size=None)
    """
    if shape is None:
        shape = classifier.input_shape[1:]
    are_pixels, size = False, None
    for layer in _first_layers(classifier):
        if isinstance(layer, ImagePreprocessing):
            are_pixels, size = True, size or (layer.height, layer.width)
        elif isinstance(layer, keras.layers.Resizing):
            size = size or (layer.height, layer.width)
            continue
        elif isinstance(layer, keras.layers.Rescaling):
            are_pixels = (
                np.size(layer.scale) == 1
                and np.isclose(layer.scale, _SCALES_OF_PIXELS).any()
            )
        elif isinstance(layer, _BEFORE_SCALING):
            continue
        break
    return InputKind(
        tuple(shape), dtype_taken_by(classifier), bool(are_pixels), size
    )


def _first_layers(model):
    """The layers that an input passes, one after another, as far as seen."""
    if isinstance(model, keras.Sequential) or has_graph(model):
        for layer in model.layers:
            if isinstance(layer, keras.Model):
                yield from _first_layers(layer)
                return
            yield layer


class RawInputs:
    """Checks the raw inputs of one call, batch by batch.

    Args:
        kind: `InputKind`.
    """

    def __init__(self, kind):
        self._kind = kind
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
        check_shape(inputs.shape[1:], self._kind.shape)
        if self._kind.are_pixels and inputs.dtype != np.uint8:
            self._check_pixels(inputs, where, what)
        dtype = self._kind.dtype
        if dtype == "float32" or str(inputs.dtype) == dtype:
            return inputs
        return _whole(inputs, dtype, where, what)

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


def check_shape(shape, expected):
    """Raises ValueError for an input of another shape than `expected`."""
    fits = len(shape) == len(expected) and all(
        wanted in (None, size)
        for size, wanted in zip(shape, expected, strict=True)
    )
    if not fits:
        is_single = tuple(shape) == tuple(expected)[1:]
        hint = " A single input needs an axis for the batch: x[np.newaxis]."
        raise ValueError(
            f"The model takes inputs of shape {tuple(expected)}; got "
            f"{tuple(shape)}.{hint if is_single else ''}"
        )


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
