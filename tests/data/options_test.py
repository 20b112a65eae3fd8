# SPDX-License-Identifier: Apache-2.0
"""The options of data: one object for the loader, flags and files."""

import dataclasses
import json
import pathlib

import pytest
from absl import flags

from cac_tf import data
from cac_tf.data import DataOptions
from cac_tf.train import command_line

# Another value than the default, as a user gives it, as a flag, in a file.
OTHERS = {
    "dataset": ("folder", "folder", "folder"),
    "data_dir": (pathlib.Path("a", "b"), "a/b", "a/b"),
    "known_classes": (("a", "b"), "a,b", ["a", "b"]),
    "known_share": (0.25, "0.25", 0.25),
    "unknown_classes": (["c"], "c", ["c"]),
    "negative_classes": (["d", "e"], "d,e", ["d", "e"]),
    "split_family": ("miller2020", "miller2020", "miller2020"),
    "trial": (3, "3", 3),
    "labels": (pathlib.Path("y.npy"), "y.npy", "y.npy"),
    "label_column": ("intent", "intent", "intent"),
    "split_column": ("part", "part", "part"),
    "input_columns": (["x", "y"], "x,y", ["x", "y"]),
    "image_size": (8, "8", 8),
    "interpolation": ("bicubic", "bicubic", "bicubic"),
    "stream": (False, "false", False),
    "strict": (True, "true", True),
    "split_seed": (2**32 - 1, "4294967295", 2**32 - 1),
    "test_fraction": (0.5, "0.5", 0.5),
    "validation_fraction": (0.25, "0.25", 0.25),
    "validation_split": ("authors", "authors", "authors"),
}


def from_flags(**texts):
    values = flags.FlagValues()
    command_line.define_data_flags(values)
    values(["binary", *(f"--{name}={text}" for name, text in texts.items())])
    return DataOptions.of(command_line.data_settings(values))


def test_every_option_survives_flags_and_files():
    assert [one.name for one in dataclasses.fields(DataOptions)] == [*OTHERS]
    for name, (given, text, kept) in OTHERS.items():
        changes = {"dataset": "mnist", name: given}
        options = DataOptions(**changes)
        assert options.in_force == {"dataset": "mnist", name: kept}
        assert DataOptions.of(json.loads(json.dumps(options.in_force))) == (
            options
        )
        assert from_flags(**{"dataset": "mnist", name: text}) == options
        assert options.is_given(name)
        assert f"{name}: " in DataOptions.__doc__
    assert DataOptions.of(options) is options


def test_what_it_means_to_leave_an_option_out():
    options = DataOptions("mnist")
    assert from_flags(dataset="mnist") == options
    assert options.in_force == {"dataset": "mnist"}
    means = {"split_family": "neal", "trial": 0, "test_fraction": 0.3}
    for name, value in means.items():
        assert getattr(options, name) is None
        assert options.value_of(name) == value
        assert not options.is_given(name)
        # It may be said, and changes nothing.
        said = dataclasses.replace(options, **{name: value})
        assert said.is_given(name)
        assert said.in_force == options.in_force
    assert options.value_of("image_size") is None


def test_the_loader_takes_the_object():
    options = DataOptions("digits", trial=2, test_fraction=0.5)
    expected = data.load_open_set_dataset(
        "digits", trial=2, test_fraction=0.5, split_seed=3
    )
    found = data.load_open_set_dataset(options, split_seed=3)
    assert found.digests == expected.digests
    assert found.class_names == expected.class_names
    assert found.trial == 2
    with pytest.raises(TypeError, match="trail"):
        data.load_open_set_dataset("digits", trail=1)
