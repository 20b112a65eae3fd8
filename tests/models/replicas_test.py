# SPDX-License-Identifier: Apache-2.0
"""Classifiers under tf.distribute."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests import execution
from tests.conftest import ROOT

ON_TENSORFLOW = execution.BACKEND == "tensorflow"

UNEQUAL_REPLICAS = """
import json
import keras, numpy as np, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)

import cac_tf
from tests.conftest import blobs, small_classifier

x, y = blobs(np.random.default_rng(0))
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def new(scope):
    with scope:
        backbone = keras.Sequential([
            keras.Input([5]),
            keras.layers.Dense(4),
            keras.layers.Reshape([1, 1, 4]),
            cac_tf.layers.BatchNormalization(SYNCHRONIZED),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ])
        return small_classifier(backbone=backbone)

two, one = new(strategy.scope()), new(tf.distribute.get_strategy().scope())
# 13 rows and 12; then one for the first replica and none for the second.
history = two.fit(
    x[:26], y[:26], batch_size=25, epochs=2, shuffle=False, verbose=0,
    validation_data=(x[30:31], y[30:31]),
).history
one.backbone.set_weights(two.backbone.get_weights())
print(json.dumps([
    history,
    [
        [model.evaluate(x[:n], y[:n], verbose=0) for n in (1, 26)]
        for model in (two, one)
    ],
]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not ON_TENSORFLOW, reason="replicas of tf.distribute")
@pytest.mark.parametrize("synchronized", [True, False])
def test_replicas_with_more_rows_than_others_and_with_none(synchronized):
    """A last batch of one row; one row to validate with."""
    code = f"SYNCHRONIZED = {synchronized}\n{UNEQUAL_REPLICAS}"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    history, (two, one) = json.loads(result.stdout)
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert np.isfinite(list(history.values())).all()
    np.testing.assert_allclose(two, one, rtol=1e-5)
