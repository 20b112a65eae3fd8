# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from cac_tf.training.runtime import Runtime
from tests.conftest import ROOT


def test_the_same_numbers_again():
    drawn = []
    for seed in (1, 1, 2):
        Runtime(seed).start()
        layer = keras.layers.Dense(3)
        layer.build((None, 4))
        drawn.append((np.asarray(layer.kernel), np.random.rand()))
    np.testing.assert_array_equal(drawn[0][0], drawn[1][0])
    assert drawn[0][1] == drawn[1][1]
    assert np.any(drawn[0][0] != drawn[2][0])


# Prints what TensorFlow says of determinism, and the threads.
CODE = """
import sys
from cac_tf.training.runtime import Runtime
runtime = Runtime(0, deterministic=sys.argv[1] == "yes")
runtime.start()
import keras
if keras.backend.backend() == "tensorflow":
    from tensorflow.python.framework import config
    print(config.is_op_determinism_enabled())
    import tensorflow as tf
    if len(sys.argv) > 2:
        tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[2]))
else:
    print("none")
print(runtime.intra_op_threads)
"""


def say(*arguments, **variables):
    result = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="of TensorFlow"
)
def test_tensorflow():
    cores = str(len(os.sched_getaffinity(0)))
    assert say("yes") == ["True", cores]
    assert say("no", "3") == ["False", "3"]


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="of JAX")
def test_jax():
    cores = str(len(os.sched_getaffinity(0)))
    assert say("yes", NPROC="") == ["none", cores]
    assert say("yes", NPROC="5") == ["none", "5"]
