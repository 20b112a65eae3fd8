# SPDX-License-Identifier: Apache-2.0
"""A stand-in for TensorFlow Serving, on the loopback: gRPC and REST.

Not the server: it shows that requests, answers and the files of an export
have the forms of `tensorflow-serving-api`, and how REST's JSON is read as its
documentation says. Models are run by a session, as the server does.

    python tests/serving/stand_in.py <model's folder> <gRPC port> <REST port>
"""

import base64
import concurrent.futures
import http.server
import json
import os
import re
import sys
import threading

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf import text_format
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import input_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

# Digits of a body's length in bytes.
_LONGEST_LENGTH = 9


class RefusedError(Exception):
    """A request that the server refuses, with a gRPC status."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def invalid(message):
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)


class Model:
    """The highest version in a model's folder."""

    def __init__(self, folder):
        with open(os.path.join(folder, "models.config")) as file:
            config = text_format.Parse(
                file.read(), model_server_config_pb2.ModelServerConfig()
            )
        (served,) = config.model_config_list.config
        self.name = served.name
        self.version = max(int(n) for n in os.listdir(folder) if n.isdigit())
        path = os.path.join(folder, str(self.version))
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph)
        with graph.as_default():
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, ["serve"], path
            )
        self.signatures = meta_graph.signature_def
        self.num_warm_up_requests = self._warm_up(path)

    def _warm_up(self, path):
        records = os.path.join(
            path, "assets.extra", "tf_serving_warmup_requests"
        )
        count = 0
        for record in tf.data.TFRecordDataset(records).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.HasField("classify_log"):
                self.classify(log.classify_log.request)
            else:
                self.predict(log.predict_log.request)
            count += 1
        return count

    def signature(self, model_spec):
        if model_spec.name != self.name or (
            model_spec.HasField("version")
            and model_spec.version.value != self.version
        ):
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {model_spec.name}",
            )
        name = model_spec.signature_name or "serving_default"
        if name not in self.signatures:
            raise invalid(f'Serving signature name: "{name}" not found.')
        return self.signatures[name]

    def run(self, signature, inputs):
        expected, sent = sorted(signature.inputs), sorted(inputs)
        if expected != sent:
            raise invalid(
                f"input size does not match signature: {sent} != {expected}"
            )
        feeds = {signature.inputs[name].name: inputs[name] for name in inputs}
        for name, value in inputs.items():
            wanted = tf.dtypes.as_dtype(signature.inputs[name].dtype)
            if tf.dtypes.as_dtype(value.dtype) not in (wanted, tf.string):
                raise invalid(
                    f"Expects {name} to be {wanted.name} but {value.dtype} is "
                    "provided"
                )
        fetches = {k: v.name for k, v in signature.outputs.items()}
        try:
            return self._session.run(fetches, feeds)
        except tf.errors.InvalidArgumentError as error:
            raise invalid(error.message) from error
        except (TypeError, ValueError) as error:
            raise invalid(str(error)) from error

    def predict(self, request):
        signature = self.signature(request.model_spec)
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for name, value in self.run(signature, inputs).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        self._specify(response.model_spec, request.model_spec)
        return response

    def classify(self, request):
        signature = self.signature(request.model_spec)
        if signature.method_name != "tensorflow/serving/classify":
            raise invalid(
                "Expected classification signature; got "
                f"{signature.method_name}"
            )
        examples = request.input.example_list.examples
        if not examples:
            raise invalid("Input is empty.")
        rows = np.array([e.SerializeToString() for e in examples], object)
        outputs = self.run(signature, {"inputs": rows})
        response = classification_pb2.ClassificationResponse()
        for classes, scores in zip(
            outputs["classes"], outputs["scores"], strict=True
        ):
            row = response.result.classifications.add()
            for label, score in zip(classes, scores, strict=True):
                row.classes.add(label=label.decode(), score=score)
        self._specify(response.model_spec, request.model_spec)
        return response

    def metadata(self, request):
        self.signature(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in self.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata["signature_def"].Pack(signatures)
        self._specify(response.model_spec, request.model_spec)
        return response

    def _specify(self, answered, asked):
        answered.CopyFrom(asked)
        answered.version.value = self.version


class GrpcService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, model):
        self._model = model

    def Predict(self, request, context):
        return self._answer(self._model.predict, request, context)

    def Classify(self, request, context):
        return self._answer(self._model.classify, request, context)

    def GetModelMetadata(self, request, context):
        return self._answer(self._model.metadata, request, context)

    def _answer(self, method, request, context):
        try:
            return method(request)
        except RefusedError as error:
            context.abort(error.code, str(error))


class RestHandler(http.server.BaseHTTPRequestHandler):
    model = None  # set by `serve`
    timeout = 10  # seconds that a client may keep the server waiting
    _PATH = re.compile(
        r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+))?"
        r"(?P<verb>:predict|:classify|/metadata)"
    )

    def do_GET(self):
        self._answer(None)

    def do_POST(self):
        length = self.headers["Content-Length"] or ""
        # Without a length that can be, the end of the body is not known.
        is_known = length.isdecimal() and len(length) <= _LONGEST_LENGTH
        self._answer(self.rfile.read(int(length)) if is_known else None)

    def log_message(self, *args):
        pass

    def _answer(self, body):
        try:
            status, content = 200, self._content(body)
        except RefusedError as error:
            is_absent = error.code == grpc.StatusCode.NOT_FOUND
            status, content = 404 if is_absent else 400, {"error": str(error)}
        except Exception as error:
            # Whatever a request holds that its protocol buffer cannot.
            text = f"{type(error).__name__}: {error}"
            status, content = 400, {"error": f"Malformed request: {text}"}
        # Bare NaN would stand here as the server writes it.
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _content(self, body):
        match = self._PATH.fullmatch(self.path)
        if match is None:
            raise invalid(f"Malformed request: {self.path}")
        spec = predict_pb2.PredictRequest().model_spec
        spec.name = match["name"]
        if match["version"]:
            spec.version.value = int(match["version"])
        if match["verb"] == "/metadata":
            request = get_model_metadata_pb2.GetModelMetadataRequest()
            request.model_spec.CopyFrom(spec)
            response = self.model.metadata(request)
            signatures = get_model_metadata_pb2.SignatureDefMap()
            response.metadata["signature_def"].Unpack(signatures)
            as_json = json_format.MessageToDict(
                signatures, preserving_proto_field_name=True
            )
            return {"metadata": {"signature_def": as_json}}
        if body is None:
            raise invalid("Malformed request: no Content-Length, or no body")
        try:
            sent = json.loads(body)
        except ValueError as error:
            raise invalid(f"JSON Parse error: {error}") from error
        if not isinstance(sent, dict):
            raise invalid("JSON Value is not an object")
        spec.signature_name = sent.get("signature_name", "serving_default")
        if match["verb"] == ":classify":
            return self._classify(spec, sent)
        return self._predict(spec, sent)

    def _predict(self, spec, sent):
        signature = self.model.signature(spec)
        rows = sent.get("instances")
        if not isinstance(rows, list) or not rows:
            raise invalid('Missing or empty "instances"')
        names = list(signature.inputs)
        is_named = isinstance(rows[0], dict) and list(rows[0]) != ["b64"]
        if not is_named:
            if len(names) != 1:
                raise invalid(f"instances must be objects with {names}")
            rows = [{names[0]: row} for row in rows]
        if any(
            not isinstance(r, dict) or sorted(r) != sorted(names) for r in rows
        ):
            raise invalid(f"Every instance must have exactly {names}")
        inputs = {}
        for name in names:
            info = signature.inputs[name]
            dtype = tf.dtypes.as_dtype(info.dtype)
            values = [_from_json(row[name]) for row in rows]
            try:
                as_numpy = (
                    object if dtype == tf.string else (dtype.as_numpy_dtype)
                )
                inputs[name] = np.array(values, as_numpy)
            except (TypeError, ValueError) as error:
                raise invalid(f"{name}: {error}") from error
        outputs = self.model.run(signature, inputs)
        predictions = [
            {name: _to_json(value[i]) for name, value in outputs.items()}
            for i in range(len(rows))
        ]
        if len(outputs) == 1:
            predictions = [v for p in predictions for v in p.values()]
        return {"predictions": predictions}

    def _classify(self, spec, sent):
        request = classification_pb2.ClassificationRequest()
        request.model_spec.CopyFrom(spec)
        examples = input_pb2.ExampleList()
        for features in sent.get("examples") or []:
            example = examples.examples.add()
            for name, value in features.items():
                value = _from_json(value)
                values = value if isinstance(value, list) else [value]
                feature = example.features.feature[name]
                if isinstance(values[0], bytes):
                    feature.bytes_list.value.extend(values)
                else:
                    feature.float_list.value.extend(values)
        request.input.example_list.CopyFrom(examples)
        response = self.model.classify(request)
        return {
            "results": [
                [[c.label, c.score] for c in row.classes]
                for row in response.result.classifications
            ]
        }


def _from_json(value):
    if isinstance(value, dict) and list(value) == ["b64"]:
        return base64.b64decode(value["b64"])
    if isinstance(value, str):
        return value.encode()
    return [_from_json(v) for v in value] if isinstance(value, list) else value


def _to_json(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        return [_to_json(v) for v in value.tolist()]
    return value.item() if hasattr(value, "item") else value


def serve(folder, grpc_port=0, rest_port=0):
    """Starts both servers; gives the model, the ports and how to stop."""
    model = Model(folder)
    pool = concurrent.futures.ThreadPoolExecutor(8)
    server = grpc.server(pool)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        GrpcService(model), server
    )
    grpc_port = server.add_insecure_port(f"localhost:{grpc_port}")
    server.start()
    handler = type("Handler", (RestHandler,), {"model": model})
    rest = http.server.ThreadingHTTPServer(("localhost", rest_port), handler)
    threading.Thread(target=rest.serve_forever, daemon=True).start()

    def stop():
        server.stop(grace=None)
        rest.shutdown()
        rest.server_close()

    return model, grpc_port, rest.server_port, stop


if __name__ == "__main__":
    # Kept, or the gRPC server would end with it.
    running = serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print("A stand-in for TensorFlow Serving answers; Ctrl-C ends it.")
    threading.Event().wait()
