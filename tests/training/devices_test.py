# SPDX-License-Identifier: Apache-2.0
"""Several devices of one machine give what one device gives."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from cac_tf.training import Runtime
from tests.conftest import ROOT

# Trains on digits on some virtual devices: 61 rows in the last batch, and one
# to validate with. Then, if wanted, a whole run that is interrupted and goes on
# with one device, beside one that was never interrupted.
CODE = """
import dataclasses, sys
import numpy as np
from cac_tf import data, experiments, methods
from cac_tf.training import Runtime, TrainingRun

folder, devices, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
digits = data.load_open_set_dataset(dataset="digits", trial=0)
def first(part, n):
    return data.Examples(part.images[:n], part.labels[:n])
few = dataclasses.replace(
    digits,
    train=first(digits.train, 3 * 64 + 61),
    validation=first(digits.validation, 65),
)
method = methods.get("cac")
# On TensorFlow, random numbers are those of each device.
plain = {"scale": 1.0, "rotation": 0.0, "dropout": 0.0, "batch_size": 64}
recipe = method.recipe.of_preset(
    method.preset("digits"), {**plain, "epochs": 1}
)
runtime = Runtime(seed=0, devices=devices)
run = TrainingRun(runtime, f"{folder}/{devices}")
with runtime.scope():
    model = method.train(few, recipe, run)
theta = model.calibrate(few.validation.images, true_positive_rate=0.9)
np.savez(
    f"{folder}/{devices}.npz",
    theta=theta,
    history=[v for v in run.history[0].values() if not isinstance(v, str)],
    scores=model.predict_scores(few.unknown_test.images).unknown_score,
    **{f"weight {i}": v for i, v in enumerate(model.get_weights())},
)
if what != "whole":
    sys.exit()

def interrupt(kind, *values):
    from keras import callbacks
    class Interrupts(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt
    return [Interrupts()] if kind == "callbacks" else None

config = experiments.ExperimentConfig(
    {"dataset": "digits", "test_fraction": 0.8},
    recipe={**plain, "epochs": 2},
)
try:
    experiments.train(
        config, f"{folder}/resumed", devices=devices, tell=interrupt
    )
except KeyboardInterrupt:
    pass
for name, number in (("resumed", 1), ("whole", devices)):
    experiments.train(config, f"{folder}/{name}", devices=number)
    metrics = experiments.read_metrics(f"{folder}/{name}")
    print("METRICS", metrics["auroc"], metrics["accuracy"], metrics["oscr"])
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Class .* keeps its anchor")
def test_devices_give_the_weights_of_one(tmp_path):
    # Processes of their own: in one, TensorFlow takes one number of devices.
    for arguments in (["4", "few"], ["1", "few"], ["2", "whole"]):
        result = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CODE, tmp_path, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            # A CPU's convolution by oneDNN fails where a replica has no row.
            env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        )
        assert result.returncode == 0, result.stderr
    one = np.load(tmp_path / "1.npz")
    for devices in (2, 4):
        several = np.load(tmp_path / f"{devices}.npz")
        for name in one.files:
            # Sums in another order, through nine batch normalisations. Where
            # replicas had statistics or means of their own, it was 0.05.
            np.testing.assert_allclose(
                several[name], one[name], rtol=1e-5, atol=5e-5, err_msg=name
            )
    resumed, whole = [
        [float(text) for text in line.split()[1:]]
        for line in result.stdout.splitlines()
        if line.startswith("METRICS")
    ]
    np.testing.assert_allclose(resumed, whole, rtol=1e-3)


def test_too_many_devices():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        Runtime(seed=0, devices=0)
    keras.ops.zeros(1) + 1  # The backend has started.
    with (
        pytest.raises(ValueError, match=r"devices=4096 are wanted; \w+ has"),
        Runtime(seed=0, devices=4096).scope(),
    ):
        pass


def test_a_scope_leaves_nothing_behind():
    before = keras.distribution.distribution()
    with Runtime(seed=0).scope():
        assert keras.distribution.distribution() is before
    assert keras.distribution.distribution() is before
