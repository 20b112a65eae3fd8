# SPDX-License-Identifier: Apache-2.0
"""Gradients by inputs, and through networks that do not learn from them."""

import keras
from keras import ops


def values_and_gradient(function, x, variables):
    """Values of a function, and the gradient of their sum by its input.

    Both can be differentiated by the variables and by whatever else they
    depend on.

    Args:
        function: from a tensor like x to (B,) values; it may call Keras
            layers, in training too.
        x: float tensor, (B, ...).
        variables: all variables that the function reads. They may be given as
            pairs of a variable and the value to take for it.

    Returns:
        (B,) values; the gradient, like x; and the values of `variables` after
        the call. The variables themselves stay as they are.

    Example:

    >>> import numpy as np
    >>> x = np.float32([[1, 2], [3, 4]])
    >>> values, gradient, _ = values_and_gradient(
    ...     lambda x: ops.sum(x * x, axis=-1), x, [])
    >>> np.asarray(gradient)
    array([[2., 4.],
           [6., 8.]], dtype=float32)
    """
    pairs = [v if isinstance(v, tuple) else (v, v.value) for v in variables]
    # Outside the scope, where a value may be that of an outer scope.
    pairs = [(v, ops.convert_to_tensor(value)) for v, value in pairs]

    def pure(x):
        with keras.StatelessScope(state_mapping=pairs) as scope:
            values = function(x)
        after = [scope.get_current_value(variable) for variable, _ in pairs]
        return ops.sum(values), (values, after)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            total, (values, after) = pure(x)
        return values, tape.gradient(total, x), after
    if keras.backend.backend() == "jax":
        import jax

        gradient, (values, after) = jax.grad(pure, has_aux=True)(
            ops.convert_to_tensor(x)
        )
        return values, gradient, after
    raise NotImplementedError(
        "Generated unknowns need the backend tensorflow or jax; Keras is "
        f"running on {keras.backend.backend()}."
    )


def with_frozen(model, *inputs, **kwargs):
    """A call of a model through which no gradient reaches its variables.

    Gradients by the inputs pass. Its variables (running means, states of
    random generators) stay as they are.
    """
    pairs = [(v, ops.stop_gradient(v.value)) for v in model.variables]
    with keras.StatelessScope(state_mapping=pairs):
        return model(*inputs, **kwargs)


def all_gradients_first(optimizer):
    """An optimizer that changes no variable before it has all gradients.

    On TensorFlow, another one begins with those that are there. In one of a
    thousand steps or so, it changed a network of `with_frozen` while gradients
    by its inputs were still computed with its weights.

    Args:
        optimizer: `keras.optimizers.Optimizer`, whose settings it gets.

    Example:

    >>> adam = all_gradients_first(keras.optimizers.Adam(beta_1=0.5))
    >>> adam.beta_1, isinstance(adam, keras.optimizers.Adam)
    (0.5, True)
    """
    if keras.backend.backend() != "tensorflow":
        return optimizer
    import tensorflow as tf

    class AllGradientsFirst(type(optimizer)):
        def apply(self, grads, trainable_variables=None):
            return super().apply(tf.tuple(grads), trainable_variables)

    return AllGradientsFirst.from_config(optimizer.get_config())
