# SPDX-License-Identifier: Apache-2.0
"""What the extras bring, and what is said where one is missing."""

import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
import tomllib

import pytest
from packaging.requirements import Requirement

from cac_tf.version import __version__
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Makes packages that are installed look as if they were not.
WITHOUT = """
import importlib.abc, importlib.util, sys
MISSING = {missing!r}

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: (
    None if name.split(".")[0] in MISSING else find_spec(name))
"""


def needed(*extras):
    """Names of all packages that `pip install cac-tf[...]` brings.

    Those of other packages are read from what is installed here.
    """
    optional = PROJECT["optional-dependencies"]
    todo = [*PROJECT["dependencies"], *(r for e in extras for r in optional[e])]
    found = {}
    while todo:
        one = Requirement(todo.pop())
        name = re.sub(r"[-_.]+", "-", one.name.lower())
        if name == "cac-tf":
            todo += [r for extra in one.extras for r in optional[extra]]
            continue
        extras_of = found.setdefault(name, set())
        new = {"", *one.extras} - extras_of
        extras_of |= new
        try:
            listed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in listed:
            marker = Requirement(text).marker
            if any(
                marker is None or marker.evaluate({"extra": extra})
                for extra in new
            ):
                todo.append(text.partition(";")[0])
    return set(found)


def test_jax_needs_no_tensorflow():
    assert "tensorflow" in needed("tensorflow")
    for extras in ((), ("jax",), ("jax", "report")):
        names = needed(*extras)
        assert {"keras", "numpy"} <= names
        assert not [name for name in names if "tensorflow" in name]


@pytest.mark.parametrize(
    ("missing", "backend", "code", "said"),
    [
        (
            "tensorflow",
            "tensorflow",
            'from cac_tf.train import quiet; quiet.load("keras")',
            "TensorFlow is not installed: pip install 'cac-tf[tensorflow]'. Or "
            "use JAX: pip install 'cac-tf[jax]' and set KERAS_BACKEND=jax.",
        ),
        (
            "jax",
            "jax",
            'from cac_tf.train import quiet; quiet.load("keras")',
            "KERAS_BACKEND is jax, but JAX is not installed: pip install "
            "'cac-tf[jax]'.",
        ),
        (
            "apache_beam",
            "tensorflow",
            "import cac_tf.batch.beam",
            "This needs the package apache_beam: pip install 'cac-tf[beam]'",
        ),
        (
            "tensorflow",
            "jax",
            "import cac_tf; cac_tf.export.write_litert(None, 'a.tflite')",
            "This needs the package tensorflow: pip install "
            "'cac-tf[tensorflow]'",
        ),
        (
            "tensorflow",
            "tensorflow",
            """
            from absl import flags
            from cac_tf.train import cac_predict
            values = flags.FlagValues()
            cac_predict.define_flags(values)
            values(["cac-predict", "--model=runs/photos"])
            cac_predict.main(values, ["photo.jpg"])
            """,
            "This needs the package tensorflow: pip install "
            "'cac-tf[tensorflow]'",
        ),
    ],
    ids=["tensorflow", "jax", "beam", "litert", "predict"],
)
def test_a_missing_extra_is_one_sentence(missing, backend, code, said):
    if backend == "jax":
        pytest.importorskip("jax", reason="JAX is not installed")
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            WITHOUT.format(missing=[missing]) + textwrap.dedent(code),
        ],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {said}"


def test_the_citation_is_of_this_version():
    lines = (ROOT / "CITATION.cff").read_text("utf-8").splitlines()
    assert f"version: {__version__}" in lines
