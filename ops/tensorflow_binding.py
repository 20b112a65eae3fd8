# SPDX-License-Identifier: Apache-2.0
"""The fused operations as functions on TensorFlow tensors."""

import typing

import tensorflow as tf

from cac_tf.ops import stock

_operations = None


class LossTerms(typing.NamedTuple):
    """Per-example losses, (B,) float32 each; all can be differentiated."""

    loss: tf.Tensor
    anchor: tf.Tensor
    tuplet: tf.Tensor


def framework():
    """What a library must have been built for: this very release."""
    return f"TensorFlow {tf.__version__}"


def runs_on_devices(has_cuda):
    """Whether the library's kernels cover all devices of this process."""
    kinds = {device.device_type for device in tf.config.get_visible_devices()}
    return kinds <= ({"CPU", "GPU", "XLA_CPU"} if has_cuda else {"CPU"})


def load(path, has_cuda):
    """Loads the library into TensorFlow."""
    del has_cuda  # The kernels register themselves.
    global _operations
    _operations = tf.load_op_library(str(path))


def run_once():
    """Runs operations on the default device; raises whatever they raise."""
    with tf.init_scope():
        labels, logits = tf.constant([0]), tf.constant([[1.0, 2.0]])
        anchored_cac_loss(labels, logits, 10.0, 0.1, validate=False)[0].numpy()
        anchored_scores(logits, 10.0).gamma.numpy()


def anchored_cac_loss(labels, logits, magnitude, anchor_weight, validate):
    """The CAC loss with both of its terms, in one operation.

    Args:
        labels: (B,) int32 or int64.
        logits: (B, N) float32, bfloat16 or float16, read as they are; their
            gradient has the same type.
        magnitude: length of the anchors, a Python float.
        anchor_weight: weight of the anchor loss, a Python float.
        validate: whether an invalid label or logit is an error (on a CPU,
            outside XLA); otherwise it makes its row NaN.

    Returns:
        `LossTerms`.
    """
    outputs = _operations.cac_tf_anchored_cac_loss(
        logits=logits,
        labels=labels,
        magnitude=magnitude,
        anchor_weight=anchor_weight,
        validate=validate,
    )
    return LossTerms(outputs.loss, outputs.anchor, outputs.tuplet)


def anchored_scores(logits, magnitude):
    """`stock.anchored_scores` in one operation.

    Args:
        logits: (B, N) float32, bfloat16 or float16, read as they are.
        magnitude: length of the anchors, a Python float.

    Returns:
        `stock.Scores`, float32 and int32; NaN and class 0 where logits are not
        finite.
    """
    outputs = _operations.cac_tf_anchored_cac_scores(
        logits=logits, magnitude=magnitude
    )
    return stock.Scores(*outputs)


@tf.RegisterGradient("CacTf>AnchoredCacScores")
def _scores_gradient(operation, *upstream):
    """That of stock operations."""
    (logits,) = operation.inputs
    with tf.GradientTape() as tape:
        tape.watch(logits)
        scores = stock.anchored_scores(logits, operation.get_attr("magnitude"))
    # (A class has no derivative.)
    return tape.gradient(
        scores[:-1], logits, output_gradients=list(upstream[:-1])
    )


@tf.RegisterGradient("CacTf>AnchoredCacLoss")
def _loss_gradient(operation, loss, anchor, tuplet, _):
    logits, labels = operation.inputs
    gradient = _operations.cac_tf_anchored_cac_loss_grad(
        logits=logits,
        labels=labels,
        row_state=operation.outputs[3],
        loss_upstream=loss,
        anchor_upstream=anchor,
        tuplet_upstream=tuplet,
        magnitude=operation.get_attr("magnitude"),
        anchor_weight=operation.get_attr("anchor_weight"),
    )
    return gradient, None


@tf.RegisterGradient("CacTf>AnchoredCacLossGrad")
def _second_gradient(operation, upstream):
    """Differentiates the gradient as stock operations compute it."""
    logits, labels, _, loss, anchor, tuplet = operation.inputs
    anchor_weight = operation.get_attr("anchor_weight")
    watched = (logits, loss, anchor, tuplet)
    with tf.GradientTape() as outer:
        outer.watch(watched)
        with tf.GradientTape() as inner:
            inner.watch(logits)
            anchor_loss, tuplet_loss = stock.anchor_and_tuplet_loss(
                labels, logits, operation.get_attr("magnitude")
            )
            total = tf.reduce_sum(
                (loss + tuplet) * tuplet_loss
                + (anchor_weight * loss + anchor) * anchor_loss
            )
        gradient = inner.gradient(total, logits)
    by_logits, *by_upstream = outer.gradient(
        gradient, watched, output_gradients=upstream
    )
    return by_logits, None, None, *by_upstream
