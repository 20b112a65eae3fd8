# SPDX-License-Identifier: Apache-2.0
"""All that depends on private names of Keras, and nothing else.

Replaced for the whole process, on JAX, while several devices or processes train
(`placing_by_own_shape`); each makes a test fail that goes without it:

    JAXEpochIterator._get_distributed_iterator
        a last batch that does not divide among the devices: devices_test.py
    distribution_lib.distribute_data_input
        batches that several processes read whole: processes_test.py

Overridden, in a model's own class:

    Trainer._maybe_symbolic_build, Trainer._distribute_strategy
        replicas that differ in their rows, before the first epoch

Read or called:

    ObjectSharingScope, global_state
        how many weights a file speaks of
    KerasTensor._keras_history, Operation._inbound_nodes,
    Function._nodes_by_depth, Sequential._functional
        what goes into a model's last layer
    Layer._flatten_layers
        the precisions and the tables inside a model
    Metric._direction
        which values are better, for callbacks
    the attributes in `_REMEMBERED`
        what callbacks remember

tests/keras_private_test.py runs on the lowest and on the newest Keras that
pyproject.toml allows.
"""

import contextlib
import math

import keras
import numpy as np


class BuiltFromOneReplica:
    """For a model whose replicas may differ in their numbers of rows.

    Before the first epoch, TensorFlow's trainer takes the mean over the
    replicas' batches, although it needs only their shapes. That fails if one
    has more rows than another, so the first replica's batch is used here.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = getattr(self, "_distribute_strategy", None)
        if iterator is not None and strategy is not None:
            _, _, batches = next(iter(iterator))
            data_batch = keras.tree.map_structure(
                lambda value: strategy.experimental_local_results(value)[0],
                next(batches),
            )
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)


@contextlib.contextmanager
def placing_by_own_shape():
    """On JAX, each value is placed on the devices by its own shape, as a whole.

    Keras takes the layout of an epoch's first batch for all of them, and fails
    at the last one if it has fewer rows, which do not divide. With several
    processes, it takes a batch for the share of one of them.
    """
    import jax
    from keras.src.backend.jax import distribution_lib
    from keras.src.backend.jax import trainer

    def batches(iterator, distribution):
        for batch in iterator.data_adapter.get_jax_iterator():
            yield trainer._distribute_data(batch)

    def place(value, layout, batch_dim_name=None):
        # Each process has the whole value, and gives its devices their parts.
        value = np.asarray(value)
        return jax.make_array_from_callback(
            value.shape,
            getattr(layout, "backend_layout", layout),
            lambda part: value[part],
        )

    with contextlib.ExitStack() as changes:
        iterator = trainer.JAXEpochIterator
        wanted = [(iterator, "_get_distributed_iterator", batches)]
        if jax.process_count() > 1:
            wanted.append((distribution_lib, "distribute_data_input", place))
        for change in wanted:
            changes.enter_context(_replaced(*change))
        yield


def rows_held_here(count):
    """The rows of a batch that this process's devices hold, as a slice.

    All of them, but for several processes that share a batch.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or keras.backend.backend() != "jax":
        return slice(None)
    sharding = distribution.get_data_layout((count,)).backend_layout
    held = sharding.addressable_devices_indices_map((count,)).values()
    edges = [part.indices(count) for (part,) in held]
    return slice(min(e[0] for e in edges), max(e[1] for e in edges))


@contextlib.contextmanager
def _replaced(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def set_direction(metric, direction):
    """Says whether larger ("up") or smaller ("down") values are better."""
    metric._direction = direction


def compute_dtypes(layer):
    """Set of the types in which a layer, and those inside it, compute."""
    return {one.compute_dtype for one in layer._flatten_layers()}


def layers_inside(layer):
    """List of a layer and those inside it."""
    return list(layer._flatten_layers())


def tables_inside(layer):
    """Lookup tables of TensorFlow in a layer, and in those inside it.

    Layers such as `IntegerLookup` have them as attributes, or lists or dicts of
    them. They are no weights.
    """
    import tensorflow as tf

    kind = tf.saved_model.experimental.TrackableResource
    found = []
    for one in layer._flatten_layers():
        for value in vars(one).values():
            if isinstance(value, dict):
                value = list(value.values())
            several = value if isinstance(value, (list, tuple)) else [value]
            found += [part for part in several if isinstance(part, kind)]
    return found


def planned_weights(config, custom_objects=None):
    """Number of values in the weights of a config, without making them.

    Args:
        config: of an object, as `keras.saving.serialize_keras_object` says it.
        custom_objects: classes by name.

    Example:

    >>> config = keras.saving.serialize_keras_object(
    ...     keras.Sequential([keras.Input([2]), keras.layers.Dense(3)]))
    >>> config["config"]["layers"][1]["config"]["units"] = 10**12
    >>> planned_weights(config)
    3000000000000
    """
    from keras.src.backend.common import global_state
    from keras.src.saving import serialization_lib

    try:
        with (
            keras.StatelessScope(initialize_variables=False),
            serialization_lib.ObjectSharingScope(),
        ):
            made = keras.saving.deserialize_keras_object(
                _uncompiled(config), custom_objects
            )
            return sum(math.prod(weight.shape) for weight in made.weights)
    finally:
        # Keras would make them when the next such scope ends.
        global_state.set_global_attribute("uninitialized_variables", [])


def _uncompiled(config):
    """Without optimizers, which make variables at once."""
    if isinstance(config, dict):
        is_object = "class_name" in config
        return {
            name: _uncompiled(value)
            for name, value in config.items()
            if not (is_object and name == "compile_config")
        }
    if isinstance(config, (list, tuple)):
        return type(config)(map(_uncompiled, config))
    return config


# What callbacks of Keras remember from epoch to epoch, besides weights and
# learning rates, which the model and its optimizer have.
_REMEMBERED = {
    keras.callbacks.EarlyStopping: (
        *("wait", "best", "best_epoch", "best_weights", "stopped_epoch"),
    ),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: (
        *("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    ),
    keras.callbacks.SwapEMAWeights: ("_ema_weights_in_model",),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
}


def remembered_by(callback):
    """Names of the attributes in which one of Keras' callbacks has its state.

    None for a callback that is not Keras' own, nor derived from one.
    """
    for kind, names in _REMEMBERED.items():
        if isinstance(callback, kind):
            return names
    return ()


def is_in_a_graph(tensor):
    """Whether a tensor can be followed back to the inputs it was made of."""
    return hasattr(tensor, "_keras_history")


def operation_behind(tensor):
    """The layer or operation whose output a Keras tensor is."""
    return tensor._keras_history.operation


def sources_of(tensor):
    """The tensors that the operation behind a Keras tensor was called with."""
    operation, node, _ = tensor._keras_history
    return operation._inbound_nodes[node].input_tensors


def calls_of(model, layer_name):
    """Outputs of each call of a layer in the graph of a model.

    Only those in this graph: a layer may be part of others too.
    """
    graph = getattr(model, "_functional", None) or model
    return [
        node.outputs
        for same_depth in graph._nodes_by_depth.values()
        for node in same_depth
        if node.operation.name == layer_name
    ]
