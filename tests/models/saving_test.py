# SPDX-License-Identifier: Apache-2.0
"""Model files that are damaged, truncated or hostile."""

import io
import json
import os
import tempfile
import time
import tracemalloc
import zipfile

import h5py
import keras
import numpy as np
import psutil
import pytest

import cac_tf
from cac_tf.models.keras_file import load_keras_file


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
            ValueError, match=rf"model.keras \({size:,} bytes\).* truncated or"
        ):
            cac_tf.load_model(saved)
    saved.write_bytes(b"weights" * 1000)
    with pytest.raises(ValueError, match="model.keras .* not a model file, or"):
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
        match="model.keras (cannot be loaded|is not loaded|.* a model file)",
    ):
        cac_tf.load_model(saved)


# ---- files that take far more than their size -----------------------------


def with_more(path, members):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def with_a_large_record(path):
    """Weights of 3.2 GB that are not there."""

    def changed(name, content):
        if "weights" not in name:
            return content
        file = io.BytesIO(content)
        with h5py.File(file, "a") as records:
            records["vars"].create_dataset(
                "more", (20_000, 40_000), "f4", chunks=(100, 100)
            )
        return file.getvalue()

    rewritten(path, changed)


def with_config(path, change):
    """The archive with the config of the model changed: `change(config)`."""

    def changed(name, content):
        if name != "config.json":
            return content
        whole = json.loads(content)
        change(whole["config"])
        return json.dumps(whole).encode()

    rewritten(path, changed)


def with_units(path):
    """A classifier whose first dense layer has a billion units."""

    def change(config):
        _, first, last = config["classifier"]["config"]["layers"]
        first["config"]["units"] = 10**9
        last["build_config"]["input_shape"] = [None, 10**9]

    with_config(path, change)


def with_a_large_bank(path):
    with_config(
        path, lambda config: config["statistics"].update(bank=[10**9, 4])
    )


HOSTILE = {
    "its members would need 10.,": lambda path: with_more(
        path, [(f"assets/{i}", bytes(2**25)) for i in range(3)]
    ),
    "has 1,203 members, more than 1,000": lambda path: with_more(
        path, ((f"assets/{i}", b"") for i in range(1200))
    ),
    "a model file does not contain 'other'": lambda path: with_more(
        path, [("other", b"")]
    ),
    "its records would need 3,200,": with_a_large_record,
    "configuration would need 3.,...,": with_units,
    "configuration would need 16,000,": with_a_large_bank,
}  # fmt: skip


@pytest.mark.parametrize("message", HOSTILE)
def test_what_would_expand_is_refused_before_it_is_read(
    tmp_path, monkeypatch, message
):
    """In little memory and time, with nothing in the temporary folder."""
    path, temporary = tmp_path / "model.keras", tmp_path / "temporary"
    sizes = [keras.layers.Dense(units) for units in (4, 3)]
    cac_tf.OpenSetClassifier(
        keras.Sequential([keras.Input([5]), *sizes]),
        *(list("abc"), "knn"),
        statistics={"bank": np.eye(4)},
    ).save(path)
    HOSTILE[message](path)
    assert os.path.getsize(path) < 2**21
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    start, before = time.monotonic(), psutil.Process().memory_info().rss
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=f"model.keras was not loaded: .*{message}"
        ):
            cac_tf.load_model(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    # (Tensors are not traced.)
    assert psutil.Process().memory_info().rss - before < 2**26
    assert time.monotonic() - start < 5
    assert list(temporary.iterdir()) == []


def test_a_compressed_file_is_loaded(saved, trained_blobs):
    """Compressing weights hardly shrinks them."""
    model, x, _ = trained_blobs
    rewritten(saved, lambda name, content: content, zipfile.ZIP_DEFLATED)
    np.testing.assert_array_equal(
        cac_tf.load_model(saved).predict_open_set(x).class_id,
        model.predict_open_set(x).class_id,
    )


def test_a_file_of_an_earlier_version(saved):
    """Its config had other keys; the message is about the version."""

    def earlier(config):
        config.clear()
        config.update(format=4, backbone={}, class_names=["a", "b"])

    with_config(saved, earlier)
    message = r"another version of cac_tf \(its format is 4; this version uses"
    with pytest.raises(ValueError, match=message):
        cac_tf.load_model(saved)


# ---- code that is not there -----------------------------------------------


class Doubled(keras.layers.Layer):
    """A layer that no name is registered for."""

    def build(self, shape):
        self.factor = keras.Variable(np.float32(2.0), trainable=False)

    def call(self, x):
        return x * self.factor


def lost_loss(y, z):
    return keras.ops.mean(z, axis=-1)


def test_a_classifier_comes_without_what_it_was_compiled_with(tmp_path):
    """So a loss that nobody finds is no loss."""
    classifier = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    classifier.compile("adam", lost_loss)
    x = np.float32(np.random.default_rng(0).normal(size=(8, 5)))
    classifier.fit(x, np.arange(8) % 3, verbose=0)
    model = cac_tf.OpenSetClassifier(classifier, list("abc"), threshold=9.5)
    model.save(tmp_path / "model.keras")
    for load in (cac_tf.load_model, keras.saving.load_model):
        again = load(tmp_path / "model.keras")
        np.testing.assert_array_equal(
            again.predict_open_set(x).class_id,
            model.predict_open_set(x).class_id,
        )
        assert not again.classifier.compiled


def test_a_compiled_network_is_loaded(tmp_path):
    """Also with another in it, and without its loss."""
    inner = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    inner.compile("adam", "mse")
    network = keras.Sequential([keras.Input([5]), inner])
    network.compile("adam", lost_loss)
    x = np.float32(np.random.default_rng(0).normal(size=(8, 5)))
    network.fit(x, np.arange(8) % 3, verbose=0)
    network.save(tmp_path / "network.keras")
    again = load_keras_file(tmp_path / "network.keras")
    np.testing.assert_array_equal(again(x), network(x))
    with pytest.raises(ValueError, match="contains a Sequential"):
        cac_tf.load_model(tmp_path / "network.keras")


def test_layers_that_only_their_owner_has(tmp_path):
    """They are given as `custom_objects`; the code of a lambda is not run."""
    path, last = tmp_path / "model.keras", keras.layers.Dense(3)
    layers = [keras.Input([5]), Doubled(), last]
    model = cac_tf.OpenSetClassifier(keras.Sequential(layers), list("abc"))
    model.save(path)
    with pytest.raises(ValueError, match="cannot be loaded: .*'Doubled'"):
        cac_tf.load_model(path)
    again = cac_tf.load_model(path, custom_objects={"Doubled": Doubled})
    x = np.ones((2, 5), "float32")
    np.testing.assert_array_equal(
        again.predict_scores(x).logits, model.predict_scores(x).logits
    )
    layers = [keras.Input([5]), keras.layers.Lambda(lambda x: 2 * x), last]
    model = cac_tf.OpenSetClassifier(keras.Sequential(layers), list("abc"))
    model.save(path)
    with pytest.raises(
        ValueError, match="Lambda layer.*cac_tf.layers .*as custom_objects"
    ):
        cac_tf.load_model(path)


def test_files_of_other_things(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="Model file not found"):
        cac_tf.load_model(tmp_path / "none.keras")
    with pytest.raises(ValueError, match="a folder; load .* it: model.keras"):
        cac_tf.load_model(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="a folder without a model file"):
        cac_tf.load_model(tmp_path / "empty")
