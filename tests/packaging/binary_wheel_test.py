# SPDX-License-Identifier: Apache-2.0
"""The wheel that `make wheels` builds, where there is no compiler."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

from cac_tf.ops import loader
from tests import execution
from tests.packaging.conftest import build
from tests.packaging.conftest import copy_of_the_tree
from tests.packaging.conftest import install
from tests.packaging.conftest import python

EXCLUDED = "libtensorflow_*.so.2"

# A loss and its gradient, by the library and by stock operations.
COMPARE = """
import sys
sys.path[:0] = [sys.argv[1]]
import shutil
assert shutil.which("g++") is None and shutil.which("gcc") is None
import numpy as np, tensorflow as tf
from cac_tf import losses, ops
from cac_tf.ops import loader
assert str(loader.FOLDER).startswith(sys.argv[1]), loader.FOLDER
assert ops.binding() is not None
random = np.random.default_rng(0)
logits = tf.constant(random.normal(size=(64, 10), scale=4), tf.float32)
labels = random.integers(10, size=64)
def both():
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = losses.cac_loss_from_logits(labels, logits)
    return loss.numpy(), tape.gradient(loss, logits).numpy()
fused = both()
with ops.stock_operations():
    assert ops.binding() is None
    stock = both()
for one, other in zip(fused, stock):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
print("equal")
"""


@pytest.fixture(scope="module")
def binary_wheel(tmp_path_factory):
    """With the libraries that were built here."""
    if not loader.library_path("tensorflow").exists():
        pytest.skip("the fused operations are not built")
    folder = tmp_path_factory.mktemp("binary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAC_TF_WHEEL_WITH_OPS", "1")
        return build("wheel", copy_of_the_tree(folder / "copy"), folder)


def test_its_name_says_what_it_is_for(binary_wheel):
    tf = pytest.importorskip("tensorflow")
    name = f"cac_tf-{loader.__version__}-1tf{tf.__version__}-py3-none-linux_"
    assert binary_wheel.name.startswith(name)


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="it runs another program"
)
def test_its_operations_run_without_a_compiler(binary_wheel, tmp_path):
    target = tmp_path / "site-packages"
    install(binary_wheel, target)
    assert (target / "cac_tf" / "ops" / "anchored_cac_tensorflow.so").exists()
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", COMPARE, target],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "equal\n", result.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("auditwheel") is None
    or shutil.which("patchelf") is None,
    reason="auditwheel and patchelf are not installed",
)
def test_it_brings_no_library_but_its_own(binary_wheel, tmp_path):
    python(
        *("-m", "auditwheel", "repair", "--exclude", EXCLUDED),
        *("--wheel-dir", tmp_path, binary_wheel),
        cwd=tmp_path,
    )
    (wheel,) = tmp_path.iterdir()
    assert re.search(r"-py3-none-manylinux_2_\d+_[a-z0-9_]+\.whl$", wheel.name)
    install(wheel, tmp_path / "target")
    libraries = {path.name for path in (tmp_path / "target").rglob("*.so*")}
    assert libraries <= {"anchored_cac_tensorflow.so", "anchored_cac_jax.so"}


def test_without_libraries_there_is_no_such_wheel(tmp_path):
    copy = copy_of_the_tree(tmp_path / "copy")
    for path in copy.rglob("*.so"):
        path.unlink()
    result = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=copy,
        env={**os.environ, "CAC_TF_WHEEL_WITH_OPS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "anchored_cac_tensorflow.so: make ops" in result.stderr
