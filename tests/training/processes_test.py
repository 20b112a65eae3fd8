# SPDX-License-Identifier: Apache-2.0
"""Several processes that train together give what one gives."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from cac_tf.training.processes import Processes
from cac_tf.training.processes import ProcessLostError
from cac_tf.training.runtime import Runtime
from tests.conftest import ROOT
from tests.training import devices_test

on_jax = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="several processes need JAX"
)
CAC_TRAIN = (sys.executable, "-W", "ignore", "-m", "cac_tf.train.cac_train")


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def start(command):
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def start_two(command, of_process):
    """Both processes; `of_process` gives their arguments by address and id."""
    address = f"localhost:{free_port()}"
    return [start([*command, *of_process(address, i)]) for i in range(2)]


def outputs_of(processes):
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    return outputs, [process.returncode for process in processes]


@on_jax
@pytest.mark.slow
def test_two_processes_give_the_weights_of_one(tmp_path):
    # Each with two devices; 61 rows do not divide.
    program = [*devices_test.PROGRAM, tmp_path]
    both = start_two([*program, 2, "few"], lambda where, i: (where, 2, i))
    outputs, statuses = outputs_of(both)
    assert statuses == [0, 0], outputs
    outputs, statuses = outputs_of([start([*program, 1, "few"])])
    assert statuses == [0], outputs
    one = np.load(tmp_path / "1x1_0.npz")
    of_two = [np.load(tmp_path / f"2x2_{i}.npz") for i in range(2)]
    for name in one.files:
        # The two do the same sums in the same order.
        np.testing.assert_array_equal(of_two[0][name], of_two[1][name], name)
        np.testing.assert_allclose(
            of_two[0][name], one[name], rtol=1e-5, atol=5e-5, err_msg=name
        )
    devices_test.assert_exact(tmp_path, "2x2_0")


def train(folder, *more):
    """The command, which also compares scores that are fitted."""
    plain = ("--scale=1", "--rotation=0", "--dropout=0", "--epochs=4")
    return (
        *(*CAC_TRAIN, "--dataset=digits", "--test_fraction=0.8", *plain),
        *("--batch_size=64", "--scores=vim,knn", f"--output_dir={folder}"),
        *more,
    )


def place(address, i):
    """The flags of one of two processes."""
    return (
        *(f"--coordinator={address}", "--num_processes=2"),
        f"--process_id={i}",
    )


def wait_for_a_checkpoint(folder):
    until = time.monotonic() + 200
    checkpoint = folder / "checkpoints" / "classifier.npz"
    while not checkpoint.exists() and time.monotonic() < until:
        time.sleep(0.05)


@on_jax
@pytest.mark.slow
def test_the_first_process_is_killed(tmp_path):
    """JAX ends the others then, mostly before they can say more."""
    both = start_two(train(tmp_path), place)
    wait_for_a_checkpoint(tmp_path)
    os.killpg(both[0].pid, signal.SIGKILL)
    (_, output), statuses = outputs_of(both)
    assert statuses[0] == -signal.SIGKILL
    assert statuses[1] in (1, -signal.SIGABRT), output
    assert "another task died" in output or "lost its connection" in output
    assert not (tmp_path / "metrics.json").exists()
    (first, second), statuses = outputs_of(start_two(train(tmp_path), place))
    assert statuses == [0, 0], first + second
    assert "epoch 1/4" not in first and "epoch 4/4" in first, first


@on_jax
@pytest.mark.slow
def test_a_killed_process_is_named_and_the_run_goes_on(tmp_path):
    folder = tmp_path / "of_two"
    both = start_two(train(folder), place)
    wait_for_a_checkpoint(folder)
    os.killpg(both[1].pid, signal.SIGKILL)
    (output, _), statuses = outputs_of(both)
    assert statuses == [1, -signal.SIGKILL], output
    assert "error: Process 0 of 2 lost its connection" in output
    assert not (folder / "metrics.json").exists()
    # A process with other settings does not join in.
    wrong = start_two(
        train(folder),
        lambda *where: (*place(*where), f"--epochs={4 + where[1]}"),
    )
    (first, second), statuses = outputs_of(wrong)
    assert statuses == [1, 2], first + second
    assert "epochs: 4 there, 5 now" in second
    assert "error: Process 0 of 2 lost" in first
    # The same commands go on; only the first says much.
    (first, second), statuses = outputs_of(start_two(train(folder), place))
    assert statuses == [0, 0], first + second
    assert "epoch 1/4" not in first and "epoch 4/4" in first
    assert "epoch" not in second and "process 0 has the results" in second
    # Finished for both.
    (first, second), statuses = outputs_of(start_two(train(folder), place))
    assert statuses == [0, 0] and "finished" in first, first + second
    whole = tmp_path / "of_one"
    (output,), statuses = outputs_of([start(train(whole))])
    assert statuses == [0], output
    of_two, of_one = [
        json.loads((path / "metrics.json").read_text())
        for path in (folder, whole)
    ]
    for name in ("auroc", "accuracy", "oscr", "threshold"):
        assert of_two[name] == pytest.approx(of_one[name], rel=1e-2), name


def test_one_process_is_the_first_and_shares_nothing(tmp_path, monkeypatch):
    # It does so where JAX is not installed.
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "jax.experimental", None)
    processes = Processes()
    with Runtime(seed=0).connected(), processes.own_folder(tmp_path) as path:
        assert path == tmp_path
        assert processes.is_first
        assert processes.of_first({"a": [1, None]}) == {"a": [1, None]}
        (tmp_path / "a.npz").write_bytes(b"1")
        processes.share(tmp_path)
    assert (tmp_path / "a.npz").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("host:1", 0, 0), "num_processes must be at least 1; got 0"),
        (("host:1", 2, 2), r"process_id must be in 0\.\.\.1; got 2"),
        (("host:1", 2, -1), r"process_id must be in 0\.\.\.1; got -1"),
        (("host:1", 1, 0), "coordinator has no effect with num_processes=1"),
        ((None, 1, 1), r"process_id must be in 0\.\.\.0; got 1"),
        (("host", 2, 0), "coordinator must be host:port.*got 'host'"),
        ((None, 2, 0), "coordinator must be host:port.*got None"),
    ],
)
def test_bad_places(arguments, message):
    with pytest.raises(ValueError, match=message):
        Processes(*arguments)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has it")
def test_other_backends_point_to_jax():
    with pytest.raises(ValueError, match="needs JAX.*devices=N"):
        Processes("localhost:1", 2, 0)


@on_jax
@pytest.mark.parametrize("port", [1, 99999])
def test_a_first_process_that_is_not_there(port):
    processes = Processes(f"localhost:{port}", 2, 1)
    with (
        pytest.raises(
            ProcessLostError,
            match="Cannot reach the first process at localhost",
        ),
        processes.connected(timeout=0.5),
    ):
        pass
