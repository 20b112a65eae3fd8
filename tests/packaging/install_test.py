# SPDX-License-Identifier: Apache-2.0
"""The package in every place it can be imported from."""

import ast
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.conftest import ROOT

IMPORT = (
    "import cac_tf, cac_tf.train.cac_train, cac_tf.data, cac_tf.ops, sys; "
    "cac_tf.data.class_split('mnist'); "
    "import cac_tf.reporting.benchmark_table as table; "
    "table.published('neal'); "
    "import cac_tf.export.model_folder as folder; "
    "folder.readme_template(); "
    "print(cac_tf.__file__); print(cac_tf.train.__file__)"
)


def python(*arguments, cwd):
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Site-packages of a plain `pip install .` from a copy of the tree."""
    copy = tmp_path_factory.mktemp("copy") / "source"
    ignore = shutil.ignore_patterns(
        *(".git", ".venv", "runs", "build", "*.egg-info", "__pycache__"),
        *("*.so", "bazel-*"),
    )
    shutil.copytree(ROOT, copy, ignore=ignore)
    target = tmp_path_factory.mktemp("site-packages")
    python(
        *("-m", "pip", "install", "--quiet", "--no-deps", "--target", target),
        copy,
        cwd=copy,
    )
    return target


def test_only_cac_tf_gets_into_site_packages(installed):
    names = {path.name for path in installed.iterdir()}
    names = {name for name in names if not name.endswith(".dist-info")}
    assert names == {"bin", "cac_tf"}
    assert {path.name for path in (installed / "bin").iterdir()} == {
        "cac-train",
        "cac-evaluate",
        "cac-benchmark",
        "cac-export",
        "cac-import-weights",
    }
    assert (installed / "cac_tf" / "train" / "cac_train.py").exists()
    assert (installed / "cac_tf" / "ops" / "core" / "anchored_cac.cc").exists()
    assert not list(installed.rglob("*.so"))
    assert not list(installed.rglob("*_test.py"))


def test_plain_install(installed, tmp_path):
    dependencies = sysconfig.get_paths()["purelib"]
    code = f"import sys; sys.path[:0] = [{str(installed)!r}]; {IMPORT}"
    assert dependencies not in str(installed)
    files = python("-c", code, cwd=tmp_path)
    for file in files:
        assert pathlib.Path(file).is_relative_to(installed)


def test_repository_root_hides_an_installed_package(installed):
    code = f"import sys; sys.path.append({str(installed)!r}); {IMPORT}"
    files = python("-c", code, cwd=ROOT)
    assert files == [
        str(ROOT / "cac_tf" / "__init__.py"),
        str(ROOT / "train" / "__init__.py"),
    ]


def test_repository_root_with_nothing_installed():
    # -I -S: no environment, no site-packages but the dependencies' folder.
    dependencies = sysconfig.get_paths()["purelib"]
    code = (
        "import sys; sys.path[:0] = "
        f"[{str(ROOT)!r}, {dependencies!r}]; {IMPORT}"
    )
    files = python("-I", "-S", "-c", code, cwd="/")
    assert files[1] == str(ROOT / "train" / "__init__.py")


def test_editable_install(tmp_path):
    """`make` installs the checkout this way; from any folder."""
    files = python("-c", IMPORT, cwd=tmp_path)
    assert files == [
        str(ROOT / "cac_tf" / "__init__.py"),
        str(ROOT / "train" / "__init__.py"),
    ]


ROOMS = [
    # Lower rooms first; a room may import itself and those before it.
    {"version"},
    {"precision", "atomic_files", "ops"},
    {"layers"},
    {"losses"},
    {"metrics", "scores"},
    {"calibration", "export"},
    {"models"},
    {"data", "training"},
    {"evaluation"},
    {"methods", "reporting", "run_folder", "score_choice"},
    {"benchmark"},
    {"train"},
]


def test_lower_rooms_never_import_higher_ones():
    levels = {room: i for i, rooms in enumerate(ROOMS) for room in rooms}
    beside = ("ops", "train")
    files = [
        file
        for folder in ("cac_tf", *beside)
        for file in (ROOT / folder).rglob("*.py")
    ]
    assert len(files) > 30
    for file in files:
        relative = file.relative_to(ROOT)
        parts = relative.with_suffix("").parts
        room = parts[0] if parts[0] in beside else parts[1]
        if room == "__init__":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom | ast.Import):
                continue
            module = getattr(node, "module", None) or node.names[0].name
            if module == "cac_tf":
                imported = [alias.name for alias in node.names]
            elif module.startswith("cac_tf."):
                imported = [module.split(".")[1]]
            else:
                continue
            for other in imported:
                is_lower = other == room or levels[other] < levels[room]
                assert is_lower, f"{relative} imports cac_tf.{other}"


def test_every_source_has_a_licence_and_no_utils():
    for file in ROOT.rglob("*.py"):
        relative = file.relative_to(ROOT)
        if relative.parts[0] in (".venv", "build", "runs"):
            continue
        text = file.read_text()
        assert not text or "SPDX-License-Identifier: Apache-2.0" in text, file
        assert "utils" not in file.name


def test_every_source_is_a_bazel_target():
    """Each .py file is named, or globbed, in the BUILD file of its folder."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    for name in tracked.stdout.split():
        path = ROOT / name
        folder = path.parent
        while not (folder / "BUILD").exists():
            folder = folder.parent
        inside = path.relative_to(folder)
        build = (folder / "BUILD").read_text()
        if str(inside) in ("setup.py",):
            continue
        patterns = {
            str(inside),
            str(inside.parent / "*.py") if len(inside.parts) > 1 else "*.py",
        }
        if inside.name.endswith("_test.py"):
            patterns |= {str(inside.parent / "*_test.py")}
        assert any(f'"{p}"' in build for p in patterns), name
