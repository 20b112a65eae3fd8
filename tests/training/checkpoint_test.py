# SPDX-License-Identifier: Apache-2.0
"""Checkpoints know variables by their paths."""

import keras
import numpy as np
import pytest

from cac_tf.training.checkpoint import Checkpoint
from cac_tf.training.checkpoint import variables_by_path


def network(width=4, layers=2, optimizer="adam"):
    model = keras.Sequential(
        [
            keras.Input([3]),
            *(keras.layers.Dense(width) for _ in range(layers)),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5, seed=1),
            keras.layers.Dense(2),
        ]
    )
    model.compile(optimizer, "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def train(model, steps=3):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 8, 3), "float32")
    for _ in range(steps):
        model.train_on_batch(x, y[:, :2])


def state(model):
    return [
        np.asarray(v) for v in [*model.variables, *model.optimizer.variables]
    ]


def test_keys_do_not_depend_on_what_was_made_before():
    """Models made later in the process have other names, the same keys."""
    one, two = network(), network()
    assert [v.path for v in one.variables] != [v.path for v in two.variables]
    for a, b in (
        (one.variables, two.variables),
        (one.optimizer.variables, two.optimizer.variables),
    ):
        keys = list(variables_by_path(a))
        assert keys == list(variables_by_path(b))
        assert len(keys) == len(a)


def test_everything_is_put_back(tmp_path):
    model = network()
    train(model)
    checkpoint = Checkpoint(model, tmp_path / "c.npz")
    checkpoint.keep_best_weights()
    best = [np.asarray(w) for w in model.weights]
    train(model)
    checkpoint.save({"history": [{"loss": float("nan")}]}, {"a": (1, None)})
    other = network()
    restored = Checkpoint(other, tmp_path / "c.npz")
    record, progress = restored.restore()
    assert np.isnan(record["history"][0]["loss"]) and progress == {
        "a": (1, None)
    }
    for a, b in zip(state(model), state(other), strict=True):
        np.testing.assert_array_equal(a, b)
    train(model, 1)
    train(other, 1)
    for a, b in zip(state(model), state(other), strict=True):
        np.testing.assert_array_equal(a, b)
    restored.assign_best_weights()
    for a, b in zip(best, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_metrics_are_no_part_of_it(tmp_path):
    model = network()
    train(model)
    Checkpoint(model, tmp_path / "c.npz").save({}, {})
    with np.load(tmp_path / "c.npz") as file:
        names = [name for name in file.files if "/" in name]
    assert len(names) == len(state(model))
    for variable in model.metrics_variables:
        assert not any(variable.path in name for name in names)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"layers": 3}, r"it lacks: \w+/dense/kernel:4 \(4, 2\)"),
        ({"layers": 1}, r"it also has: \w+/dense/kernel:3 \(4, 2\)"),
        (
            {"width": 5},
            r"shapes: \w+/dense/kernel \(3, 4\) instead of \(3, 5",
        ),
        (
            {"optimizer": "sgd"},  # Keras 3.12 names it "SGD".
            r"lacks: (?i:sgd)/iteration \(\), .*has: adam/iteration .* 15 more",
        ),
    ],
)
def test_another_model_or_optimizer_by_name(tmp_path, other, message):
    Checkpoint(network(), tmp_path / "c.npz").save({}, {})
    model = network(**other)
    before = state(model)
    with pytest.raises(ValueError, match="another model or optimizer") as error:
        Checkpoint(model, tmp_path / "c.npz").restore()
    assert error.match(message)
    assert "--" not in str(error.value)
    for a, b in zip(before, state(model), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_damaged_or_of_an_earlier_version(tmp_path, is_damaged):
    np.savez(tmp_path / "c.npz", record="{}", variable_0=np.zeros(3))
    if is_damaged:
        (tmp_path / "c.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="not a checkpoint of this") as e:
        Checkpoint(network(), tmp_path / "c.npz").restore()
    assert "overwrite" in str(e.value) and "--" not in str(e.value)


def test_bfloat16(tmp_path):
    """NumPy writes it as bytes without a type."""
    models = []
    for value in (0.1, 0.7):
        model = keras.Sequential(
            [keras.Input([3]), keras.layers.Dense(2, dtype="bfloat16")]
        )
        model.compile("sgd", "mse")
        model.optimizer.build(model.trainable_variables)
        model.weights[0].assign(np.full((3, 2), value, "float32"))
        models.append(model)
    Checkpoint(models[0], tmp_path / "c.npz").save({}, {})
    Checkpoint(models[1], tmp_path / "c.npz").restore()
    kernel = keras.ops.convert_to_numpy(models[1].weights[0])
    assert float(kernel[0, 0]) == pytest.approx(0.1, rel=1e-2)
