# SPDX-License-Identifier: Apache-2.0
"""The order of batches, and that nothing is copied or decoded twice."""

import io
import tracemalloc

import keras
import numpy as np
import PIL.Image
import psutil
import pytest

from cac_tf import data
from cac_tf.data import Examples
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.losses import CACLoss
from cac_tf.training import ClassifierTraining
from cac_tf.training import Stage
from cac_tf.training import batches
from cac_tf.training.batches import Batches
from cac_tf.training.loop import fit_resumable


def order_of(seed, epoch, n):
    return np.random.default_rng([seed, epoch]).permutation(n)


def everything(batches):
    parts = [batches[i] for i in range(batches.num_batches)]
    assert max(len(labels) for _, labels in parts) == len(parts[0][1])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def streamed(n):
    """Little pictures in files, the i-th of brightness i."""
    files = []
    for i in range(n):
        file = io.BytesIO()
        PIL.Image.new("L", (6, 6), i).save(file, "png")
        files.append(file.getvalue())
    return StreamedImages(files, 4, channels=1)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_order_by_seed_and_epoch_alone(is_streamed):
    images = streamed(23) if is_streamed else np.arange(23.0)[:, None]
    batches = Batches(Examples(images, np.arange(23)), batch_size=5, seed=7)
    assert batches.num_batches == 5
    for epoch in (3, 0, 1, 3):
        batches.epoch = epoch
        x, y = everything(batches)
        np.testing.assert_array_equal(y, order_of(7, epoch, 23))
        np.testing.assert_array_equal(x.reshape(23, -1)[:, 0], y)
    batches.close()
    assert batches[4][1].shape == (3,) if not is_streamed else True


@pytest.mark.parametrize("is_streamed", [False, True])
def test_without_seed_as_they_are(is_streamed):
    images = streamed(7) if is_streamed else np.arange(7.0)[:, None]
    batches = Batches(Examples(images, np.arange(7)), batch_size=3)
    np.testing.assert_array_equal(everything(batches)[1], np.arange(7))
    batches.close()


def test_batches_out_of_turn_and_an_epoch_broken_off():
    """What was decoded ahead belongs to its own epoch and no other."""
    batches = Batches(Examples(streamed(40), np.arange(40)), 4, seed=1)
    for epoch, asked in ((0, [3, 0, 3, 9]), (1, [0, 1]), (2, [1, 0, 2])):
        batches.epoch = epoch
        for index in asked:
            x, y = batches[index]
            wanted = order_of(1, epoch, 40)[4 * index : 4 * index + 4]
            np.testing.assert_array_equal(y, wanted)
            np.testing.assert_array_equal(x[:, 0, 0, 0], wanted)
    batches.close()


def test_images_as_their_own_labels_are_decoded_once():
    images = streamed(6)
    decoded = []
    decode = images._decode
    images._decode = lambda source: decoded.append(1) or decode(source)
    x, y = everything(Batches(Examples(images, images), 4, seed=0))
    np.testing.assert_array_equal(x, y)
    assert len(decoded) == 6


def test_floats_in_the_default_precision():
    x, y = Batches(Examples(np.ones((3, 2)), np.arange(3)), 2)[0]
    assert (x.dtype, y.dtype) == ("float32", "int64")
    x, y = Batches(Examples(np.ones((3, 2), "uint8"), [0.0, 1.0, 2.0]), 2)[0]
    assert (x.dtype, y.dtype) == ("uint8", "float32")


def test_what_is_refused():
    images = np.zeros((4, 2), "float32")
    with pytest.raises(ValueError, match="no examples"):
        Batches(Examples(images[:0], np.arange(0)), 2)
    with pytest.raises(ValueError, match="3 labels for 4 images"):
        Batches(Examples(images, np.arange(3)), 2)
    with pytest.raises(ValueError, match="batch_size"):
        Batches(Examples(images, np.arange(4)), 0)


class Seen(keras.layers.Layer):
    """Writes down the first number of each row that training passes."""

    def __init__(self, rows):
        super().__init__()
        # (Keras would make a list its own.)
        self.add = rows.extend

    def call(self, inputs, training=False):
        if training:
            self._write(inputs[:, 0])
        return inputs

    def _write(self, values):
        if keras.backend.backend() == "jax":
            import jax

            jax.experimental.io_callback(
                lambda v: self.add(np.asarray(v).tolist()),
                None,
                values,
                ordered=True,
            )
        else:
            import tensorflow as tf

            tf.numpy_function(
                lambda v: self.add(v.tolist()) or np.int64(0),
                [values],
                tf.int64,
            )


@pytest.mark.parametrize("classifier", [False, True])
@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_what_a_model_sees(tmp_path, steps_per_execution, classifier):
    """Each epoch its own order, whatever Keras fetches ahead."""
    rows = []
    network = keras.Sequential(
        [keras.Input([2]), Seen(rows), keras.layers.Dense(3)]
    )
    loss = "sparse_categorical_crossentropy"
    if classifier:
        model, loss = ClassifierTraining(network), CACLoss()
    else:
        model = network
    model.compile("sgd", loss, steps_per_execution=steps_per_execution)
    labels = np.arange(50) % 3
    numbers = np.stack([np.arange(50), np.zeros(50)], axis=1)
    examples = Examples(numbers.astype("float32") / 64, labels)
    record = fit_resumable(
        model,
        examples,
        examples.take(slice(0, 10)),
        stages=[Stage(2, 1e-4), Stage(2, 1e-4)],
        batch_size=8,
        seed=5,
        checkpoint=tmp_path / "c.npz",
        monitor="val_loss",
    )
    assert len(record.history) == 4
    wanted = np.concatenate([order_of(5, epoch, 50) for epoch in range(4)])
    np.testing.assert_array_equal(np.multiply(rows, 64), wanted)


def test_streamed_images_train_as_arrays_do(tmp_path):
    """Bit for bit, also as validation data."""
    results = []
    images = streamed(60)
    for name, source in (("array", images[:]), ("streamed", images)):
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input([4, 4, 1]),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Flatten(),
                keras.layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        examples = Examples(source, np.arange(60) // 20)
        record = fit_resumable(
            model,
            examples.take(np.arange(0, 60, 2)),
            examples.take(np.arange(1, 60, 2)),
            stages=[Stage(3)],
            batch_size=8,
            seed=0,
            checkpoint=tmp_path / f"{name}.npz",
        )
        results.append((record.history, model.get_weights()))
    (one, weights), (two, others) = results
    assert one == two
    for a, b in zip(weights, others, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_second_copy_of_the_images(tmp_path):
    """Neither in NumPy's memory nor in that of the whole process."""
    model = keras.Sequential(
        [
            keras.Input([64, 64, 4]),
            keras.layers.Rescaling(1 / 255),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2),
        ]
    )
    model.compile("sgd", "mse")
    process = psutil.Process()
    resident = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            resident.append(process.memory_info().rss)

    def train(n, name):
        images = np.full((n, 64, 64, 4), 7, "uint8")
        before = process.memory_info().rss
        tracemalloc.start()
        fit_resumable(
            model,
            Examples(images, np.zeros((n, 2), "float32")),
            stages=[Stage(2)],
            batch_size=64,
            seed=0,
            checkpoint=tmp_path / name,
            callbacks=[Watch()],
        )
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return images.nbytes, peak, max(resident) - before

    train(64, "warm.npz")  # What the backend itself takes.
    size, peak, growth = train(16384, "large.npz")
    assert size == 2**28
    assert peak < size / 10
    assert growth < size / 2


def test_a_process_reads_the_rows_of_its_devices(monkeypatch):
    """As if this process were the second of two that share each batch."""
    read = []

    class Images:
        shape = (10, 2)

        def __len__(self):
            return 10

        def __getitem__(self, rows):
            read.extend(rows.tolist())
            return np.stack([rows, rows], axis=1).astype("float32")

    def second_half(count):
        # What does not divide is computed by all.
        return slice(count // 2, count) if count % 2 == 0 else slice(0, count)

    monkeypatch.setattr(batches, "rows_held_here", second_half)
    found = batches.Batches(data.Examples(Images(), np.arange(10)), 4)
    images, labels = found[0]
    np.testing.assert_array_equal(images[:, 0], [0, 0, 2, 3])
    np.testing.assert_array_equal(labels, range(4))
    assert read == [2, 3]
    three = batches.Batches(data.Examples(Images(), np.arange(10)), 3)
    np.testing.assert_array_equal(three[0][0][:, 0], range(3))
