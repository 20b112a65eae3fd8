# SPDX-License-Identifier: Apache-2.0
"""The C++ core and the CUDA kernels, by their own C++ tests."""

import shutil
import subprocess

import pytest

from tests import execution
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="there is no C++ compiler"
    ),
    pytest.mark.skipif(
        execution.BACKEND != "tensorflow", reason="the same for all backends"
    ),
]

SANITIZED = (
    *("-std=c++17", "-I."),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    *("-Wno-psabi", "-fno-math-errno", "-fno-trapping-math"),
)
# All warnings, but for those of the compiler's own headers of intrinsics.
STRICT = (
    *("-Wall", "-Wextra", "-Werror"),
    *("-Wno-maybe-uninitialized", "-Wno-uninitialized"),
)


@pytest.fixture(scope="module", autouse=True)
def _sanitizers(tmp_path_factory):
    """Not every installation of a compiler has their libraries."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.cc").write_text("int main() {}\n")
    probe = subprocess.run(
        ["g++", *SANITIZED, folder / "probe.cc", "-o", folder / "probe"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip("g++ has no sanitizers here")


def run(*command):
    result = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_core_under_sanitizers(tmp_path):
    """Every level of instructions, against the equations."""
    program = tmp_path / "core_test"
    source = "ops/core/anchored_cac_test.cc"
    run("g++", "-O1", "-g", *SANITIZED, *STRICT, source, "-o", program)
    assert run(program) == "0 failures\n"


def test_the_cuda_kernels_by_emulation(tmp_path):
    """The very source of the kernels, on the CPU, against the core."""
    program = tmp_path / "kernels_test"
    run(
        # Compiling takes longer than running. The folder comes first: it has
        # a file that takes the place of one of the kernels'.
        *("g++", "-O0", "-Itests/ops/cuda_emulation"),
        *(*SANITIZED, "-x", "c++"),
        "tests/ops/cuda_emulation/kernels_test.cc",
        *("ops/core/anchored_cac.cc", "-o", program),
    )
    assert run(program) == "0 failures\n"
