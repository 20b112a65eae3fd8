# SPDX-License-Identifier: Apache-2.0
"""Modules that load when they are used."""

import inspect
import pathlib
import subprocess
import sys

import pytest

import cac_tf
import cac_tf.batch
from cac_tf import lazy


def test_modules_go_to_other_processes_by_name():
    """Of a script's own function, engines send the modules that it uses."""
    cloudpickle = pytest.importorskip("cloudpickle")
    for module in (cac_tf, cac_tf.batch, cac_tf.data):
        assert cloudpickle.loads(cloudpickle.dumps(module)) is module
    fractions = cloudpickle.loads(cloudpickle.dumps(lazy.module("fractions")))
    assert fractions is sys.modules["fractions"]


def test_doctest_can_look_at_a_module_that_is_not_installed():
    absent = lazy.module("no_such_package", extra="demo")
    assert inspect.unwrap(absent) is absent
    with pytest.raises(ModuleNotFoundError, match=r"cac-tf\[demo\]"):
        absent.anything  # noqa: B018


def test_every_room_is_an_attribute_of_the_package():
    folder = pathlib.Path(cac_tf.__file__).parent
    rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert rooms - {"demo", "train"} <= set(dir(cac_tf))
    code = "import cac_tf; print(cac_tf.scores.KNN); cac_tf.load_modell"
    failed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert "<class 'cac_tf.scores." in failed.stdout
    # By Python itself.
    assert "Did you mean: 'load_model'?" in failed.stderr
