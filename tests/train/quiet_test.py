# SPDX-License-Identifier: Apache-2.0
"""What reaches the terminal, and what happens if nobody reads it."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.train.start_up_test import BINARIES

# In place of Keras: prints as TensorFlow's libraries do, and may fail.
KERAS = """
import os
os.write(2, b"a line of TensorFlow\\n")
if os.environ.get("FAILS"):
    raise ImportError("no such library")
"""
LOADS = """
from cac_tf.train import quiet
quiet.say_little()
import warnings
warnings.warn("one of ours: \\x1b[2J\\ncat")
import logging
logging.getLogger("tensorflow").warning("of TensorFlow's Python")
quiet.load("keras")
import keras
print(os.environ["TF_CPP_MIN_LOG_LEVEL"], os.environ["TF_ENABLE_ONEDNN_OPTS"])
"""


@pytest.fixture
def load(tmp_path):
    def run(**environment):
        (tmp_path / "keras.py").write_text(KERAS)
        inherited = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
        inherited.pop("TF_CPP_MIN_LOG_LEVEL", None)
        inherited.pop("TF_ENABLE_ONEDNN_OPTS", None)
        # Nothing of ours is imported after this Keras.
        code = "import sys, os, cac_tf; sys.meta_path.pop(0)\n" + LOADS
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize("asked", [{}, {"TF_CPP_MIN_LOG_LEVEL": "3"}])
def test_lines_of_tensorflow_are_kept_back(load, asked):
    """Also where a process that was told so has started this one."""
    result = load(**asked)
    assert result.stderr == r"note: one of ours: \x1b[2J\ncat" + "\n"
    assert result.stdout == "3 1\n"


def test_lines_of_tensorflow_are_shown_if_it_fails(load):
    result = load(FAILS="1")
    assert "a line of TensorFlow\n" in result.stderr
    assert "ImportError: no such library" in result.stderr


def test_lines_of_tensorflow_are_shown_to_who_wants_them(load):
    result = load(TF_CPP_MIN_LOG_LEVEL="0", TF_ENABLE_ONEDNN_OPTS="0")
    assert "a line of TensorFlow\n" in result.stderr
    assert result.stdout == "0 0\n"


def test_lines_of_libraries_while_photos_are_read():
    code = """
import os, sys
from cac_tf.train import quiet
for _ in range(2):
    with quiet.without_lines_of_libraries():
        os.write(2, b"Corrupt JPEG data\\n")
        print("not copied: ü", file=sys.stderr)
print("3 not read", file=sys.stderr)
"""
    environment = {**os.environ}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
    )
    assert result.stderr.decode() == 2 * "not copied: ü\n" + "3 not read\n"


@pytest.mark.parametrize("binary", BINARIES)
def test_nobody_reads(binary):
    process = subprocess.Popen(
        [sys.executable, "-m", f"cac_tf.train.{binary}", "--help"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
