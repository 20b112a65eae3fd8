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
def test_flags():
    assert completed("cac-train", "--da") == ["--dataset=", "--data_dir="]
    assert completed("cac-train", "--datas") == ["--dataset="]
    assert completed("/usr/bin/cac-train", "--datas") == ["--dataset="]
    assert completed("cac-train", "--overw") == ["--overwrite"]
    assert completed("cac-train", "--noov") == ["--nooverwrite"]
    assert completed("cac-export", "--quan") == ["--quantize="]
    assert completed("cac-export", "--epochs") == []
    assert {"--help", "--version"} <= set(completed("cac-predict", "--"))


@needs_bash
def test_values():
    assert completed("cac-train", "--method", "=") == list(methods.names())
    assert completed("cac-train", "--method", "=", "cac") == [
        "cac",
        "cac_learnt",
    ]
    assert completed("cac-train", "--method", "tup") == [
        "tuplet",
        "tuplet_learnt",
    ]
    assert "digits" in completed("cac-train", "--dataset", "=")
    assert completed("cac-train", "--dataset", "=", "cifar+") == [
        "cifar+10",
        "cifar+50",
    ]
    # As zsh parts words.
    assert completed("cac-train", "--method=cent") == [
        "--method=center",
        "--method=center_learnt",
    ]


@needs_bash
def test_lists():
    assert completed("cac-train", "--scores", "=") == ["all", *scores.names()]
    assert completed("cac-train", "--scores", "=", "gamma,max_l") == [
        "gamma,max_logit"
    ]
    assert completed("cac-benchmark", "--datasets=mnist,svhn,dig") == [
        "--datasets=mnist,svhn,digits"
    ]


@needs_bash
def test_names_of_files_are_left_to_the_shell():
    assert completed("cac-train", "--data_dir", "=", "im") == []
    assert completed("cac-predict", "REA") == []
    assert completed("cac-train", "--overwrite", "REA") == []
    line = 'source "$1"; complete -p cac-predict'
    assert bash(line, ROOT / "completions" / "cac_tf.bash") == [
        *("complete", "-o", "default", "-F", "_cac_tf", "cac-predict")
    ]


@needs_bash
@pytest.mark.parametrize("binary", ["cac-train", "cac-import-weights"])
def test_the_file_of_a_binary_loads_the_script(binary):
    assert completed(binary, "--datas", file=binary) == ["--dataset="]


@needs_bash
def test_it_is_installed(installed):
    folder = installed / "share" / "bash-completion" / "completions"
    assert completed("cac-train", "--datas", file=folder / "cac-train") == [
        "--dataset="
    ]
