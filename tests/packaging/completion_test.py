# SPDX-License-Identifier: Apache-2.0
"""Completion of flags in bash."""

import runpy
import shutil
import subprocess

import pytest

from cac_tf import methods
from cac_tf import scores
from tests.conftest import ROOT

# Takes a file to load, and the words of a command line as bash parts them.
COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_cac_tf "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

needs_bash = pytest.mark.skipif(
    shutil.which("bash") is None, reason="there is no bash"
)


def bash(code, *arguments):
    result = subprocess.run(
        ["bash", "--norc", "-c", code, "bash", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not result.stderr
    return result.stdout.split()


def completed(*words, file="cac_tf.bash"):
    return bash(COMPLETE, ROOT / "completions" / file, *words)


def test_the_files_are_up_to_date():
    files = runpy.run_path(str(ROOT / "tools" / "completion.py"))["files"]()
    assert {"cac-train", "cac-demo"} < {path.name for path in files}
    for path, text in files.items():
        assert path.read_text() == text, "run: python tools/completion.py"
    assert set((ROOT / "completions").iterdir()) == set(files)


@needs_bash
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cac-train --da", ["--dataset=", "--data_dir="]),
        ("cac-train --datas", ["--dataset="]),
        ("/usr/bin/cac-train --datas", ["--dataset="]),
        ("cac-train --overw", ["--overwrite"]),
        ("cac-train --noov", ["--nooverwrite"]),
        ("cac-export --quan", ["--quantize="]),
        ("cac-export --epochs", []),
        ("cac-train --method =", [*methods.names()]),
        ("cac-train --method = cac", ["cac", "cac_learnt"]),
        ("cac-train --method tup", ["tuplet", "tuplet_learnt"]),
        ("cac-train --dataset = cifar+", ["cifar+10", "cifar+50"]),
        # As zsh parts words.
        (
            "cac-train --method=cent",
            ["--method=center", "--method=center_learnt"],
        ),
        ("cac-train --scores =", ["all", *scores.names()]),
        ("cac-train --scores = gamma,max_l", ["gamma,max_logit"]),
        (
            "cac-benchmark --datasets=mnist,svhn,dig",
            ["--datasets=mnist,svhn,digits"],
        ),
        # Names of files are left to the shell.
        ("cac-train --data_dir = im", []),
        ("cac-predict REA", []),
        ("cac-train --overwrite REA", []),
    ],
)
def test_what_is_completed(words, expected):
    assert completed(*words.split()) == expected


@needs_bash
def test_the_script_completes_for_each_binary(installed):
    assert {"--help", "--version"} <= set(completed("cac-predict", "--"))
    assert "digits" in completed("cac-train", "--dataset", "=")
    line = 'source "$1"; complete -p cac-predict'
    assert bash(line, ROOT / "completions" / "cac_tf.bash") == [
        *("complete", "-o", "default", "-F", "_cac_tf", "cac-predict")
    ]
    # The file of a binary loads the script, also where it is installed.
    folder = installed / "share" / "bash-completion" / "completions"
    for binary in ("cac-train", "cac-import-weights", folder / "cac-train"):
        name = getattr(binary, "name", binary)
        assert completed(name, "--datas", file=binary) == ["--dataset="]
