# SPDX-License-Identifier: Apache-2.0
"""The stubs: what type checkers and editors see, and `lazy_loader` imports."""

import ast
import importlib
import inspect
import types

import pytest

import cac_tf
from cac_tf import scores
from tests.conftest import ROOT

STUBS = sorted((ROOT / "cac_tf").rglob("*.pyi"))


@pytest.mark.parametrize(
    "stub", STUBS, ids=lambda path: str(path.parent.relative_to(ROOT))
)
def test_stubs_name_what_there_is(stub):
    name = ".".join(stub.parent.relative_to(ROOT).parts)
    package = importlib.import_module(name)
    found = set()
    for node in ast.walk(ast.parse(stub.read_text())):
        if isinstance(node, ast.ImportFrom):
            source = f"{name}.{node.module or ''}".rstrip(".")
            module = importlib.import_module(source)
            for alias in node.names:
                value = getattr(package, alias.name)
                assert value is getattr(module, alias.name)
                # A function is not hidden by the module that it is in.
                is_module = isinstance(value, types.ModuleType)
                assert is_module == (node.module is None), alias.name
                assert alias.asname == alias.name  # Else it is private.
                found.add(alias.name)
    # Some packages import lazily what is not public, too.
    assert sorted(found) == dir(package)
    assert found >= set(package.__all__)


def test_few_names_are_public():
    """About 60 to use, and 15 for plug-ins: what versions must keep."""
    names = set()
    packages = [cac_tf, cac_tf.ops, cac_tf.data.sources, cac_tf.models.networks]
    packages += [getattr(cac_tf, name) for name in cac_tf.__all__]
    for package in filter(inspect.ismodule, packages):
        for own in package.__all__:
            value = getattr(package, own)
            if own != "__version__" and not isinstance(value, types.ModuleType):
                names.add(id(value))
    assert len(names) <= 69


def test_a_score_with_settings_is_an_attribute():
    for name in scores.names():
        own = scores.find(name)
        settings = set(own().get_config()) - {"name"}
        if settings and own.__module__.startswith("cac_tf."):
            assert getattr(scores, own.__name__) is own, name


def test_the_package_is_typed():
    assert (ROOT / "cac_tf" / "py.typed").exists()
    assert "os" not in dir(cac_tf)
