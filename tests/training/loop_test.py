# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from cac_tf import data
from cac_tf import losses
from cac_tf import methods
from cac_tf.training import Stage
from cac_tf.training import pictures
from cac_tf.training.classifier_training import ClassifierTraining
from cac_tf.training.loop import TrainingRecord
from cac_tf.training.loop import fit_resumable
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime
from tests.conftest import ROOT
from tests.conftest import small_classifier

# Three epochs are not always enough for every class.
pytestmark = pytest.mark.filterwarnings("ignore:These classes keep")


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


RECIPE = {
    "schedule": "two_stage",
    "epochs": 2,
    "second_stage_epochs": 2,
    "batch_size": 16,
    "scale": 0.7,
    "rotation": 10.0,
}


def run_in(checkpoints, seed=3, callbacks=(), **options):
    return TrainingRun(
        Runtime(seed),
        os.fspath(checkpoints),
        callbacks=lambda name, epochs, steps: list(callbacks),
        **options,
    )


def train(checkpoints, callbacks=()):
    """Two stages on a few digits, with all that is random."""
    digits = data.load_open_set_dataset("digits", trial=0, test_fraction=0.9)
    method = methods.get("cac")
    run = run_in(checkpoints, callbacks=callbacks)
    model = method.train(digits, method.recipe(**RECIPE), run)
    return model, run.history


def weights(model):
    return [np.asarray(w) for w in model.weights]


def assert_same_weights(one, other):
    for a, b in zip(weights(one), weights(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_interrupted_run(tmp_path):
    """Bit-identical weights, also interrupted in each stage."""
    model, history = train(tmp_path / "one")
    for epoch in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "two", [Interrupt(epoch)])
    resumed, resumed_history = train(tmp_path / "two")
    assert [logs["stage"] for logs in history] == [1, 1, 2, 2]
    assert resumed_history == history
    assert_same_weights(model, resumed)


# Forks a process that trains and kills it after a while, until that happened
# so many times; prints how many epochs were finished then. (To start ten
# interpreters would take most of the time.) Two of three kills wait for a few
# epochs, however slow the machine is. A process that ended before it was killed
# leaves nothing to go on from.
KILLER = """
import importlib, json, os, pathlib, random, signal, sys, time
import numpy as np
small_run = importlib.import_module(sys.argv[1]).small_run
path, most, kills = pathlib.Path(sys.argv[2]), int(sys.argv[3]), 0

def epochs():
    try:
        with np.load(path) as file:
            return len(json.loads(str(file["record"]))["history"])
    except FileNotFoundError:
        return 0

while kills < most:
    child = os.fork()
    if child == 0:
        small_run(path)
        os._exit(0)
    wanted = epochs() + (kills % 3 > 0) * random.randint(1, 3)
    while epochs() < wanted and not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(0.005)
    time.sleep(random.uniform(0.0, 0.1))
    try:
        os.kill(child, signal.SIGKILL)
        killed = os.waitpid(child, 0)[1] == signal.SIGKILL
    except (ProcessLookupError, ChildProcessError):
        killed = False
    if killed:
        kills += 1
        print(epochs())
    else:
        os.unlink(path)
"""


def small_run(checkpoint, stages=None, **options):
    """Two stages, patience and random numbers on little vectors."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    labels = np.arange(96) % 3
    images = 3 * np.eye(3)[labels] + rng.standard_normal((96, 3))
    examples = data.Examples(np.float32(images), labels)
    backbone = keras.Sequential(
        [
            keras.Input([3]),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dropout(0.3, seed=5),
            keras.layers.Dense(3),
        ]
    )
    model = small_classifier(network=backbone)
    record = fit_resumable(
        model,
        examples.take(slice(0, 72)),
        examples.take(slice(72, 96)),
        stages=stages
        or [Stage(30, 0.02, patience=8), Stage(30, 0.002, patience=8)],
        batch_size=8,
        seed=2,
        checkpoint=checkpoint,
        monitor="val_loss",
        **options,
    )
    return model, record.history


def killed_and_gone_on(module, path, kills):
    """Kills processes in the `small_run` of a module, with its checkpoint."""
    result = subprocess.run(
        [sys.executable, "-c", KILLER, module, str(path), str(kills)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    at_kills = [int(line) for line in result.stdout.split()]
    assert len(at_kills) == kills
    # In the middle of the training, not before it.
    assert len(set(at_kills) - {0}) >= 3, at_kills


def test_stages_patience_and_best_weights(tmp_path):
    """The schedule, against what the history itself says."""
    model, history = small_run(tmp_path / "one.npz")
    values = [logs["val_loss"] for logs in history]
    for number in (1, 2):
        own = [logs["val_loss"] for logs in history if logs["stage"] == number]
        best = int(np.argmin(own))
        # Ended by patience, or by the limit of 30.
        assert len(own) == min(best + 1 + 8, 30)
    rng = np.random.default_rng(0)
    labels = np.arange(96) % 3
    images = np.float32(3 * np.eye(3)[labels] + rng.standard_normal((96, 3)))
    logs = model.evaluate(images[72:], labels[72:], verbose=0, return_dict=True)
    assert logs["loss"] == pytest.approx(min(values), rel=1e-5)


def test_the_second_stage_starts_from_the_best_weights(tmp_path):
    """With fresh momentum and its own learning rate."""
    begun, ended = [], []

    class AtStart(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            optimizer = self.model.optimizer
            slots = [v for v in optimizer.variables if "momentum" in v.path]
            assert len(slots) == len(self.model.trainable_weights)
            begun.append(
                {
                    "weights": weights(self.model),
                    "momentum": max(np.abs(np.asarray(v)).max() for v in slots),
                    "rate": float(np.asarray(optimizer.learning_rate)),
                }
            )

    _, history = small_run(
        tmp_path / "c.npz",
        # So high a rate that the last epoch is not the best.
        [Stage(4, 1.0), Stage(1, 0.001)],
        callbacks=[AtStart()],
        after_epoch=lambda model, epoch: ended.append(weights(model)) or {},
    )
    best = int(np.argmin([h["val_loss"] for h in history if h["stage"] == 1]))
    assert best < 3
    for a, b in zip(begun[4]["weights"], ended[best], strict=True):
        np.testing.assert_array_equal(a, b)
    assert begun[3]["momentum"] > 0
    assert begun[4]["momentum"] == 0
    assert begun[3]["rate"] == pytest.approx(1.0)
    assert begun[4]["rate"] == pytest.approx(0.001)


def test_a_history_with_nan_can_be_written():
    history = [{"stage": 1, "val_loss": float("nan"), "loss": 2.0}]
    record = TrainingRecord(history, 1.0)
    assert record.finite_history == [
        {"stage": 1, "val_loss": None, "loss": 2.0}
    ]


def fit(folder, stages, model=None, labels=None, name="c.npz", **options):
    """Trains a small model on six rows of zeros."""
    labels = np.arange(6) % 3 if labels is None else labels
    return fit_resumable(
        model or small_classifier(),
        data.Examples(np.zeros((6, 5), "float32"), labels),
        stages=stages,
        batch_size=2,
        seed=0,
        checkpoint=folder / name,
        **options,
    )


def dense(**options):
    """Compiled, if there are options."""
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    if options:
        model.compile("sgd", **options)
    return model


def test_what_cannot_be_trained(tmp_path):
    none = data.Examples(np.zeros((0, 5), "float32"), np.zeros(0))
    f1 = dense(loss="mse", metrics=[keras.metrics.F1Score()])
    for message, stages, options in (
        ("at least one stage", [], {}),
        ("only with `monitor`", [Stage(1), Stage(1)], {}),
        ("only with `monitor`", [Stage(1, patience=1)], {}),
        (
            "no validation images",
            [Stage(1)],
            {"monitor": "val_loss", "validation": none},
        ),
        ("must be compiled", [Stage(1)], {"model": dense()}),
        (
            "'f1_score' returns 3 values.*macro",
            [Stage(1)],
            {"model": f1, "labels": np.eye(3)[np.arange(6) % 3]},
        ),
    ):
        with pytest.raises(ValueError, match=message):
            fit(tmp_path, stages, **options)


def test_a_loss_that_is_not_finite(tmp_path):
    """The message comes through what Keras puts around the batches."""
    model = ClassifierTraining(small_classifier())
    model.compile("sgd", losses.CACLoss())
    with pytest.raises(FloatingPointError, match="became nan in epoch 1"):
        fit(tmp_path, [Stage(1)], model, labels=np.arange(6))
    assert not (tmp_path / "c.npz").exists()


@pytest.fixture
def one_epoch():
    """Keras trains no more."""
    keras.config.set_max_epochs(1)
    yield
    keras.config.set_max_epochs(None)


def test_epochs_that_keras_does_not_train(tmp_path, one_epoch):
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"is 1, and epoch 2 was next"):
            fit(tmp_path, [Stage(3)])


def test_a_checkpoint_of_any_name(tmp_path):
    for epochs in (1, 2):
        record = fit(tmp_path, [Stage(epochs)], name="c.ckpt")
        assert len(record.history) == epochs
        assert [p.name for p in tmp_path.iterdir()] == ["c.ckpt"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stage(-3), "epochs must be at least 0; got -3"),
        (lambda: Stage(3, patience=0), "patience must be at least 1, or None"),
    ],
)
def test_bad_stages(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("epochs", "patience", "expected"),
    [
        (8, None, ["epoch 2", "epoch 4", "epoch 6", "epoch 8"]),
        (3, None, ["epoch 1", "epoch 2", "epoch 3"]),
        # The loss is smallest in the first epoch.
        (100, 2, ["at the end"]),
    ],
)
def test_samples_of_a_training(tmp_path, epochs, patience, expected):
    x = np.full((6, 5), 14, "float32")
    examples = data.Examples(x, np.arange(6) % 3)
    for _ in range(2):  # Finished, the second time.
        run = run_in(tmp_path / "kept", pictures=str(tmp_path / "pictures"))
        model = small_classifier()
        model.optimizer.learning_rate = 0.0 if patience else 0.1
        record = run.fit(
            model,
            examples,
            examples,
            stages=[Stage(epochs, patience=patience)],
            batch_size=6,
            monitor="loss",
            samples=lambda images: {"halves": images / 2},
        )
        assert len(record.history) == (3 if patience else epochs)
        rows = pictures.read_rows(tmp_path / "pictures" / "classifier.npz")
        names = [f"{when}: halves" for when in expected]
        assert list(rows) == ["training images", *names]
        for name in names:
            np.testing.assert_array_equal(rows[name], 7)


def test_a_training_metric_needs_no_validation(tmp_path):
    record = fit(tmp_path, [Stage(5, patience=1)], monitor="loss")
    assert 1 < len(record.history) <= 5
