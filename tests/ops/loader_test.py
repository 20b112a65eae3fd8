# SPDX-License-Identifier: Apache-2.0
"""The switch, and what happens where the library does not fit."""

import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

from cac_tf import ops as fused_ops
from cac_tf.losses import cac_loss_from_logits
from cac_tf.ops import build
from cac_tf.ops import loader
from tests import execution
from tests.conftest import ROOT

LOSS = 2.3525742  # Of logits (1, 2) and label 0; the first test derives it.


def loss():
    return float(
        np.asarray(cac_loss_from_logits([0], np.float32([[1.0, 2.0]])))[0]
    )


@pytest.fixture
def fresh(monkeypatch):
    """Libraries are looked for again, and once more afterwards."""
    loader._load.cache_clear()
    yield monkeypatch
    loader._load.cache_clear()


@pytest.fixture
def built():
    if fused_ops.binding() is None:
        pytest.skip("the fused operations are not built")
    return fused_ops.binding()


def test_the_reference_value():
    d = np.sqrt([81 + 4, 1 + 64])
    expected = np.log1p(np.exp(d[0] - d[1])) + 0.1 * d[0]
    np.testing.assert_allclose(LOSS, expected, rtol=1e-6)


@pytest.mark.skipif(
    shutil.which("g++") is None or "MAKELEVEL" not in os.environ,
    reason="only make builds before it tests, where a compiler is",
)
def test_built_where_a_compiler_is():
    assert loader.library_path(execution.BACKEND).exists()


def test_switched_off_by_the_environment(built, monkeypatch):
    monkeypatch.setenv("CAC_TF_DISABLE_FUSED_OPS", "1")
    assert fused_ops.binding() is None
    assert loss() == pytest.approx(LOSS, rel=1e-6)
    for off in ("", "0"):
        monkeypatch.setenv("CAC_TF_DISABLE_FUSED_OPS", off)
        assert fused_ops.binding() is built


def test_switched_off_in_python(built):
    fused_ops.set_enabled(False)
    try:
        assert fused_ops.binding() is None
        assert loss() == pytest.approx(LOSS, rel=1e-6)
    finally:
        fused_ops.set_enabled(True)
    with fused_ops.stock_operations():
        assert fused_ops.binding() is None
        with fused_ops.stock_operations():
            pass
        assert fused_ops.binding() is None
    assert fused_ops.binding() is built


def test_which_logits_are_taken(built):
    take = fused_ops.binding_for
    assert take(np.ones((2, 3), "float32")) is built
    assert take(np.ones((2, 3), "float64")) is None
    assert take(np.ones((2, 1), "float32")) is None
    assert take(np.ones((2, 3, 4), "float32")) is None


def unusable(fresh, path):
    """Uses the library at `path`; gives the warnings."""
    fresh.setattr(loader, "library_path", lambda name: path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert loss() == pytest.approx(LOSS, rel=1e-6)
    messages = [str(warning.message) for warning in caught]
    return [text for text in messages if "fused operations" in text]


def test_without_a_library_nothing_is_said(fresh, tmp_path):
    assert unusable(fresh, tmp_path / "none.so") == []


def test_a_library_for_another_release_is_warned_about_once(
    built, fresh, tmp_path
):
    content = loader.library_path(execution.BACKEND).read_bytes()
    text = b"cac_tf " + loader.__version__.encode() + b" fused ops"
    assert text in content
    other = tmp_path / "other.so"
    other.write_bytes(content.replace(text, b"cac_tf 9.9.9 fused ops", 1))
    (message,) = unusable(fresh, other)
    framework, here = built.framework(), loader.__version__
    assert (
        f"it was built for cac_tf 9.9.9 and {framework}, but this is "
        f"cac_tf {here} with {framework}. Stock operations are used instead."
    ) in message
    assert "python -m cac_tf.ops.build" in message


def test_a_library_for_another_framework_is_warned_about(
    built, fresh, tmp_path
):
    content = loader.library_path(execution.BACKEND).read_bytes()
    other = tmp_path / "other.so"
    other.write_bytes(content)
    fresh.setattr(built, "framework", lambda: "TensorFlow 2.99.0-rc1")
    (message,) = unusable(fresh, other)
    assert "but this is cac_tf" in message
    assert message.count("TensorFlow 2.99.0-rc1") == 1


def test_a_library_that_says_nothing_is_warned_about(fresh, tmp_path):
    other = tmp_path / "other.so"
    other.write_bytes(b"no library.")
    (message,) = unusable(fresh, other)
    assert "it does not state what it was built for. Stock" in message


def test_a_broken_library_is_warned_about_once(built, fresh, tmp_path):
    text = loader.built_for(built.framework(), with_cuda=True)
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library. " + text.encode())
    (message,) = unusable(fresh, broken)
    assert "Stock operations are used instead" in message


def test_an_accelerator_without_kernels_is_left_to_stock_operations(
    built, fresh
):
    fresh.setattr(built, "runs_on_devices", lambda has_cuda: False)
    with pytest.warns(UserWarning, match=r"no kernels for .*nvcc.*ops\.build"):
        assert fused_ops.binding() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loss() == pytest.approx(LOSS, rel=1e-6)


def test_operations_that_cannot_be_run_are_warned_about(built, fresh):
    """On a GPU of another architecture, they are found and fail."""

    def fail():
        raise RuntimeError("no kernel image is available")

    fresh.setattr(built, "run_once", fail)
    with pytest.warns(UserWarning, match="no kernel image.*Stock operations"):
        assert fused_ops.binding() is None
    assert loss() == pytest.approx(LOSS, rel=1e-6)


def test_the_first_use_may_be_inside_a_compiled_function(built, fresh):
    compiled = execution.compiled(
        lambda z, y: cac_loss_from_logits(y, z), "graph"
    )
    values = compiled(np.float32([[1.0, 2.0]]), np.int32([0]))
    np.testing.assert_allclose(values, [LOSS], rtol=1e-6)
    assert fused_ops.binding() is built


def run_build(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "cac_tf.ops.build", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_build_without_a_compiler():
    before = {p: p.stat().st_mtime_ns for p in loader.FOLDER.glob("*.so")}
    result = run_build(CXX="no-such-compiler")
    assert result.returncode == 1
    assert "C++ compiler not found: 'no-such-compiler'" in result.stderr
    result = run_build("--if_possible", CXX="no-such-compiler")
    assert result.returncode == 0
    assert "Stock operations are used in place" in result.stderr
    # Nothing is lost, and nothing half-written is left.
    after = {p: p.stat().st_mtime_ns for p in loader.FOLDER.glob("*.so")}
    assert after == before


def test_a_compiler_that_fails(tmp_path):
    result = run_build(CXX="false", NVCC="")
    assert result.returncode == 1
    assert "false -c" in result.stderr


def test_architectures_that_are_none(monkeypatch):
    for text in ("hopper", "60", ""):
        monkeypatch.setenv("CAC_TF_CUDA_ARCHS", text)
        with pytest.raises(build.BuildError, match='such as "80 90"'):
            build.cuda_architectures()
    monkeypatch.setenv("CAC_TF_CUDA_ARCHS", "86,90a")
    assert build.cuda_architectures() == [
        "-gencode=arch=compute_86,code=sm_86",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_90a,code=compute_90a",
    ]


@pytest.mark.skipif(build.find_nvcc() is None, reason="there is no nvcc")
def test_the_cuda_kernels_are_in_the_library(built):
    content = loader.library_path(execution.BACKEND).read_bytes()
    text = loader.built_for(built.framework(), with_cuda=True)
    assert text.encode() in content
