# SPDX-License-Identifier: Apache-2.0
"""What type checkers and editors see of the package."""

import importlib
import runpy

import cac_tf
from cac_tf import scores
from tests.conftest import ROOT


def test_stubs_name_what_there_is():
    stubs = runpy.run_path(str(ROOT / "tools" / "stubs.py"))["stubs"]()
    assert len(stubs) > 10
    for path, text in stubs.items():
        assert path.read_text() == text, "run: python tools/stubs.py"
        package = ".".join(path.parent.relative_to(ROOT).parts)
        module = importlib.import_module(package)
        for line in text.splitlines()[2:]:
            if line == "from cac_tf.batch import beam as beam":
                continue  # It needs Apache Beam.
            names = {}
            exec(line, names)
            name = line.split()[-1]
            assert getattr(module, name) is names[name], line
    assert "MaxLogit" in stubs[ROOT / "cac_tf" / "scores" / "__init__.pyi"]
    assert scores.MaxLogit.NAME == "max_logit"


def test_nothing_of_others_is_in_the_package():
    assert not hasattr(cac_tf, "os")
    assert (ROOT / "cac_tf" / "py.typed").exists()
