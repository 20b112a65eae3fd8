# SPDX-License-Identifier: Apache-2.0
"""The distributions that `python -m build` makes, and one of them installed."""

import pathlib
import shutil
import subprocess
import sys
import typing

import pytest

from tests.conftest import ROOT


class Distributions(typing.NamedTuple):
    """Paths of what was built."""

    sdist: pathlib.Path
    wheel: pathlib.Path


def python(*arguments, cwd):
    """Runs Python; returns the words that it printed."""
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def build(kind, source, folder):
    """Builds the "sdist" or "wheel" of a folder; returns its path.

    As `python -m build --no-isolation` does, which needs no network.
    """
    code = (
        "import sys, setuptools.build_meta as backend; "
        f"backend.build_{kind}(sys.argv[1])"
    )
    python("-c", code, folder, cwd=source)
    (path,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


def install(wheel, target):
    """Installs a wheel, and nothing else, into a folder."""
    python(
        *("-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
        *("--target", target, wheel),
        cwd=target.parent,
    )


def copy_of_the_tree(folder):
    """A copy of the checkout, with all that its tests and builds left in it."""
    ignore = shutil.ignore_patterns(
        *(".git", ".venv", "runs", "build", "dist", "*.egg-info", "bazel-*"),
        ".*_cache",
    )
    return shutil.copytree(ROOT, folder, symlinks=True, ignore=ignore)


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """Built from a copy of the tree; the wheel from the source distribution."""
    folder = tmp_path_factory.mktemp("distributions")
    copy = copy_of_the_tree(folder / "copy")
    for product in (
        "ops/anchored_cac_other.so",
        "tests/__pycache__/conftest.cpython-311.pyc",
        "docs/generated/page.rst",
    ):
        path = copy / product
        path.parent.mkdir(exist_ok=True)
        path.touch()
    sdist = build("sdist", copy, folder)
    shutil.unpack_archive(sdist, folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return Distributions(sdist, build("wheel", unpacked, folder))


@pytest.fixture(scope="session")
def installed(distributions, tmp_path_factory):
    """Site-packages in which the wheel is installed."""
    target = tmp_path_factory.mktemp("installed") / "site-packages"
    install(distributions.wheel, target)
    return target
