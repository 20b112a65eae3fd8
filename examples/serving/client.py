# SPDX-License-Identifier: Apache-2.0
"""Classifies images with TensorFlow Serving, by gRPC or REST.

    python examples/serving/client.py --model=digits photo1.jpg photo2.png
    python examples/serving/client.py --model=digits --protocol=rest photo1.jpg

Prints, for every file, the class or "unknown", the unknown score and the
threshold that it was compared with. The server must serve a model that
`cac-export` wrote. With --threshold, the files are decoded here, and the server
compares with that number instead of the calibrated one.

gRPC needs `tensorflow-serving-api`; REST needs only Python (and Pillow with
--threshold).
"""

import argparse
import base64
import json
import sys
import urllib.error
import urllib.request

ANSWERS = ("label", "unknown_score", "threshold", "is_valid")


class ServerError(Exception):
    """The server cannot be reached, or refuses the request."""


class GrpcClient:
    """The Predict and GetModelMetadata calls of one server."""

    def __init__(self, address, model, version=None, timeout=10.0):
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        self._model, self._version = model, version
        self._timeout = timeout
        channel = grpc.insecure_channel(address)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def predict(self, signature, inputs):
        """Outputs of a signature, a dict of NumPy arrays."""
        import numpy as np
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        self._specify(request.model_spec)
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            dtype = object if isinstance(value[0], bytes) else "float32"
            proto = tf.make_tensor_proto(np.array(value, dtype))
            request.inputs[name].CopyFrom(proto)
        response = self._call(self._stub.Predict, request)
        return {
            name: tf.make_ndarray(value)
            for name, value in response.outputs.items()
        }

    def input_size(self):
        """Height, width and channels of the images that the model takes."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest()
        self._specify(request.model_spec)
        request.metadata_field.append("signature_def")
        response = self._call(self._stub.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        images = signatures.signature_def["serving_default"].inputs["images"]
        return [dim.size for dim in images.tensor_shape.dim][1:]

    def _specify(self, model_spec):
        model_spec.name = self._model
        if self._version is not None:
            model_spec.version.value = self._version

    def _call(self, method, request):
        import grpc

        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise ServerError(
                f"{error.code().name}: {error.details()}"
            ) from error


class RestClient:
    """The same by HTTP and JSON."""

    def __init__(self, address, model, version=None, timeout=10.0):
        self._url = f"http://{address}/v1/models/{model}"
        if version is not None:
            self._url += f"/versions/{version}"
        self._timeout = timeout

    def predict(self, signature, inputs):
        """Outputs of a signature, a dict of lists."""
        columns = {
            name: [_as_json(value) for value in values]
            for name, values in inputs.items()
        }
        rows = [
            dict(zip(columns, row, strict=True))
            for row in zip(*columns.values(), strict=True)
        ]
        if len(columns) == 1:
            rows = [value for row in rows for value in row.values()]
        body = {"signature_name": signature, "instances": rows}
        predictions = self._call(f"{self._url}:predict", body)["predictions"]
        return {name: [p[name] for p in predictions] for name in predictions[0]}

    def input_size(self):
        """Height, width and channels of the images that the model takes."""
        metadata = self._call(f"{self._url}/metadata")["metadata"]
        signatures = metadata["signature_def"]["signature_def"]
        images = signatures["serving_default"]["inputs"]["images"]
        return [int(d["size"]) for d in images["tensor_shape"]["dim"]][1:]

    def _call(self, url, body=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(url, data, self._timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise ServerError(f"HTTP {error.code}: {text}") from error
        except OSError as error:
            raise ServerError(f"{url}: {error}") from error


def _as_json(value):
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value.tolist() if hasattr(value, "tolist") else value


def ask(client, files, threshold=None):
    """The answers for files of images, one dict a file."""
    contents = []
    for path in files:
        with open(path, "rb") as file:
            contents.append(file.read())
    if threshold is None:
        outputs = client.predict("encoded_images", {"images": contents})
    else:
        size = client.input_size()
        images = [_pixels(path, size) for path in files]
        outputs = client.predict(
            "with_threshold",
            {"images": images, "threshold": [threshold] * len(files)},
        )
    answers = []
    for row, path in enumerate(files):
        answer = {name: outputs[name][row] for name in ANSWERS}
        if isinstance(answer["label"], bytes):
            answer["label"] = answer["label"].decode()
        answers.append({"file": path, **answer})
    return answers


def _pixels(path, size):
    import numpy as np
    import PIL.Image
    import PIL.ImageOps

    height, width, channels = size
    with PIL.Image.open(path) as image:
        image = PIL.ImageOps.exif_transpose(image)
        image = image.convert("L" if channels == 1 else "RGB")
        image = image.resize((width, height), PIL.Image.Resampling.BILINEAR)
        return np.float32(image).reshape(size)


def main():
    """Asks, and prints a line for each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--model", required=True, help="the served name")
    parser.add_argument("--version", type=int, help="default: the latest")
    parser.add_argument("--protocol", choices=["grpc", "rest"], default="grpc")
    parser.add_argument(
        "--server", help="host:port; default: localhost:8500, REST 8501"
    )
    parser.add_argument(
        "--threshold", type=float, help="in place of the calibrated one"
    )
    arguments = parser.parse_args()
    kind, port = {"grpc": (GrpcClient, 8500), "rest": (RestClient, 8501)}[
        arguments.protocol
    ]
    server = arguments.server or f"localhost:{port}"
    client = kind(server, arguments.model, arguments.version)
    try:
        answers = ask(client, arguments.files, arguments.threshold)
    except (ServerError, OSError) as error:
        sys.exit(f"client.py: error: {error}")
    # Files for --threshold were read here.
    refused = (
        "not a readable image"
        if arguments.threshold is None
        else "refused: this threshold is none for the model's score"
    )
    for answer in answers:
        print(
            "{file}: {label} (unknown score {unknown_score:.4g}, threshold "
            "{threshold:.4g})".format(**answer)
            if answer["is_valid"]
            else f"{answer['file']}: {refused}"
        )


if __name__ == "__main__":
    main()
