# SPDX-License-Identifier: Apache-2.0
"""Public functions of these rooms say their types; `make lint` checks them."""

import ast
import importlib
import inspect
import typing

import pytest

from cac_tf import annotations
from cac_tf import layers
from cac_tf import losses
from cac_tf import metrics
from cac_tf import scores
from tests.conftest import ROOT

# Rooms, or files of rooms that are not annotated as a whole.
ANNOTATED = (
    "annotations.py",
    "batch/answers.py",
    "batch/classifier.py",
    "batch/parts.py",
    "batch/paths.py",
    "decision",
    "export",
    "layers",
    "losses",
    "metrics",
    "models/open_set_classifier.py",
    "scores",
    "../ops/loader.py",
)


# All packages whose public names are listed.
ROOMS = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in sorted((ROOT / "cac_tf").rglob("__init__.py"))
] + ["cac_tf.ops"]


def public_functions(tree, prefix=""):
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and (
            not node.name.startswith("_")
            or node.name in ("__init__", "__call__")
        ):
            yield f"{prefix}{node.name}", node


def without_annotation(node):
    """Names of arguments, and "return", that have none."""
    listed = node.args
    arguments = [*listed.posonlyargs, *listed.args, *listed.kwonlyargs]
    arguments += [a for a in (listed.vararg, listed.kwarg) if a is not None]
    for argument in arguments:
        if argument.annotation is None and argument.arg not in ("self", "cls"):
            yield argument.arg
    if node.returns is None:
        yield "return"


def sources():
    for name in ANNOTATED:
        path = (ROOT / "cac_tf" / name).resolve()
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def test_public_functions_are_annotated():
    missing = [
        f"{path.relative_to(ROOT)}: {name}: {what}"
        for path in sources()
        for name, node in public_functions(ast.parse(path.read_text()))
        for what in without_annotation(node)
    ]
    assert not missing


def public_names():
    """Each public name, and what it is."""
    for room in ROOMS:
        package = importlib.import_module(room)
        for name in getattr(package, "__all__", ()):
            yield f"{room}.{name}", getattr(package, name)


def functions_of(thing):
    """A function, or the public methods and properties of a class."""
    if not inspect.isclass(thing):
        return [thing]
    found = []
    for name, one in vars(thing).items():
        one = getattr(one, "fget", getattr(one, "__func__", one))
        one = getattr(one, "func", one)  # Of cached properties.
        if not name.startswith("_") or name in ("__init__", "__call__"):
            found.append(one)
    return found


def test_every_public_name_is_annotated():
    missing = set()
    for name, thing in public_names():
        for function in filter(inspect.isfunction, functions_of(thing)):
            signature = inspect.signature(function)
            types = [p.annotation for p in signature.parameters.values()]
            if next(iter(signature.parameters), None) in ("self", "cls"):
                types = types[1:]
            if function.__name__ != "__init__":
                types.append(signature.return_annotation)
            is_ours = function.__module__.startswith("cac_tf.")
            if is_ours and inspect.Signature.empty in types:
                missing.add(f"{name}: {function.__qualname__}")
    assert not missing


def test_what_is_missing_is_found():
    code = "class A:\n  def f(self, a, *b, c: int = 0, **d): pass"
    ((name, node),) = public_functions(ast.parse(code))
    assert name == "A.f"
    assert list(without_annotation(node)) == ["a", "b", "d", "return"]


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in sources()]
)
def test_annotations_name_what_exists(path):
    """Tools such as Sphinx look annotations up when the program runs."""
    relative = path.relative_to(ROOT).with_suffix("")
    if relative.parts[0] == "ops":
        relative = "cac_tf" / relative
    parts = [p for p in relative.parts if p != "__init__"]
    module = importlib.import_module(".".join(parts))
    for name, _ in public_functions(ast.parse(path.read_text())):
        owner = module
        for part in name.split("."):
            owner = vars(owner)[part]
        function = getattr(owner, "fget", getattr(owner, "__func__", owner))
        function = getattr(function, "func", function)  # Of cached properties.
        typing.get_type_hints(function)


def test_types_are_those_of_the_values():
    auroc = typing.get_type_hints(metrics.auroc)["return"]
    assert isinstance(metrics.auroc([0.0, 1.0], [2.0]), auroc)
    curve = metrics.roc_curve([0.0, 1.0], [2.0])
    hints = typing.get_args(typing.get_type_hints(metrics.roc_curve)["return"])
    assert [type(one) for one in curve] == list(hints)
    config = typing.get_type_hints(losses.CACLoss.get_config)["return"]
    assert config == annotations.Config
    start = typing.get_type_hints(layers.AnchoredDistance.start.fget)["return"]
    layer = layers.AnchoredDistance(3)
    layer.build((None, 3))
    assert isinstance(layer.start, start)
    copied = scores.get("energy").copy()
    assert type(copied) is type(scores.get("energy"))
