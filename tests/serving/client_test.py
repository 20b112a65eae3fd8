# SPDX-License-Identifier: Apache-2.0
"""The example client and a stand-in for the server; TensorFlow's own CLI."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.conftest import load_script
from tests.serving import references
from tests.serving import stand_in

CLIENT = ROOT / "examples" / "serving" / "client.py"


@pytest.fixture(scope="module")
def folder(served_pictures):
    return served_pictures


@pytest.fixture(scope="module")
def server(folder):
    """The model and the ports of both protocols."""
    model, grpc_port, rest_port, stop = stand_in.serve(str(folder))
    yield model, {"grpc": grpc_port, "rest": rest_port}
    stop()


@pytest.fixture
def files(trained_pictures, tmp_path):
    """Six pictures as files, and one that is no picture."""
    paths = []
    for i, picture in enumerate(trained_pictures[1][21:27]):
        path = tmp_path / f"{i}.png"
        path.write_bytes(references.encoded(picture))
        paths.append(path)
    (tmp_path / "text.jpg").write_bytes(b"no picture")
    return [*paths, tmp_path / "text.jpg"]


@pytest.fixture
def run_client(monkeypatch, capsys):
    """Runs the client in this process, and gives what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["client.py", *map(str, arguments)])
        load_script(CLIENT).main()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("protocol", ["grpc", "rest"])
def test_files(server, files, trained_pictures, protocol):
    """In a process without this project."""
    model, pictures = trained_pictures
    expected = model.predict_open_set(pictures[21:27])
    assert 0 < expected.is_unknown.sum() < 6
    printed = subprocess.run(
        [
            *(sys.executable, CLIENT, "--model=digits"),
            f"--server=localhost:{server[1][protocol]}",
            f"--protocol={protocol}",
            *files,
        ],
        capture_output=True,
        text=True,
        cwd="/",
        check=True,
    ).stdout
    lines = [
        f"{file}: {label} (unknown score {score:.4g}, threshold "
        f"{model.threshold:.4g})"
        for file, label, score in zip(
            files, expected.label, expected.unknown_score, strict=False
        )
    ]
    assert printed.splitlines() == [
        *lines,
        f"{files[-1]}: not a readable image",
    ]


@pytest.mark.parametrize("protocol", ["grpc", "rest"])
def test_a_threshold_of_the_client(server, files, run_client, protocol):
    for threshold, all_unknown in ((0, True), (1e6, False)):
        printed = run_client(
            f"--server=localhost:{server[1][protocol]}",
            f"--protocol={protocol}",
            f"--threshold={threshold}",
            *("--model=digits", "--version=3", *files[:-1]),
        )
        unknown = [": unknown (" in line for line in printed.splitlines()]
        assert unknown == 6 * [all_unknown]
    printed = run_client(
        f"--server=localhost:{server[1][protocol]}",
        f"--protocol={protocol}",
        *("--threshold=-1", "--model=digits", files[0]),
    )
    assert "this threshold is none" in printed


@pytest.mark.parametrize("protocol", ["grpc", "rest"])
def test_what_goes_wrong_is_one_sentence(server, files, run_client, protocol):
    address = f"--server=localhost:{server[1][protocol]}"
    for arguments, message in (
        ((address, "--model=other", files[0]), "Servable not found"),
        (("--server=localhost:1", "--model=digits", files[0]), "localhost:1"),
        ((address, "--model=digits", "/no/such.png"), "/no/such.png"),
    ):
        with pytest.raises(SystemExit) as raised:
            run_client(f"--protocol={protocol}", *arguments)
        (line,) = raised.value.code.splitlines()
        assert line.startswith("client.py: error: ")
        if "localhost:1" in arguments[0] and protocol == "grpc":
            assert "UNAVAILABLE" in line
        else:
            assert message in line


def test_the_warm_up_requests_are_answered(server):
    assert server[0].num_warm_up_requests == 10
    classify = server[0].signatures["classify"]
    assert classify.method_name == "tensorflow/serving/classify"


def post(server, verb, body):
    url = f"http://localhost:{server[1]['rest']}/v1/models/digits:{verb}"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(url, data) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_ready_requests_of_the_folder(server, folder):
    for file in (folder / "requests").iterdir():
        verb = "classify" if file.stem == "classify" else "predict"
        status, answer = post(server, verb, file.read_bytes())
        assert status == 200, answer
        if verb == "classify":
            (row,) = answer["results"]
            assert {label for label, _ in row} == {
                *("unknown", "zero", "one", "zwei ©")
            }
        else:
            (row,) = answer["predictions"]
            assert row["is_valid"]
            assert row["model_version"] == 3


def test_a_bad_request_is_refused_and_the_next_one_answered(server, folder):
    good = (folder / "requests" / "uint8_images.json").read_bytes()
    image = json.loads(good)["instances"][0]
    spec = {"signature_name": "with_threshold"}
    for body in (
        b"no JSON",
        {"instances": []},
        {"instances": "text"},
        {"instances": [image[:-1]]},
        {"instances": [{"images": "text"}]},
        {"instances": [[1.0, 2.0]]},
        {"signature_name": "other", "instances": [image]},
        {**spec, "instances": [{"images": image}]},
        {**spec, "instances": [{"images": image, "threshold": "low"}]},
    ):
        status, answer = post(server, "predict", body)
        assert status == 400, (body, answer)
        assert answer["error"]
        assert post(server, "predict", good)[0] == 200


JSON = (
    *("", "{", "[]", "null", "1", '"x"', "\xff\xfe", "[" * 100_000),
    *('{"instances": 1}', '{"instances": [null]}', '{"instances": [{}]}'),
    *('{"instances": [[1e999]]}', '{"instances": [["a", 1, null]]}'),
    *('{"instances": [{"b64": 3}]}', '{"instances": [{"b64": "%"}]}'),
    *('{"instances": [[[1], [1, 2]]]}', '{"instances": [true, {}, []]}'),
    *('{"signature_name": 3}', '{"signature_name": null, "instances": [1]}'),
    *('{"signature_name": "\\ud800", "instances": [1]}', '{"examples": 5}'),
    *('{"examples": [1]}', '{"examples": [{"a": []}]}'),
    *('{"examples": [{"a": {"b": 1}}]}', '{"examples": [{"a": [1, "b"]}]}'),
    *('{"signature_name": "classify", "examples": [{"image": null}]}',),
    *('{"signature_name": "encoded_images", "instances": [3, "x", {}]}',),
)
PATHS = (
    *("/", "/v1/models/digits", "/v1/models/digits:regress", "/v1/models/%00"),
    "/v1/models/digits/versions/99999999999999999999999:predict",
    "/v1/models/digits/versions/3:predict",
    "/v1/models/other:predict",
    *("/v1/models/digits:predict", "/v1/models/digits:classify"),
)


def _http(port, request):
    """Status and body of the answer to bytes sent to the server."""
    with socket.create_connection(("localhost", port), timeout=30) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_malformed_requests_are_answered(server):
    """By 400 or 404 and a message; nothing is dropped, nothing breaks."""
    port, bodies = server[1]["rest"], [text.encode("latin-1") for text in JSON]
    random = np.random.default_rng(0)
    good = b'{"signature_name": "encoded_images", "instances": ["x"]}'
    for _ in range(60):
        damaged = bytearray(good)
        for _ in range(random.integers(1, 6)):
            damaged[random.integers(len(damaged))] = random.integers(256)
        bodies.append(bytes(damaged[: random.integers(1, len(damaged) + 1)]))
    answered = 0
    for path in PATHS:
        for body in bodies if path.endswith(("predict", "classify")) else [b""]:
            status, answer = _http(
                port,
                b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
                % (path.encode(), len(body), body),
            )
            assert status in (200, 400, 404), (path, body)
            assert status == 200 or json.loads(answer)["error"], (path, body)
            answered += status != 200
    assert answered > 300
    lengths = (b"x", b"-1", b"9" * 20)
    for head in (b"", *(b"Content-Length: %s\r\n" % n for n in lengths)):
        request = b"POST /v1/models/digits:predict HTTP/1.0\r\n" + head
        status, answer = _http(port, request + b"\r\n")
        assert (status, b"Content-Length" in answer) == (400, True)
    status, _ = _http(port, b"GET /v1/models/digits/metadata HTTP/1.0\r\n\r\n")
    assert status == 200


def test_answers_over_rest_are_json(server, trained_pictures):
    """No bare NaN or Infinity, whatever was sent."""
    _, pictures = trained_pictures
    sent = pictures[0].tolist()
    body = {
        "signature_name": "with_threshold",
        "instances": [
            {"images": sent, "threshold": threshold}
            for threshold in (1.0, float("nan"), float("inf"), -1.0)
        ],
    }
    _, answer = post(server, "predict", body)
    json.dumps(answer, allow_nan=False)
    valid = [row["is_valid"] for row in answer["predictions"]]
    assert valid == [True, False, False, False]


def test_saved_model_cli(folder, trained_pictures, tmp_path):
    """In a clean process, without this project."""
    model, pictures = trained_pictures
    cli = os.path.join(os.path.dirname(sys.executable), "saved_model_cli")
    np.save(tmp_path / "images.npy", pictures)
    subprocess.run(
        [
            *(cli, "run", "--dir", str(folder / "3"), "--tag_set", "serve"),
            *("--signature_def", "uint8_images", "--outdir", str(tmp_path)),
            *("--inputs", f"images={tmp_path / 'images.npy'}"),
        ],
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    expected = model.predict_open_set(pictures)
    np.testing.assert_array_equal(
        np.load(tmp_path / "class_id.npy"), expected.class_id
    )
    np.testing.assert_allclose(
        np.load(tmp_path / "gamma.npy"), expected.gamma, rtol=1e-5
    )
