# SPDX-License-Identifier: Apache-2.0
"""A small training run, and whether another one has the same result."""

import json

import numpy as np
from absl import flags

import cac_tf
from cac_tf.train import cac_train

FLAGS = ("--dataset=digits", "--epochs=2", "--test_fraction=0.8")


def run(binary, *arguments):
    """Runs a binary's main in this process."""
    values = flags.FlagValues()
    binary.define_flags(values)
    values(["binary", *map(str, arguments)])
    binary.main(values)


def train(folder):
    """Trains, or goes on, in a folder."""
    run(cac_train, *FLAGS, f"--output_dir={folder}")


def assert_same_result(folder, reference):
    """Bit by bit, but for what was timed."""
    one, two = (
        cac_tf.load_model(path / "model.keras").weights
        for path in (folder, reference)
    )
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    one, two = (
        json.loads((path / "metrics.json").read_text())
        for path in (folder, reference)
    )
    for measures in (one, two):
        del measures["seconds"], measures["microseconds_per_image"]
    assert one == two
    with (
        np.load(folder / "scores.npz") as one,
        np.load(reference / "scores.npz") as two,
    ):
        assert set(one.files) == set(two.files)
        for name in one.files:
            np.testing.assert_array_equal(one[name], two[name])
