# SPDX-License-Identifier: Apache-2.0
"""What `--help` says, by need."""

import itertools
import re

import pytest
from absl import flags

from cac_tf import methods
from cac_tf.train import cac_benchmark
from cac_tf.train import cac_evaluate
from cac_tf.train import cac_import_weights
from cac_tf.train import cac_predict
from cac_tf.train import cac_train
from cac_tf.train import help_pages

FIRST = {
    binary: binary._FIRST
    for binary in (cac_train, cac_evaluate, cac_import_weights)
}


def parsed(binary, *arguments):
    """The flags of a binary, and what is wrong with them."""
    values = flags.FlagValues()
    binary.define_flags(values)
    help_pages.define_help(values)
    try:
        values(["binary", *arguments])
    except flags.Error as error:
        return values, str(error)
    return values, None


def page(binary, *arguments):
    values, _ = parsed(binary, *arguments)
    return help_pages.asked_for(values, "What it does.", FIRST.get(binary))


def names(text):
    """The flags that a page has an entry of, in its order."""
    return re.findall(r"^  --(?:\[no\])?(\w+)(?:=[\w,.]+)?$", text or "", re.M)


def own_names(binary):
    values = flags.FlagValues()
    binary.define_flags(values)
    return set(values)


@pytest.mark.parametrize(
    "binary", [cac_train, cac_evaluate, cac_import_weights]
)
def test_first_what_most_runs_need(binary):
    text = page(binary, "--help")
    assert names(text) == list(FIRST[binary])
    assert len(names(text)) <= 11
    groups = re.findall(r"^  --help=(\w+) .*?(?:\((\d+) flags\))?$", text, re.M)
    own = own_names(binary)
    # Every flag is in one of the groups that are named.
    assert groups[-1] == ("all", "")
    assert sum(int(number) for _, number in groups[:-1]) == len(own)
    shown = [names(page(binary, f"--help={group}")) for group, _ in groups]
    assert shown[-1] == list(itertools.chain(*shown[:-1]))
    assert set(shown[-1]) == own


def test_few_flags_are_all_shown():
    for binary in (cac_predict, cac_benchmark):
        assert page(binary, "--help") == page(binary, "--help=all")
        assert set(names(page(binary, "--help"))) == own_names(binary)


def test_of_a_method_only_its_own():
    text = page(cac_train, "--help", "--method=gfror")
    own = names(text)[len(FIRST[cac_train]) :]
    assert "symmetry_weight" in own
    assert "search_steps" not in own
    fields = methods.get("gfror").recipe.__dataclass_fields__
    assert set(own) <= set(fields)
    assert not {"epochs", "network"} & set(own)
    text = page(cac_train, "--method=cross_entropy", "--help")
    assert "The method cross_entropy has no flags of its own." in text


def test_choices_and_defaults_are_said_alike():
    text = " ".join(page(cac_train, "--help=all").split())
    for entry in (
        "--schedule=NAME cosine: ",
        "One of: cosine, two_stage. Default: set by the preset. --",
        "One of: float32, mixed_bfloat16, mixed_float16. Default: float32. --",
        "two_heads, unknown_class, unknown_class_openmax, vim. Default: the "
        "method's own; vim for images with a pretrained network, knn for "
        "vectors and texts. --",
        "--seed=N Random seed; the same seed gives the same weights if the "
        "number of threads is the same. Default: 0. --",
        "--[no]overwrite Delete what an earlier run left in --output_dir and "
        "start over. Method (",
    ):
        assert entry in text
    assert "two names. Default: those of the benchmark's split" in text
    # The options of the library are the flags of the page.
    assert "folder (of images, see --data_dir)" in text
    assert "with --until_converged, an upper limit" in text
    text = " ".join(page(cac_predict, "--help").split())
    assert "Required. --threshold=NUMBER" in text
    assert max(map(len, page(cac_train, "--help=all").splitlines())) <= 80


def test_help_is_there_whatever_else_is_wrong():
    # Neither the required flag nor an unknown one is in its way.
    assert names(page(cac_predict, "--help"))
    assert names(page(cac_train, "--epohcs=3", "--helpshort"))
    assert page(cac_train, "--epochs=3") is None
    _, problem = parsed(cac_train, "--help=date")
    assert "<all|data|network|training|score|run|method>" in problem


@pytest.mark.parametrize("binary", [cac_train, cac_predict])
def test_absl_lists_them_by_group_too(binary):
    """And names no file of the machine."""
    values, _ = parsed(binary)
    modules = set(re.findall(r"^(\S+):$", values.get_help(), re.M))
    groups = set(help_pages.groups(values))
    assert modules == groups | {"absl.app", "absl.flags"}
