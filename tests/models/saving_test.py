# SPDX-License-Identifier: Apache-2.0
"""Model files that are damaged, cut off or hostile."""

import os
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

import cac_tf


@pytest.fixture
def saved(trained_blobs, tmp_path):
    path = tmp_path / "model.keras"
    trained_blobs[0].save(path)
    return path


def test_a_file_that_is_cut_off_or_no_archive(saved):
    content = saved.read_bytes()
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:size])
        with pytest.raises(
            ValueError, match=rf"model.keras \({size:,} bytes\).* cut off or"
        ):
            cac_tf.load_model(saved)
    saved.write_bytes(b"weights" * 1000)
    with pytest.raises(ValueError, match="model.keras .* no model file, or"):
        cac_tf.load_model(saved)


def test_a_flipped_bit_is_noticed(saved):
    """A damaged weight is not taken for a weight."""
    content = bytearray(saved.read_bytes())
    rng = np.random.default_rng(0)
    before = cac_tf.load_model(saved).get_weights()
    for place in rng.integers(0, len(content), 25):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        saved.write_bytes(damaged)
        try:
            found = cac_tf.load_model(saved)
        except ValueError as error:
            assert "model.keras" in str(error)
        else:
            # A date, for example.
            for one, other in zip(before, found.get_weights(), strict=True):
                np.testing.assert_array_equal(one, other)


def rewritten(path, change, compression=zipfile.ZIP_STORED):
    """The archive with one member changed: `change(name, content)`."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            content = change(name, content)
            if content is not None:
                archive.writestr(name, content)


@pytest.mark.parametrize(
    "change",
    [
        lambda name, content: None if "config" in name else content,
        lambda name, content: None if "weights" in name else content,
        lambda name, content: b"{" if name == "config.json" else content,
        lambda name, content: b"[]" if name == "config.json" else content,
        lambda name, content: b"no HDF" if "weights" in name else content,
        lambda name, content: content.replace(b"CacTf", b"Elsewhere"),
    ],
)
def test_members_that_are_missing_or_of_another_kind(saved, change):
    rewritten(saved, change)
    with pytest.raises(ValueError, match="model.keras cannot be loaded: "):
        cac_tf.load_model(saved)


def test_a_member_that_expands_is_refused_before_it_is_read(saved):
    """256 MB of zeros in a quarter of one: refused in little memory."""

    def inflated(name, content):
        if "weights" not in name:
            return content
        return content + bytes(2**28)

    rewritten(saved, inflated, zipfile.ZIP_DEFLATED)
    assert os.path.getsize(saved) < 2**20
    start = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError,
            match="model.keras is not loaded: its member model.weights.h5, .*"
            "would expand to 26",
        ):
            cac_tf.load_model(saved)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert time.monotonic() - start < 5


def test_a_compressed_file_is_loaded(saved, trained_blobs):
    """Compressing weights hardly shrinks them."""
    model, x, _ = trained_blobs
    rewritten(saved, lambda name, content: content, zipfile.ZIP_DEFLATED)
    np.testing.assert_array_equal(
        cac_tf.load_model(saved).predict_open_set(x).class_id,
        model.predict_open_set(x).class_id,
    )
