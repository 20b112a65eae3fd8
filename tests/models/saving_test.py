# SPDX-License-Identifier: Apache-2.0
"""Model files that are damaged, cut off or hostile."""

import json
import os
import time
import tracemalloc
import zipfile

import keras
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
    with pytest.raises(
        ValueError,
        match="model.keras (cannot be loaded|is not loaded|.* no model file)",
    ):
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


def with_config(path, change):
    """The archive with the config of the model changed: `change(config)`."""

    def changed(name, content):
        if name != "config.json":
            return content
        whole = json.loads(content)
        change(whole["config"])
        return json.dumps(whole).encode()

    rewritten(path, changed)


def test_a_file_of_an_earlier_version(saved):
    """Its config had other keys; the message is about the version."""

    def earlier(config):
        config.clear()
        config.update(format=4, backbone={}, class_names=["a", "b"])

    with_config(saved, earlier)
    message = r"another version of cac_tf \(its format is 4, this version's \d"
    with pytest.raises(ValueError, match=message):
        cac_tf.load_model(saved)


def test_a_config_that_claims_more_than_there_is(trained_blobs, tmp_path):
    """A small file that speaks of a large bank: refused before it is made."""
    model, x, y = trained_blobs
    path = tmp_path / "model.keras"
    for key, shape in (
        ("statistics", {"bank": [10**9, 5]}),
        ("centers", [3, 10**9]),
    ):
        model.with_score("knn", x, y).save(path)
        with_config(
            path,
            lambda config, key=key, shape=shape: config.update({key: shape}),
        )
        tracemalloc.start()
        try:
            with pytest.raises(
                ValueError, match="speaks of .* of [0-9,]{10,} b"
            ):
                cac_tf.load_model(path)
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()


def test_files_of_other_things(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model file"):
        cac_tf.load_model(tmp_path / "none.keras")
    other = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    other.save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match="holds a Sequential"):
        cac_tf.load_model(tmp_path / "other.keras")
