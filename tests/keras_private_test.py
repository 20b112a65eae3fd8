# SPDX-License-Identifier: Apache-2.0
"""What the library takes from Keras' private attributes, and that it is all.

Runs on the lowest and on the newest Keras that pyproject.toml allows.
"""

import ast
import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

from cac_tf import keras_private
from tests import execution
from tests.conftest import ROOT

PRIVATE = {
    "_keras_history",
    "_inbound_nodes",
    "_nodes_by_depth",
    "_functional",
    "_distribute_strategy",
    "_maybe_symbolic_build",
    "JAXEpochIterator",
    "_get_distributed_iterator",
    "_distribute_data",
    "distribute_data_input",
    "ObjectSharingScope",
    "global_state",
    "_direction",
    "_flatten_layers",
    "_batches_seen_since_last_saving",
    "_last_batch_seen",
    "_ema_weights_in_model",
    "_global_train_batch",
    "_global_test_batch",
}

# ---- graphs ----------------------------------------------------------------


def test_whether_one_can_go_back():
    inputs = keras.Input([2])
    assert keras_private.is_in_a_graph(inputs)
    assert keras_private.is_in_a_graph(layers.Dense(3)(inputs))
    assert keras_private.is_in_a_graph(ops.exp(inputs))
    assert not keras_private.is_in_a_graph(ops.zeros((1, 2)))
    assert not keras_private.is_in_a_graph(np.zeros((1, 2)))


def test_operations_and_sources_of_a_functional_model():
    inputs = keras.Input([2], name="in")
    one, two = layers.Dense(3), layers.Dense(3)
    first, second = one(inputs), two(inputs)
    added = layers.Add()([first, second])
    outputs = ops.exp(added)
    model = keras.Model(inputs, outputs)
    # Of the model's own tensors, and of those that it was made of.
    for tensor in (outputs, model.outputs[0]):
        assert type(keras_private.operation_behind(tensor)).__name__ == "Exp"
        (source,) = keras_private.sources_of(tensor)
        assert isinstance(keras_private.operation_behind(source), layers.Add)
        before = keras_private.sources_of(source)
        assert [keras_private.operation_behind(t) for t in before] == [one, two]
        for tensor_before in before:
            (start,) = keras_private.sources_of(tensor_before)
            behind = keras_private.operation_behind(start)
            assert isinstance(behind, layers.InputLayer)
            assert not keras_private.sources_of(start)


def test_a_sequential_model():
    dense = [layers.Dense(4, name="first"), layers.Dense(3, name="last")]
    model = keras.Sequential([keras.Input([2]), *dense])
    (outputs,) = model.outputs
    assert keras_private.operation_behind(outputs) is dense[1]
    (source,) = keras_private.sources_of(outputs)
    assert keras_private.operation_behind(source) is dense[0]
    for layer, width in zip(dense, (4, 3), strict=True):
        ((tensor,),) = keras_private.calls_of(model, layer.name)
        assert tensor.shape == (None, width)
        assert keras_private.operation_behind(tensor) is layer
    assert keras_private.calls_of(model, "other") == []


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_a_nested_model(kind):
    """It is one operation; its layers are found in its own graph."""
    dense = layers.Dense(3, name="inside")
    inner = keras.Sequential([keras.Input([4]), dense], name="inner")
    if kind == "functional":
        start = keras.Input([4])
        inner = keras.Model(start, dense(start), name="inner")
    inputs = keras.Input([2])
    hidden = layers.Dense(4, name="outside")(inputs)
    outputs = inner(hidden)
    model = keras.Model(inputs, outputs)
    assert keras_private.operation_behind(outputs) is inner
    (source,) = keras_private.sources_of(outputs)
    assert source is hidden
    ((tensor,),) = keras_private.calls_of(model, "inner")
    assert tensor is outputs
    assert keras_private.calls_of(model, "inside") == []
    ((tensor,),) = keras_private.calls_of(inner, "inside")
    assert keras_private.operation_behind(tensor) is dense
    # The inner model's own tensors, not those of its call in the outer one.
    assert tensor is inner.outputs[0] is not outputs
    (source,) = keras_private.sources_of(tensor)
    assert source.shape == (None, 4) and source is not hidden


def test_layers_that_stand_in_several_graphs():
    """Calls of each graph alone; sources of each call."""
    shared = layers.Dense(4, name="shared")
    one, two = keras.Input([4], name="one"), keras.Input([4], name="two")
    twice = shared(shared(one))
    first = keras.Model(one, twice)
    once = shared(two)
    second = keras.Model(two, once)
    assert len(keras_private.calls_of(first, "shared")) == 2
    ((tensor,),) = keras_private.calls_of(second, "shared")
    assert tensor is once
    assert keras_private.sources_of(once) == [two]
    (between,) = keras_private.sources_of(twice)
    assert keras_private.operation_behind(between) is shared
    assert keras_private.sources_of(between) == [one]
    # Neither changes when the models, or the layer, are called once more.
    first(second(keras.Input([4])))
    shared(keras.Input([4]))
    assert len(keras_private.calls_of(first, "shared")) == 2
    assert len(keras_private.calls_of(second, "shared")) == 1


def test_a_sequential_model_that_stands_in_several_graphs():
    inner = keras.Sequential(
        [keras.Input([4]), layers.Dense(4, name="inside")], name="inner"
    )
    inputs = keras.Input([4])
    model = keras.Model(inputs, inner(inner(inputs)))
    assert len(keras_private.calls_of(model, "inner")) == 2
    ((tensor,),) = keras_private.calls_of(inner, "inside")
    assert tensor is inner.outputs[0]


def test_a_layer_with_several_outputs():
    class Split(layers.Layer):
        def call(self, x):
            return x[:, :2], x[:, 2:]

    inputs = keras.Input([5])
    left, right = Split(name="split")(inputs)
    model = keras.Model(inputs, [left, right])
    ((first, second),) = keras_private.calls_of(model, "split")
    assert first is left and second is right
    assert keras_private.sources_of(right) == [inputs]


def test_a_dict_of_outputs():
    inputs = keras.Input([5])
    hidden = layers.Dense(4, name="hidden")(inputs)
    logits = layers.Dense(3, name="logits")(hidden)
    model = keras.Model(inputs, {"logits": logits, "h": hidden})
    ((tensor,),) = keras_private.calls_of(model, "logits")
    assert tensor is logits
    assert keras_private.sources_of(model.output["logits"]) == [hidden]


# ---- replicas --------------------------------------------------------------

UNEQUAL_REPLICAS = """
import json
import keras, numpy as np, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)

from cac_tf import keras_private

class Model(keras_private.BuiltFromOneReplica, keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, x):
        return self.dense(x)

found = []
rows = np.arange(25.0, dtype="float32")[:, None]
for strategy in (
    tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    tf.distribute.get_strategy(),
):
    with strategy.scope():
        model = Model()
        model.compile(keras.optimizers.SGD(0.001), "mse")
    # 13 rows and 12.
    model.fit(rows, 2 * rows, batch_size=25, epochs=3, verbose=0)
    found.append([model.built, model.predict(rows, verbose=0).tolist()])
print(json.dumps(found))
"""


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="replicas of tf.distribute"
)
def test_a_model_is_built_where_replicas_differ_in_their_rows():
    """And learns what one replica learns, but for Keras' mean of means."""
    result = subprocess.run(
        [sys.executable, "-c", UNEQUAL_REPLICAS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (is_built, two), (_, one) = json.loads(result.stdout)
    assert is_built
    np.testing.assert_allclose(two, one, rtol=1e-2)


class OneReplica(keras_private.BuiltFromOneReplica, keras.Model):
    """With a layer that knows its shape only when data come."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)


@pytest.mark.parametrize("is_built", [False, True])
def test_models_of_one_replica_are_built_as_any_other(is_built):
    model = OneReplica()
    if is_built:
        model(np.zeros((1, 2), "float32"))
    model.compile("sgd", "mse")
    model.fit(np.ones((7, 2)), np.ones((7, 1)), batch_size=4, verbose=0)
    assert model.built and model.dense.kernel.shape == (2, 1)


# ---- nowhere else ----------------------------------------------------------


def test_layers_inside_are_found_at_any_depth():
    outer = layers.Layer()
    outer.several = [layers.Dense(2, dtype="float64")]
    outer.inner = keras.Sequential([layers.Dense(2, dtype="mixed_bfloat16")])
    assert keras_private.compute_dtypes(outer) == {
        *("float32", "bfloat16", "float64")
    }


def test_the_direction_of_a_metric():
    """As Keras' own metrics have it."""
    for direction, like in (
        ("down", keras.metrics.MeanSquaredError()),
        ("up", keras.metrics.AUC()),
    ):
        metric = keras.metrics.Mean()
        keras_private.set_direction(metric, direction)
        assert metric._direction == like._direction


def names_in(source):
    """Attributes, definitions, variables, whole strings of a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Constant):
            yield node.value


def test_names_are_found_however_they_are_written():
    source = "a._direction\ngetattr(b, '_functional')\n# _inbound_nodes\n"
    source += "def _maybe_symbolic_build(): pass\n"
    assert PRIVATE & set(names_in(source)) == {
        *("_direction", "_functional", "_maybe_symbolic_build")
    }


def test_no_other_file_names_these_attributes():
    found = {}
    for folder in ("cac_tf", "train", "ops"):
        for path in (ROOT / folder).rglob("*.py"):
            names = PRIVATE & set(names_in(path.read_text("utf-8")))
            if names:
                found[str(path.relative_to(ROOT))] = names
    # All of them are in use.
    assert found == {"cac_tf/keras_private.py": PRIVATE}


def test_the_newest_keras_that_is_allowed_is_the_tested_one():
    """Its next minor release may have other private names."""
    allowed = re.search(
        r'^ +"keras>=[\d.]+,<(\d+)\.(\d+)",$',
        (ROOT / "pyproject.toml").read_text(),
        re.MULTILINE,
    )
    tested = re.search(
        r"^keras==(\d+)\.(\d+)\.",
        (ROOT / "constraints.txt").read_text(),
        re.MULTILINE,
    )
    major, minor = map(int, tested.groups())
    assert tuple(map(int, allowed.groups())) == (major, minor + 1)
