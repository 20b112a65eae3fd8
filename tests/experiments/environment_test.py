# SPDX-License-Identifier: Apache-2.0
"""What a result says of its commit, and what is known of the processor."""

import subprocess
import sys

import pytest

from cac_tf.experiments.environment import environment

# The package offers the function by the module's name.
module = sys.modules[environment.__module__]


@pytest.mark.parametrize(
    ("changed", "ending"),
    [
        (None, ""),
        ("benchmarks/results/digits.json", ""),
        ("cac_tf/experiments/environment.py", "-dirty"),
    ],
)
def test_changed_sources_make_a_commit_dirty(
    tmp_path, monkeypatch, changed, ending
):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a"]
        return subprocess.run(
            [*command, "-c", "user.email=a@b", *arguments],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    git("init", "--quiet")
    for name in (
        "benchmarks/results/digits.json",
        "cac_tf/experiments/environment.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("a")
    git("add", "--all")
    git("commit", "--quiet", "--message=a")
    if changed:
        (tmp_path / changed).write_text("b")
    (tmp_path / "notes.txt").write_text("not of the project")
    monkeypatch.setattr(
        module,
        "__file__",
        str(tmp_path / "cac_tf" / "experiments" / "environment.py"),
    )
    assert environment()["commit"] == git("rev-parse", "HEAD") + ending
    # Without git, and of a package that is installed, nothing is known.
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment()["commit"] is None
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    assert environment()["commit"] is None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("flags\t\t: fpu avx avx2", True),
        ("flags\t\t: fpu avx2 avx512f avx512_vnni", True),
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", False),
        ("flags\t\t: fpu avx2 avx512f amx_bf16", False),
        # Nothing is known of what an ARM processor lacks.
        ("Features\t: fp asimd", False),
    ],
)
def test_a_processor_without_fast_bfloat16_is_known(
    tmp_path, monkeypatch, flags, expected
):
    path = tmp_path / "cpuinfo"
    first = f"processor\t: 0\nmodel name\t: A: B\n{flags}\n"
    path.write_text(f"{first}\nprocessor\t: 1\nmodel name\t: C\n")
    monkeypatch.setattr(module, "PROCESSORS", str(path))
    monkeypatch.setattr(module, "_accelerator", lambda: None)
    assert module.bfloat16_is_slow() is expected
    assert environment()["hardware"]["cpu"] == "A: B"
    # Nothing where Linux does not tell.
    monkeypatch.setattr(module, "PROCESSORS", str(tmp_path / "missing"))
    assert not module.bfloat16_is_slow()
    assert environment()["hardware"]["cpu"]
