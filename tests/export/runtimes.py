# SPDX-License-Identifier: Apache-2.0
"""Exports in the runtimes that read them: answers as NumPy arrays."""

import numpy as np
import pytest
import tensorflow as tf

from cac_tf.export import saved_model
from cac_tf.export.edge_formats import write_litert
from cac_tf.export.edge_formats import write_onnx

# Outputs that `predict_open_set` gives too.
SHARED = (
    "class_id",
    "label",
    "is_unknown",
    "unknown_score",
    "predicted_class_id",
    "gamma",
    "distances",
)


def load_saved_model(path, signature="serving_default"):
    """A function of raw inputs, and of what it takes by name."""
    serve = tf.saved_model.load(path).signatures[signature]
    names = sorted(set(serve.structured_input_signature[1]) - {"threshold"})

    def ask(*rows, **named):
        inputs = {**dict(zip(names, rows, strict=False)), **named}
        answer = serve(**{k: tf.constant(v) for k, v in inputs.items()})
        return {k: v.numpy() for k, v in answer.items()}

    # Keeps the loaded model alive.
    ask.signature = serve
    return ask


def load_litert(path):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    runner = litert.Interpreter(str(path)).get_signature_runner()
    names = runner.get_input_details()

    def ask(*rows, **named):
        return runner(**dict(zip(names, rows, strict=False)), **named)

    ask.signature = runner
    return ask


def load_onnx(path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path))
    assert session.get_inputs()[0].shape[0] == "batch"
    names = [output.name for output in session.get_outputs()]
    assert all(o.shape[0] == "batch" for o in session.get_outputs())

    taken = [one.name for one in session.get_inputs()]

    def ask(*rows, **named):
        inputs = {**dict(zip(taken, rows, strict=False)), **named}
        answers = session.run(names, inputs)
        return dict(zip(names, answers, strict=True))

    return ask


LOAD = {".saved": load_saved_model, ".onnx": load_onnx, ".tflite": load_litert}
# Of one file.
EDGE = (".onnx", ".tflite")


def write(model, path, **options):
    """Writes what a path's suffix asks for; of a SavedModel one signature."""
    if path.suffix == ".onnx":
        pytest.importorskip("tf2onnx")
        write_onnx(model, path, **options)
    elif path.suffix == ".tflite":
        write_litert(model, path, **options)
    else:
        write_signatures(model, path, ["serving_default"], **options)


def write_signatures(model, path, names, allow_uncalibrated=False):
    """Writes a SavedModel with some of its signatures only."""
    answering = saved_model.answering_of(model, 0, allow_uncalibrated)
    path.mkdir()
    saved_model.save_into(str(path), model, answering, signatures=names)


def exported(model, path, **options):
    """A function from raw inputs to the answers of an export."""
    write(model, path, **options)
    return LOAD[path.suffix](path)


def asking(model, path, signature):
    """A function of named inputs, that of a SavedModel with one signature."""
    write_signatures(model, path, [signature])
    return load_saved_model(path, signature)


def assert_same(actual, expected, rtol=1e-4, atol=1e-4):
    """Whether two answers are the same, but for the rounding of scores."""
    for name, wanted in expected.items():
        if name == "model_version":
            continue
        got = np.asarray(actual[name])
        if wanted.dtype == "float32":
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)
        elif wanted.dtype.kind in "OU":
            assert list(map(_text, got)) == list(map(_text, wanted))
        else:
            np.testing.assert_array_equal(got, wanted)


def assert_as_in_python(model, answer, inputs):
    """Whether an export says of inputs what the model in memory says."""
    prediction = model.predict_open_set(inputs)
    assert_same(answer, {n: getattr(prediction, n) for n in SHARED})


def _text(value):
    return value.decode() if isinstance(value, bytes) else str(value)
