# SPDX-License-Identifier: Apache-2.0
"""An open-set classifier as one file, for LiteRT and ONNX Runtime.

Each file takes `images` (`inputs` where they are none), (B, ...) raw inputs
(float32, or the whole numbers that the model takes), and gives what
`serving_default` of a SavedModel gives, `is_valid` included. Files cannot
refuse an input with a message: the runtime checks sizes. A model that computes
in half precision is written in float32, as these runtimes have no such
convolutions on a CPU; its scores then change by the rounding of half precision.
"""

import importlib
import os
import tempfile
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from cac_tf import atomic_files
from cac_tf import keras_private
from cac_tf import lazy
from cac_tf import ops as fused_ops
from cac_tf.annotations import Path
from cac_tf.export.saved_model import answering_of
from cac_tf.export.signatures import answer
from cac_tf.export.signatures import name_of_inputs
from cac_tf.export.signatures import scored
from cac_tf.models.open_set_classifier import OpenSetClassifier

# ONNX operations as of 2022: `ReduceMin` and friends in their present form.
_OPSET = 18


def write_litert(
    model: OpenSetClassifier,
    path: Path,
    *,
    version: int = 0,
    quantize: str | None = None,
    allow_uncalibrated: bool = False,
) -> None:
    """Writes a file for LiteRT (formerly TensorFlow Lite).

    Args:
        model: `OpenSetClassifier` with a threshold.
        path: file to write, ending in `.tflite`; replaced if it exists.
        version: number that every answer carries as `model_version`.
        quantize: None, or "dynamic_range": large weights of the classifier are
            kept as int8, a quarter of the size. This changes distances and
            scores slightly; the threshold is not calibrated again.
        allow_uncalibrated: whether a model without threshold is exported with
            the largest float32 in its place, so that nothing is rejected.

    The converter's own error is raised for operations that LiteRT lacks.
    Recurrent layers need `unroll=True`.

    Raises:
        ValueError: no threshold, another suffix or kind of quantization, a
            layer with a lookup table.
        RuntimeError: Keras runs on another backend than TensorFlow, or a
            shared classifier was trained on.

    Example:

    >>> import os, tempfile, keras, cac_tf
    >>> classifier = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(classifier, ["left", "right"])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.tflite")
    >>> write_litert(model, path, allow_uncalibrated=True)
    >>> open(path, "rb").read()[4:8]
    b'TFL3'
    """
    path = _check_suffix(path, ".tflite")
    if quantize not in (None, "dynamic_range"):
        raise ValueError(
            f'quantize must be None or "dynamic_range"; got {quantize!r}.'
        )
    function, specs = _graph(model, version, allow_uncalibrated)
    _write(path, litert(function, specs, quantize))


def litert(
    function: Callable[..., Any],
    specs: Sequence[Any],
    quantize: str | None = None,
) -> bytes:
    """A function of tensors as the bytes of a LiteRT file.

    Args:
        function: from tensors to a dict of tensors.
        specs: list of a `tf.TensorSpec` for each argument.
        quantize: as in `write_litert`.
    """
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    with tempfile.TemporaryDirectory() as folder, fused_ops.stock_operations():
        archive.add_endpoint("serving_default", function, specs)
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if quantize:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return converter.convert()


def write_onnx(
    model: OpenSetClassifier,
    path: Path,
    *,
    version: int = 0,
    allow_uncalibrated: bool = False,
) -> None:
    """Writes a file for ONNX Runtime; needs `pip install cac-tf[onnx]`.

    Args:
        model: `OpenSetClassifier` with a threshold.
        path: file to write, ending in `.onnx`; replaced if it exists.
        version: number that every answer carries as `model_version`.
        allow_uncalibrated: whether a model without threshold is exported with
            the largest float32 in its place, so that nothing is rejected.

    Raises:
        ImportError: tf2onnx is not installed.
        ValueError: no threshold, another suffix, a layer with a lookup table,
            an operation that ONNX lacks.
        RuntimeError: Keras runs on another backend than TensorFlow, or a
            shared classifier was trained on.
    """
    path = _check_suffix(path, ".onnx")
    _write(path, onnx(*_graph(model, version, allow_uncalibrated)))


def onnx(function: Callable[..., Any], specs: Sequence[Any]) -> bytes:
    """A function of tensors as the bytes of an ONNX file.

    Args:
        function: from tensors to a dict of tensors.
        specs: list of a `tf.TensorSpec` for each argument.

    Raises:
        ImportError: tf2onnx is not installed.
        ValueError: an operation that ONNX lacks.
    """
    try:
        convert = importlib.import_module("tf2onnx.convert")
    except ImportError as error:
        raise ImportError(
            "Export to ONNX needs tf2onnx: pip install 'cac-tf[onnx]'."
        ) from error

    with fused_ops.stock_operations():
        graph, _ = convert.from_function(
            _with_constants(function, specs),
            input_signature=specs,
            opset=_OPSET,
            custom_op_handlers={"SelectV2": (_select, [])},
        )
    checker = importlib.import_module("onnx.checker")
    try:
        # tf2onnx keeps an operation that ONNX lacks, and only logs it.
        checker.check_model(graph)
    except checker.ValidationError as error:
        raise ValueError(
            f"This model cannot be converted to ONNX: {error}"
        ) from error
    for tensor in (*graph.graph.input, *graph.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    return graph.SerializeToString()


def _with_constants(function, specs):
    """The function with all that it captured as constants.

    Tensors that a layer made before, such as the mean of `Normalization`, would
    become inputs of the file.
    """
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    whole = tf.function(
        function, input_signature=specs, autograph=False
    ).get_concrete_function()
    # tf2onnx knows loops and branches only as they are, not lowered to jumps.
    frozen = convert_to_constants.convert_variables_to_constants_v2(
        whole, lower_control_flow=False
    )
    # In the order in which TensorFlow flattens a dict.
    names = sorted(whole.structured_outputs)

    def with_names(*inputs):
        return dict(zip(names, frozen(*inputs), strict=True))

    return tf.function(with_names, input_signature=specs, autograph=False)


def _check_suffix(path, suffix):
    path = os.fspath(path)
    if not path.endswith(suffix):
        raise ValueError(f"The file name must end in {suffix}; got {path}.")
    return path


def _graph(model, version, allow_uncalibrated):
    """A function from inputs to answers, all in float32, and its input."""
    lazy.require("tensorflow", "tensorflow")
    import tensorflow as tf

    answering = answering_of(model, version, allow_uncalibrated)
    if keras_private.tables_inside(model):
        raise ValueError(
            "A layer of the model uses a lookup table, which this format "
            "cannot store. Export a SavedModel instead: see export."
        )
    model = _in_float32(model)
    # Without a matrix product, whose centers would be quantized as well.
    answering = answering._replace(direct=True)

    def serve(images):
        outputs = scored(model, images, answering)
        return answer(model, outputs, answering)

    taken = model.inputs_taken
    shape = taken.fixed_shape
    name = name_of_inputs(shape)
    return serve, [tf.TensorSpec((None, *shape), taken.dtype, name=name)]


def _in_float32(model):
    """The model itself, or a copy where a layer computes in half precision."""
    dtypes = keras_private.compute_dtypes(model)
    if not dtypes & {"float16", "bfloat16"}:
        return model
    try:
        config = _with_float32_policies(model.get_config())
        copy = type(model).from_config(config)
    except (NotImplementedError, TypeError) as error:
        raise ValueError(
            "A model that computes in half precision is converted to a "
            f"float32 copy, but this one cannot be copied: {error}"
        ) from error
    # Through a file: only so, layers such as Normalization take their weights.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.weights.h5")
        model.save_weights(path)
        copy.load_weights(path)
    return copy


def _with_float32_policies(config):
    """A layer's configuration with float32 for policies of half precision."""
    if isinstance(config, dict):
        is_policy = config.get("class_name") == "DTypePolicy"
        # "mixed_bfloat16" and so on.
        if is_policy and config["config"]["name"].endswith("float16"):
            return {**config, "config": {"name": "float32"}}
        return {k: _with_float32_policies(v) for k, v in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(map(_with_float32_policies, config))
    return config


def _select(context, node, name, args):
    """`tf.where` in the form of ONNX.

    tf2onnx multiplies by 0 and 1 instead, which does not remove NaN and
    infinity.
    """
    node.type = "Where"


def _write(path, content):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with (
        # What a killed attempt left is written again by the next one.
        atomic_files.replacing_alone(path) as temporary,
        open(temporary, "wb") as file,
    ):
        file.write(content)
