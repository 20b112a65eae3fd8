# SPDX-License-Identifier: Apache-2.0
"""Several devices of one machine give what one device gives."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from cac_tf import data
from cac_tf.training.runtime import Runtime
from tests.conftest import ROOT

PROGRAM = (
    *(sys.executable, "-W", "ignore"),
    *("-m", "tests.training.train_on_digits"),
)


def assert_exact(folder, name):
    """Without batch normalization, all but the last bits are the same."""
    one, several = [
        np.load(folder / f"{place}_exact.npz") for place in ("1x1_0", name)
    ]
    for what in one.files:
        np.testing.assert_allclose(
            several[what], one[what], rtol=1e-6, atol=1e-6, err_msg=what
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:These classes keep")
def test_devices_give_the_weights_of_one(tmp_path):
    # Processes of their own: in one, TensorFlow takes one number of devices.
    for arguments in (["4", "few"], ["1", "few"], ["2", "whole"]):
        result = subprocess.run(
            [*PROGRAM, tmp_path, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            # A CPU's convolution by oneDNN fails where a replica has no row.
            env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        )
        assert result.returncode == 0, result.stderr
    one = np.load(tmp_path / "1x1_0.npz")
    for devices in (2, 4):
        several = np.load(tmp_path / f"{devices}x1_0.npz")
        for name in one.files:
            # Sums in another order, through nine batch normalizations. Where
            # replicas had statistics or means of their own, it was 0.05.
            np.testing.assert_allclose(
                several[name], one[name], rtol=1e-5, atol=5e-5, err_msg=name
            )
        assert_exact(tmp_path, f"{devices}x1_0")
    resumed, whole = [
        [float(text) for text in line.split()[1:]]
        for line in result.stdout.splitlines()
        if line.startswith("METRICS")
    ]
    np.testing.assert_allclose(resumed, whole, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="about oneDNN"
)
def test_a_device_without_a_row(tmp_path):
    """`cac-train` chooses kernels that take it: the last batch has one row."""
    few = data.load_open_set_dataset("digits", test_fraction=0.8)
    environment = dict(os.environ)
    environment.pop("TF_ENABLE_ONEDNN_OPTS", None)
    result = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "cac_tf.train.cac_train"),
            *("--dataset=digits", "--test_fraction=0.8", "--devices=2"),
            *("--epochs=1", f"--batch_size={few.train.size - 1}"),
            f"--output_dir={tmp_path}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert result.returncode == 0, result.stderr


def test_too_many_devices():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        Runtime(seed=0, devices=0)
    keras.ops.zeros(1) + 1  # The backend has started.
    with (
        pytest.raises(
            ValueError, match=r"devices=4096 was requested, but \w+ has"
        ),
        Runtime(seed=0, devices=4096).scope(),
    ):
        pass


def test_a_scope_leaves_nothing_behind():
    before = keras.distribution.distribution()
    with Runtime(seed=0).scope():
        assert keras.distribution.distribution() is before
    assert keras.distribution.distribution() is before
