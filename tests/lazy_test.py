# SPDX-License-Identifier: Apache-2.0
"""Modules that load when they are used."""

import pickle
import sys

import cac_tf
import cac_tf.batch
from cac_tf import lazy


def test_modules_go_to_other_processes_by_name():
    """Of a script's own function, engines send the modules that it uses."""
    for module in (cac_tf, cac_tf.batch):
        assert pickle.loads(pickle.dumps(module)) is module
    fractions = pickle.loads(pickle.dumps(lazy.module("fractions")))
    assert fractions is sys.modules["fractions"]
