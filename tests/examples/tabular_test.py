# SPDX-License-Identifier: Apache-2.0
"""The example with rows of a table."""

import pytest

from tests.conftest import ROOT
from tests.conftest import load_script


@pytest.mark.filterwarnings("ignore:The covariance of 64 features")
def test_wines_of_a_third_cultivar_are_rejected(capsys):
    example = load_script(ROOT / "examples" / "tabular" / "wines.py")
    found = example.main(["--unknown=class_1"])
    assert found["accuracy"] > 0.9
    assert found["auroc"] > 0.9
    assert found["known wines rejected"] < 0.3
    assert found["unknown wines rejected"] > 0.7
    assert f"auroc: {found['auroc']:.3f}" in capsys.readouterr().out
