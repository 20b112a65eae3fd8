# SPDX-License-Identifier: Apache-2.0
"""Requests that TF Serving replays before it accepts others.

The first run of a graph is slow: it is optimized and its memory allocated
then. A server does that with these requests, one for each signature and each
size of a batch that it will form, while clients still get the old version.
"""

import base64
import io
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import PIL.Image

from cac_tf.export.signatures import IMAGE_FEATURE
from cac_tf.export.signatures import TEXT_FEATURE
from cac_tf.export.signatures import VECTOR_FEATURE
from cac_tf.export.signatures import name_of_inputs
from cac_tf.models.raw_inputs import TEXTS
from cac_tf.models.raw_inputs import takes_encoded_images

# Where TF Serving looks for them in a version's folder.
FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
_TEXT = "A text."
# A grey pixel; for inputs that are not images, an arbitrary number, but 0 for
# whole numbers, which may be places in a table.
_GREY = 127


def write_warm_up_requests(
    folder: str,
    names: Iterable[str],
    shape: tuple[int, ...],
    model_name: str,
    batch_sizes: Iterable[int],
    dtype: str = "float32",
) -> int:
    """Writes the requests into the folder of a SavedModel.

    Args:
        folder: of the SavedModel.
        names: of its signatures.
        shape: of one input.
        model_name: name under which the model is served.
        batch_sizes: sizes to warm up.
        dtype: of one input.

    Returns:
        Number of requests written.
    """
    import tensorflow as tf

    path = os.path.join(folder, FILE)
    os.makedirs(os.path.dirname(path))
    logs = [
        request_log(name, shape, model_name, size, dtype)
        for name in names
        for size in batch_sizes
    ]
    with tf.io.TFRecordWriter(path) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    return len(logs)


def request_log(
    signature: str,
    shape: tuple[int, ...],
    model_name: str,
    batch_size: int,
    dtype: str = "float32",
) -> Any:
    """A `PredictionLog` with a request to one signature.

    All rows are the same. A `TensorProto` repeats its last value as often as
    its shape says, so the requests are small.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    if signature == "classify":
        request = log.classify_log.request
        for _ in range(batch_size):
            request.input.example_list.examples.append(_example(shape, dtype))
    else:
        request = log.predict_log.request
        for name, value in _inputs(signature, shape, dtype).items():
            request.inputs[name].CopyFrom(_filled(value, batch_size))
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature
    return log


def example_json(
    signature: str, shape: tuple[int, ...], dtype: str = "float32"
) -> dict[str, Any]:
    """A request with one row, as TF Serving's REST API takes it."""
    spec = {"signature_name": signature}
    if signature == "classify":
        feature: dict[str, Any]
        if takes_encoded_images(shape):
            feature = {IMAGE_FEATURE: {"b64": _base64(example_file(shape))}}
        elif dtype == TEXTS:
            feature = {TEXT_FEATURE: _TEXT}
        else:
            values = _filling(shape, dtype).ravel().tolist()
            feature = {VECTOR_FEATURE: values}
        return {**spec, "examples": [feature]}
    row = {
        name: _as_json(value)
        for name, value in _inputs(signature, shape, dtype).items()
    }
    # A signature with one input takes its value without a name.
    (first, *others) = row.values()
    return {**spec, "instances": [row if others else first]}


def _as_json(value):
    if isinstance(value, bytes):
        return {"b64": _base64(value)}
    return value if isinstance(value, str) else value.tolist()


def example_file(shape: tuple[int, ...]) -> bytes:
    """A grey PNG file, as bytes."""
    file = io.BytesIO()
    mode = "L" if shape[-1] == 1 else "RGB"
    color = (_GREY,) * shape[-1] if mode == "RGB" else _GREY
    PIL.Image.new(mode, (shape[1], shape[0]), color).save(file, "PNG")
    return file.getvalue()


def _filling(shape, dtype):
    """An input."""
    is_number = len(shape) == 3 or dtype == "float32"
    return np.full(shape, _GREY if is_number else 0, dtype)


def _inputs(signature, shape, dtype):
    """One row of every input of a signature: an array, bytes or a text."""
    if signature == "encoded_images":
        return {"images": example_file(shape)}
    if signature == "uint8_images":
        dtype = "uint8"
    filling = _TEXT if dtype == TEXTS else _filling(shape, dtype)
    inputs = {name_of_inputs(shape): filling}
    if signature == "with_threshold":
        inputs["threshold"] = np.float32(1.0)
    return inputs


def _filled(value, batch_size):
    import tensorflow as tf

    if isinstance(value, (bytes, str)):
        proto = tf.make_tensor_proto([value], tf.string)
    else:
        proto = tf.make_tensor_proto(
            value.flat[0], shape=(1, *value.shape), dtype=value.dtype
        )
    proto.tensor_shape.dim[0].size = batch_size
    return proto


def _example(shape, dtype):
    import tensorflow as tf

    if takes_encoded_images(shape):
        values = tf.train.BytesList(value=[example_file(shape)])
        features = {IMAGE_FEATURE: tf.train.Feature(bytes_list=values)}
    elif dtype == TEXTS:
        values = tf.train.BytesList(value=[_TEXT.encode()])
        features = {TEXT_FEATURE: tf.train.Feature(bytes_list=values)}
    else:
        values = _filling(shape, dtype).ravel()
        if dtype == "float32":
            values = {"float_list": tf.train.FloatList(value=values)}
        else:
            values = {"int64_list": tf.train.Int64List(value=values)}
        features = {VECTOR_FEATURE: tf.train.Feature(**values)}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _base64(data):
    return base64.b64encode(data).decode("ascii")
