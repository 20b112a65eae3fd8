# SPDX-License-Identifier: Apache-2.0
"""Keras' own callbacks across interruptions: bit for bit as without one."""

import itertools
import json

import keras
import numpy as np
import pytest

from cac_tf.data import Examples
from cac_tf.training import Stage
from cac_tf.training.loop import fit_resumable
from cac_tf.training.plain_data import from_json
from cac_tf.training.plain_data import to_json
from tests.training.loop_test import Interrupt
from tests.training.loop_test import assert_same_weights
from tests.training.loop_test import killed_and_gone_on


class StopAtEnd(keras.callbacks.Callback):
    """Stops the process before other callbacks see the end of a stage."""

    def on_train_end(self, logs=None):
        raise KeyboardInterrupt


class Counter(keras.callbacks.Callback):
    """Counts over stages, and remembers within one."""

    def __init__(self, start=0):
        super().__init__()
        self.epochs, self.losses, self.worst = start, [], None

    def on_train_begin(self, logs=None):
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1
        self.losses.append(logs["loss"])
        self.worst = {"of": (epoch, np.float32(max(self.losses)))}

    def get_state(self):
        return [self.epochs, self.losses, self.worst]

    def set_state(self, state):
        self.epochs, self.losses, self.worst = state


# Interruptions are tested there by the test of one stage, and kills in
# processes_test.py.
compiles_for_minutes = pytest.mark.skipif(
    keras.backend.backend() == "jax",
    reason="each interruption compiles the training anew on JAX",
)


def autoencoder():
    return keras.Sequential(
        [
            keras.Input([6]),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2, seed=5),
            keras.layers.Dense(6),
        ]
    )


def run(
    checkpoint,
    callbacks=(),
    stages=None,
    make=autoencoder,
    optimizer=None,
    **options,
):
    """An auto-encoder of noise, with so high a rate that it gets worse."""
    keras.utils.set_random_seed(1)
    model = make()
    optimizer = optimizer or keras.optimizers.SGD(0.2, momentum=0.9)
    model.compile(optimizer, "mse")
    x = np.random.default_rng(0).standard_normal((40, 6)).astype("float32")
    record = fit_resumable(
        model,
        Examples(x[:28], x[:28]),
        Examples(x[28:], x[28:]),
        stages=stages or [Stage(12)],
        batch_size=8,
        seed=2,
        checkpoint=checkpoint,
        callbacks=callbacks,
        **options,
    )
    return model, record.history


TWO_STAGES = {
    "stages": [Stage(7, 0.3, patience=6), Stage(7, 0.1, patience=5)],
    "monitor": "val_loss",
}


def callbacks(folder):
    """A fresh set, as another process would make it."""
    return [
        keras.callbacks.EarlyStopping(
            patience=4, min_delta=0.003, restore_best_weights=True
        ),
        keras.callbacks.EarlyStopping("loss", patience=9),
        keras.callbacks.ReduceLROnPlateau(
            factor=0.5, patience=1, cooldown=1, min_delta=0.01
        ),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        Counter(),
    ]


def small_run(checkpoint):
    """For processes that are killed."""
    return run(checkpoint, callbacks(checkpoint.parent), **TWO_STAGES)


def waits_of(values):
    """How many epochs EarlyStopping has waited after each, by hand."""
    best, waits = np.inf, []
    for value in values:
        is_better = value + 0.003 < best
        waits.append(0 if is_better else waits[-1] + 1)
        best = value if is_better else best
    return waits


def assert_interruptions_change_nothing(tmp_path, interrupts, **options):
    """One run at a stretch; one that ends wherever an interrupt says.

    `interrupts` makes them from the history of the first.
    """
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    of_whole = callbacks(whole)
    model, history = run(whole / "c.npz", of_whole, **options)
    for interrupt in interrupts(history):
        with pytest.raises(KeyboardInterrupt):
            run(parts / "c.npz", [interrupt, *callbacks(parts)], **options)
    of_parts = callbacks(parts)
    resumed, resumed_history = run(parts / "c.npz", of_parts, **options)
    assert resumed_history == history
    assert_same_weights(model, resumed)
    for a, b in zip(
        model.optimizer.variables, resumed.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    log = (whole / "log.csv").read_text()
    assert (parts / "log.csv").read_text() == log
    epochs = [line.split(",")[0] for line in log.splitlines()[1:]]
    assert epochs == [str(i) for i in range(len(history))]
    return history, of_whole, of_parts


def test_one_stage_interrupted_in_every_second_epoch(tmp_path):
    history, whole, parts = assert_interruptions_change_nothing(
        tmp_path, lambda history: map(Interrupt, range(0, len(history), 2))
    )
    values = [logs["val_loss"] for logs in history]
    # EarlyStopping's rule, and ReduceLROnPlateau's effects.
    waits = waits_of(values)
    assert waits.index(4) == len(history) - 1 < 11
    rates = [logs["learning_rate"] for logs in history]
    assert len(set(np.float32(rates))) >= 2
    assert parts[4].epochs == whole[4].epochs == len(history)
    assert parts[4].worst == whole[4].worst


def test_killed_between_last_epoch_and_end(tmp_path):
    """The best weights are restored by what runs after the last epoch."""
    history, *_ = assert_interruptions_change_nothing(
        tmp_path, lambda history: [Interrupt(3), StopAtEnd(), StopAtEnd()]
    )
    assert len(history) < 12


@compiles_for_minutes
def test_two_stages(tmp_path):
    """Also killed between the stages, and in the second's first epoch."""

    def interrupts(history):
        second = [i for i, logs in enumerate(history) if logs["stage"] == 2]
        return [Interrupt(2), StopAtEnd(), *map(Interrupt, second), StopAtEnd()]

    history, whole, parts = assert_interruptions_change_nothing(
        tmp_path, interrupts, **TWO_STAGES
    )
    assert {logs["stage"] for logs in history} == {1, 2}
    assert parts[4].epochs == whole[4].epochs == len(history)
    second = [logs["loss"] for logs in history if logs["stage"] == 2]
    assert whole[4].losses == second


def test_a_training_that_is_over(tmp_path):
    """Called again: the final weights, and no callback is asked."""
    model, history = run(tmp_path / "c.npz", callbacks(tmp_path))
    before = (tmp_path / "c.npz").read_bytes()

    class Never(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise AssertionError

    again, again_history = run(tmp_path / "c.npz", [Never()])
    assert again_history == history
    assert_same_weights(model, again)
    assert (tmp_path / "c.npz").read_bytes() == before


@pytest.mark.slow
@compiles_for_minutes
def test_killed_at_any_moment(tmp_path):
    """kill -9, with callbacks."""
    (tmp_path / "whole").mkdir()
    model, history = small_run(tmp_path / "whole" / "c.npz")
    path = tmp_path / "c.npz"
    killed_and_gone_on("tests.training.callbacks_test", path, kills=10)
    resumed, resumed_history = small_run(path)
    assert resumed_history == history
    assert_same_weights(model, resumed)
    assert (tmp_path / "log.csv").read_text() == (
        tmp_path / "whole" / "log.csv"
    ).read_text()


def test_moving_averages_of_the_weights(tmp_path):
    """What `fit` does with the weights after the last epoch happens once."""

    def train(path, callbacks=()):
        optimizer = keras.optimizers.SGD(0.1, use_ema=True)
        return run(path, callbacks, [Stage(3)], optimizer=optimizer)[0]

    whole = train(tmp_path / "one.npz")
    average = whole.optimizer._model_variables_moving_average[0]
    np.testing.assert_array_equal(
        np.asarray(average), np.asarray(whole.trainable_weights[0])
    )
    for interrupt in (Interrupt(1), StopAtEnd()):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "two.npz", [interrupt])
    assert_same_weights(whole, train(tmp_path / "two.npz"))


def events(folder):
    """(tag, step, value) of all scalars of a TensorBoard folder."""
    from tensorflow.compat.v1.train import summary_iterator

    found = set()
    for path in sorted(folder.rglob("events*")):
        for event in summary_iterator(str(path)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    number = np.frombuffer(
                        value.tensor.tensor_content, "float32"
                    )
                    number = (
                        number if number.size else value.tensor.float_val[:]
                    )
                    found.add((value.tag, event.step, float(number[0])))
    return found


def test_tensorboard(tmp_path):
    """One folder with the epochs and steps of a training at a stretch."""
    pytest.importorskip("tensorboard")

    def board(folder):
        return keras.callbacks.TensorBoard(folder, update_freq="batch")

    run(tmp_path / "one.npz", [board(tmp_path / "one")])
    for epoch in (2, 5):
        with pytest.raises(KeyboardInterrupt):
            run(
                tmp_path / "two.npz",
                [board(tmp_path / "two"), Interrupt(epoch)],
            )
    run(tmp_path / "two.npz", [board(tmp_path / "two")])
    one, two = events(tmp_path / "one"), events(tmp_path / "two")
    assert one == two
    assert {s for tag, s, _ in one if tag == "epoch_loss"} == set(range(12))
    steps = {s for tag, s, _ in one if tag == "batch_loss"}
    assert steps == set(range(1, 49))


def test_averages_that_take_the_place_of_weights(tmp_path):
    """After each epoch; the next one begins with the weights themselves."""

    def train(path, callbacks=()):
        optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8)
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
        callbacks = [swap, *callbacks]
        return run(path, callbacks, [Stage(4)], optimizer=optimizer)

    model, history = train(tmp_path / "one.npz")
    for epoch in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "two.npz", [Interrupt(epoch)])
    resumed, resumed_history = train(tmp_path / "two.npz")
    assert resumed_history == history
    assert_same_weights(model, resumed)


def test_model_checkpoint_keeps_the_best_across_an_interruption(tmp_path):
    """The loss falls, then rises: a later, worse epoch is not the best."""

    def saves(folder):
        folder.mkdir(exist_ok=True)
        return [
            keras.callbacks.ModelCheckpoint(
                folder / "{epoch}.keras", "val_loss", save_best_only=True
            ),
            keras.callbacks.ModelCheckpoint(
                folder / "{epoch}.weights.h5",
                save_weights_only=True,
                save_freq=9,
            ),
        ]

    _, history = run(tmp_path / "one.npz", saves(tmp_path / "one"))
    values = [logs["val_loss"] for logs in history]
    best = [i for i, v in enumerate(values) if v == min(values[: i + 1])]
    for epoch in range(1, 12, 3):
        with pytest.raises(KeyboardInterrupt):
            run(
                tmp_path / "two.npz",
                [*saves(tmp_path / "two"), Interrupt(epoch)],
            )
    run(tmp_path / "two.npz", saves(tmp_path / "two"))
    one = {path.name for path in (tmp_path / "one").iterdir()}
    assert {path.name for path in (tmp_path / "two").iterdir()} == one
    # Four steps an epoch; nine are full in epochs 3, 5, 7, 9 and 12.
    assert {n for n in one if n.endswith(".keras")} == {
        f"{i + 1}.keras" for i in best
    }
    assert {n for n in one if n.endswith("h5")} == {
        f"{-(-9 * i // 4)}.weights.h5" for i in range(1, 6)
    }


def test_what_was_constructed_otherwise_stays_so(tmp_path):
    """More patience, another folder: the going on honours it."""
    one = [
        keras.callbacks.EarlyStopping(patience=4, min_delta=0.003),
        Interrupt(3),
    ]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "c.npz", one)
    (tmp_path / "moved").mkdir()
    (tmp_path / "c.npz").rename(tmp_path / "moved" / "c.npz")
    two = [keras.callbacks.EarlyStopping(patience=50, min_delta=0.003)]
    _, history = run(tmp_path / "moved" / "c.npz", two)
    assert len(history) == 12
    values = [logs["val_loss"] for logs in history]
    assert (two[0].patience, two[0].wait) == (50, waits_of(values)[-1])
    assert two[0].min_delta == -0.003


def test_callbacks_that_come_and_go(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "c.npz", [Counter(), Counter(100), Interrupt(3)])
    counters = [Counter(), Counter(), Counter()]
    run(tmp_path / "c.npz", [keras.callbacks.TerminateOnNaN(), *counters])
    assert [c.epochs for c in counters] == [12, 112, 9]


def test_changes_by_after_epoch_are_undone(tmp_path):
    """It may do with the model what it likes, to measure something."""

    def spoil(model, epoch):
        for weight in model.weights:
            weight.assign(weight * 0)
        return {"spoilt": 1.0}

    one, two = (
        run(tmp_path / name, stages=[Stage(3)], after_epoch=after_epoch)
        for name, after_epoch in (("one", None), ("two", spoil))
    )
    for logs in two[1]:
        assert logs.pop("spoilt") == 1.0
    assert one[1] == two[1]
    assert_same_weights(one[0], two[0])


def test_nothing_of_that_name(tmp_path):
    with pytest.raises(ValueError, match="no 'val_acc' .* loss, val_loss"):
        run(tmp_path / "c.npz", [], monitor="val_acc")


def test_a_subclassed_model_without_build(tmp_path):
    """All its variables are made before the checkpoint looks for them."""

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = autoencoder_without_input()

        def call(self, inputs, training=False):
            return self.inner(inputs, training=training)

    def autoencoder_without_input():
        return keras.Sequential(
            [keras.layers.Dense(5), keras.layers.Dense(6)], name="inner"
        )

    def train(path, callbacks=()):
        return run(path, callbacks, [Stage(4)], Net, "adam")[0]

    whole = train(tmp_path / "one.npz")
    assert len(whole.weights) == 4
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "two.npz", [Interrupt(2)])
    assert_same_weights(whole, train(tmp_path / "two.npz"))


def test_plain_data_come_back_as_they_were():
    value = {
        "a": [1, 2.5, float("inf"), None, True, "x", (1, (2,))],
        "b": {"weights": [np.arange(3.0), np.zeros((2, 0), "int8")]},
        "c": np.float32(0.1),
    }
    arrays = []
    text = json.loads(json.dumps(to_json(value, arrays)))
    back = from_json(text, arrays)
    assert back["a"] == value["a"] and type(back["a"][-1]) is tuple
    assert back["c"] == value["c"] and back["c"].dtype == "float32"
    for a, b in itertools.zip_longest(
        back["b"]["weights"], value["b"]["weights"]
    ):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    for other in (print, {1: 2}, [object()], np.array([None]), {1, 2}):
        with pytest.raises(ValueError, match="can be saved; got"):
            to_json([other], [])
