# SPDX-License-Identifier: Apache-2.0
"""Batch normalization of feature maps, with an unbiased running variance."""

from typing import Any

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.layers.replicas import replica_context


@keras.saving.register_keras_serializable(package="CacTf")
class BatchNormalization(keras.layers.BatchNormalization):
    """Batch normalization whose running variance is unbiased.

    Training normalizes by the biased variance of the batch, as usual. The
    running variance, used at inference, takes the unbiased one (n - 1 in the
    denominator), as PyTorch's does. On TensorFlow this is one fused operation,
    which makes a training step of `models.openset_cnn` on a CPU up to 1.4
    times as fast as with Keras' own layer.

    Normalizes the last axis. Arguments are those of
    `keras.layers.BatchNormalization`, without `axis` and `renorm`.

    With several replicas of `tf.distribute`, training normalizes by the mean
    and variance of the global batch, as on one device and on JAX. Replicas
    without an image, as at the end of an epoch, are left out.

    Args:
        synchronized: if False, each replica of `tf.distribute` normalizes by
            the statistics of its own images, which needs no exchange. The
            running statistics are then averages over the replicas, with their
            numbers of images as weights.

    Call arguments:
        inputs: (B, H, W, C). Half precision is normalized in float32.
        training: whether to use, and remember, the batch's statistics.

    Returns:
        (B, H, W, C), of the layer's compute dtype.

    Raises:
        ValueError: inputs of another rank, a mask, or arguments for another
            axis or for renormalization.

    Example:

    >>> import numpy as np
    >>> layer = BatchNormalization(momentum=0.0)
    >>> images = np.float32([1, 3]).reshape(1, 1, 2, 1)
    >>> _ = layer(images, training=True)
    >>> np.asarray(layer.moving_variance)  # PyTorch's; the biased one is 1
    array([2.], dtype=float32)
    """

    def __init__(self, synchronized: bool = True, **kwargs: Any) -> None:
        refused = [n for n in kwargs if n == "axis" or n.startswith("renorm")]
        if refused:
            raise ValueError(
                "BatchNormalization normalizes only the last axis, without "
                f"renormalization; got {', '.join(refused)}."
            )
        super().__init__(axis=-1, **kwargs)
        # Keras' own argument is not used, because JAX refuses it.
        self.synchronized = bool(synchronized)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 4:
            raise ValueError(
                "BatchNormalization expects (batch, height, width, channels); "
                f"got {tuple(input_shape)}."
            )
        super().build(input_shape)

    def call(
        self,
        inputs: Tensor,
        training: bool | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        if mask is not None:
            raise ValueError(
                "BatchNormalization of images does not support masks."
            )
        uses_batch = bool(training and self.trainable)
        replicas = replica_context() if uses_batch else None
        if replicas and self.synchronized:
            outputs, mean, variance = self._synchronized(inputs, replicas)
        elif keras.backend.backend() == "tensorflow":
            outputs, mean, variance = self._fused(inputs, uses_batch)
            if replicas:
                mean, variance = _mean_over(
                    replicas, ops.shape(inputs)[0], mean, variance
                )
        else:
            outputs, mean, variance = self._composed(inputs, uses_batch)
        if uses_batch:
            for running, value in (
                (self.moving_mean, mean),
                (self.moving_variance, variance),
            ):
                value = ops.cast(value, running.dtype)
                running.assign(
                    running * self.momentum + value * (1.0 - self.momentum)
                )
        return ops.cast(outputs, self.compute_dtype)

    def _parameters(self):
        channels = self.moving_mean.shape
        gamma = self.gamma if self.scale else ops.ones(channels)
        beta = self.beta if self.center else ops.zeros(channels)
        return tuple(
            ops.cast(value, "float32")
            for value in (gamma, beta, self.moving_mean, self.moving_variance)
        )

    def _fused(self, inputs, uses_batch):
        """Output and the batch's mean and unbiased variance."""
        import tensorflow as tf

        gamma, beta, mean, variance = self._parameters()
        if inputs.dtype == tf.float64:
            # There is no such operation.
            inputs = tf.cast(inputs, tf.float32)
        return tf.compat.v1.nn.fused_batch_norm(
            inputs,
            gamma,
            beta,
            mean=None if uses_batch else mean,
            variance=None if uses_batch else variance,
            epsilon=self.epsilon,
            is_training=uses_batch,
        )

    def _synchronized(self, inputs, replicas):
        """Output and the global batch's mean and unbiased variance."""
        import tensorflow as tf

        inputs = ops.cast(inputs, "float32")
        count, total = replicas.all_reduce(
            tf.distribute.ReduceOp.SUM,
            [_count(inputs), ops.sum(inputs, axis=(0, 1, 2))],
        )
        count = ops.stop_gradient(count)
        mean = total / count
        # A second pass over the inputs: E[x²] - E[x]² would cancel. The sum
        # is smallest at the mean, where its derivative by the mean is zero.
        squares = ops.square(inputs - ops.stop_gradient(mean))
        variance = (
            replicas.all_reduce(
                tf.distribute.ReduceOp.SUM, ops.sum(squares, axis=(0, 1, 2))
            )
            / count
        )
        outputs = self._normalized(inputs, mean, variance)
        return outputs, mean, _unbiased(variance, count)

    def _composed(self, inputs, uses_batch):
        """Output and the batch's mean and unbiased variance."""
        inputs = ops.cast(inputs, "float32")
        if not uses_batch:
            *_, mean, variance = self._parameters()
            return self._normalized(inputs, mean, variance), mean, variance
        mean, variance = ops.moments(inputs, axes=(0, 1, 2))
        outputs = self._normalized(inputs, mean, variance)
        return outputs, mean, _unbiased(variance, _count(inputs))

    def _normalized(self, inputs, mean, variance):
        gamma, beta, *_ = self._parameters()
        return ops.batch_normalization(
            inputs,
            mean,
            variance,
            axis=-1,
            offset=beta,
            scale=gamma,
            epsilon=self.epsilon,
        )

    def get_config(self) -> Config:
        fixed = ("axis", "renorm")
        return {
            name: value
            for name, value in super().get_config().items()
            if not name.startswith(fixed)
        }


def _count(inputs):
    """Number of values of one channel, as float32."""
    batch, height, width = ops.shape(inputs)[:3]
    return ops.cast(batch * height * width, "float32")


def _unbiased(variance, count):
    return variance * (count / ops.maximum(count - 1.0, 1.0))


def _mean_over(replicas, rows, *values):
    """Means of the values over the replicas, weighted by numbers of rows."""
    import tensorflow as tf

    rows = ops.cast(rows, "float32")
    # Without images the statistics are NaN.
    weighted = [ops.where(rows > 0, rows * value, 0.0) for value in values]
    total, *sums = replicas.all_reduce(
        tf.distribute.ReduceOp.SUM, [rows, *weighted]
    )
    return [value / total for value in sums]
