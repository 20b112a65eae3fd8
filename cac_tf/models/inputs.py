# SPDX-License-Identifier: Apache-2.0
"""What a classifier takes: one array, of numbers of a shape, type and scale.

Or of texts.

Kinds of models that take anything else are refused when a classifier is made;
data of another kind, when they come: see `raw_inputs`.
"""

import keras
import numpy as np

from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.layers.image_preprocessing import ImagePreprocessing
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.raw_inputs import TEXTS
from cac_tf.models.raw_inputs import InputKind

_TAKE_TEXTS = (keras.layers.TextVectorization, keras.layers.StringLookup)
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
    """Raises ValueError for a model that takes a dict or several inputs.

    On other backends than TensorFlow, also for one that takes texts.

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
            f"{what} takes {kind} ({names}); an OpenSetClassifier takes a "
            "single array. Concatenate the inputs into one array, and let "
            "the first layers of the model split it."
        )
    if keras.backend.backend() != "tensorflow" and takes_texts(layer):
        raise ValueError(
            f"{what} takes texts, which Keras models support only on "
            "TensorFlow: set KERAS_BACKEND=tensorflow."
        )


def takes_texts(layer):
    """Whether a model takes texts, by its `Input` or its first layer."""
    inputs = _inputs_of(layer)
    is_text = bool(inputs) and inputs[0].dtype == TEXTS
    return is_text or isinstance(_first_layer(layer), _TAKE_TEXTS)


def dtype_taken_by(layer):
    """The type of the raw inputs: whole numbers where `layer` takes them.

    Returns:
        "float32", or e.g. "int32" for a model on token ids, or "string".

    Example:

    >>> dtype_taken_by(keras.Sequential([
    ...     keras.Input([7], dtype="int32"), keras.layers.Embedding(99, 8)]))
    'int32'
    """
    if takes_texts(layer):
        return TEXTS
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
    InputKind(shape=(8, 8, 1), dtype='float32', are_pixels=True, size=None, \
num_ids=None, interpolation='bilinear')
    """
    if shape is None:
        shape = classifier.input_shape[1:]
    are_pixels, size, way = False, None, INTERPOLATIONS[0]
    for layer in _first_layers(classifier):
        if isinstance(layer, (ImagePreprocessing, keras.layers.Resizing)):
            if size is None:
                size = (layer.height, layer.width)
                if layer.interpolation in INTERPOLATIONS:
                    way = layer.interpolation
            if isinstance(layer, keras.layers.Resizing):
                continue
            are_pixels = True
        elif isinstance(layer, keras.layers.Rescaling):
            are_pixels = (
                np.size(layer.scale) == 1
                and np.isclose(layer.scale, _SCALES_OF_PIXELS).any()
            )
        elif isinstance(layer, _BEFORE_SCALING):
            continue
        break
    if takes_texts(classifier):
        # Whether the classifier wants (B,) or (B, 1) of them, it gets.
        return InputKind((), TEXTS, are_pixels=False)
    first = _first_layer(classifier)
    is_table = isinstance(first, keras.layers.Embedding)
    return InputKind(
        tuple(shape),
        dtype_taken_by(classifier),
        bool(are_pixels),
        size,
        first.input_dim if is_table else None,
        way,
    )


def _first_layers(model):
    """The layers that an input passes, one after another, as far as seen."""
    if isinstance(model, keras.Sequential) or has_graph(model):
        for layer in model.layers:
            if isinstance(layer, keras.Model):
                yield from _first_layers(layer)
                return
            yield layer
