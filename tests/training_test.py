# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf import data
from cac_tf.methods import cac
from cac_tf.training import fit_resumable

# Three epochs are not always enough for every class.
pytestmark = pytest.mark.filterwarnings("ignore:Class .* keeps its anchor")


class Interrupt(keras.callbacks.Callback):
    """Stops the process, as it were, in the middle of an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch, self.now = epoch, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.now == self.epoch and batch == 2:
            raise KeyboardInterrupt


def train(checkpoint, seed=3, callbacks=(), **recipe):
    """Three epochs on half of the digits, with all that is random."""
    digits = data.load_open_set_dataset("digits", trial=0, test_fraction=0.6)
    recipe = cac.Recipe(
        epochs=3, batch_size=64, scale=0.7, rotation=10.0, **recipe
    )
    model = cac.build_model(digits, recipe, seed)
    return model, cac.train(model, digits, recipe, seed, checkpoint, callbacks)


def weights(model):
    return [np.asarray(w) for w in model.weights]


def test_the_same_seed_twice_and_an_interrupted_run(tmp_path):
    """Bit-identical weights: again, and after two interruptions."""
    model, history = train(tmp_path / "one.npz")
    again, _ = train(tmp_path / "two.npz")
    for epoch in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "three.npz", callbacks=[Interrupt(epoch)])
    resumed, resumed_history = train(tmp_path / "three.npz")
    assert len(history) == 3
    assert resumed_history == history
    for expected, *others in zip(
        weights(model), weights(again), weights(resumed), strict=True
    ):
        for other in others:
            np.testing.assert_array_equal(other, expected)
    other_seed, _ = train(tmp_path / "four.npz", seed=4)
    assert any(
        np.any(a != b)
        for a, b in zip(weights(model), weights(other_seed), strict=True)
    )


def test_a_checkpoint_of_another_model(tmp_path):
    train(tmp_path / "one.npz")
    digits = data.load_open_set_dataset("digits", known_classes=["0", "1"])
    model = cac.build_model(digits, cac.Recipe(), seed=0)
    with pytest.raises(ValueError, match="another model or optimizer"):
        fit_resumable(
            model,
            digits.train,
            digits.validation,
            epochs=4,
            batch_size=64,
            seed=0,
            checkpoint=tmp_path / "one.npz",
        )


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"dropout": 1.0},
    ],
)
def test_bad_recipes(values):
    (name,) = values
    with pytest.raises(ValueError, match=f"{name} must be"):
        cac.Recipe(**values)
