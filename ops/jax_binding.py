# SPDX-License-Identifier: Apache-2.0
"""The fused operations as functions on JAX arrays."""

import ctypes
import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np

from cac_tf.ops import stock

_HANDLERS = (
    "CacTfAnchoredCacLoss",
    "CacTfAnchoredCacLossGrad",
    "CacTfAnchoredCacScores",
)
_library = None
_row_state_size = None


class LossTerms(typing.NamedTuple):
    """Per-example losses, (B,) float32 each; all can be differentiated."""

    loss: jax.Array
    anchor: jax.Array
    tuplet: jax.Array


def framework():
    """What a library must have been built for; JAX itself checks releases."""
    return "JAX"


def runs_on_devices(has_cuda):
    """Whether the library's kernels cover all devices of this process."""
    platforms = {device.platform for device in jax.devices()}
    return platforms <= ({"cpu", "gpu", "cuda"} if has_cuda else {"cpu"})


def load(path, has_cuda):
    """Makes the handlers of the library known to JAX."""
    global _library, _row_state_size
    # Kept: JAX holds addresses inside it.
    _library = ctypes.CDLL(str(path))
    _row_state_size = ctypes.c_int32.in_dll(_library, "CacTfRowStateSize").value
    for name in _HANDLERS:
        _register(name, name, "cpu")
        if has_cuda:
            _register(name, f"{name}OnGpu", "CUDA")


def run_once():
    """Runs operations on the default device; raises whatever they raise."""
    with jax.ensure_compile_time_eval():
        labels, logits = jnp.asarray([0]), jnp.asarray([[1.0, 2.0]], "float32")
        terms = anchored_cac_loss(labels, logits, 10.0, 0.1, validate=False)
        jax.block_until_ready((terms, anchored_scores(logits, 10.0)))


def _register(name, symbol, platform):
    handler = jax.ffi.pycapsule(getattr(_library, symbol))
    jax.ffi.register_ffi_target(name, handler, platform=platform)


def _call(name, outputs, *inputs, **attributes):
    # Rows are independent, so a further axis of all inputs only adds rows.
    attributes = {key: np.float32(value) for key, value in attributes.items()}
    call = jax.ffi.ffi_call(name, outputs, vmap_method="broadcast_all")
    return call(*inputs, **attributes)


def _float32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _loss_and_state(logits, labels, magnitude, anchor_weight):
    """`LossTerms`, and what the gradient needs to know about every row."""
    rows = logits.shape[:-1]
    *terms, row_state = _call(
        "CacTfAnchoredCacLoss",
        [_float32(*rows)] * 3 + [_float32(*rows, _row_state_size)],
        logits,
        labels,
        magnitude=magnitude,
        anchor_weight=anchor_weight,
    )
    return LossTerms(*terms), row_state


def _forward(logits, labels, magnitude, anchor_weight):
    # Not the handler itself: a second derivative comes through here.
    outputs = _loss_and_state(logits, labels, magnitude, anchor_weight)
    return outputs, (logits, labels, outputs[1])


def _backward(magnitude, anchor_weight, residuals, upstream):
    terms, _ = upstream
    gradient = _gradient(*residuals, tuple(terms), magnitude, anchor_weight)
    return gradient, None


_loss_and_state.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _gradient(logits, labels, row_state, upstream, magnitude, anchor_weight):
    return _call(
        "CacTfAnchoredCacLossGrad",
        jax.ShapeDtypeStruct(logits.shape, logits.dtype),
        logits,
        labels,
        row_state,
        *upstream,
        magnitude=magnitude,
        anchor_weight=anchor_weight,
    )


def _gradient_forward(
    logits, labels, row_state, upstream, magnitude, anchor_weight
):
    gradient = _gradient(
        logits, labels, row_state, upstream, magnitude, anchor_weight
    )
    return gradient, (logits, labels, row_state, upstream)


def _gradient_backward(magnitude, anchor_weight, residuals, upstream):
    """Differentiates the gradient as stock operations compute it."""
    logits, labels, row_state, first = residuals

    def total(logits, loss, anchor, tuplet):
        anchor_loss, tuplet_loss = stock.anchor_and_tuplet_loss(
            labels, logits, magnitude
        )
        return jnp.sum(
            (loss + tuplet) * tuplet_loss
            + (anchor_weight * loss + anchor) * anchor_loss
        )

    _, pull_back = jax.vjp(jax.grad(total), logits, *first)
    by_logits, *by_first = pull_back(upstream)
    return by_logits, None, jnp.zeros_like(row_state), tuple(by_first)


_gradient.defvjp(_gradient_forward, _gradient_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _scores(logits, magnitude):
    rows = logits.shape[:-1]
    outputs = _call(
        "CacTfAnchoredCacScores",
        [
            *[_float32(*logits.shape)] * 2,
            _float32(*rows),
            jax.ShapeDtypeStruct(rows, jnp.int32),
        ],
        logits,
        magnitude=magnitude,
    )
    return stock.Scores(*outputs)


def _scores_forward(logits, magnitude):
    return _scores(logits, magnitude), logits


def _scores_backward(magnitude, logits, upstream):
    """The gradient of stock operations; a class has no derivative."""
    _, pull_back = jax.vjp(
        lambda z: tuple(stock.anchored_scores(z, magnitude)[:-1]), logits
    )
    return pull_back(tuple(upstream[:-1]))


_scores.defvjp(_scores_forward, _scores_backward)


def anchored_scores(logits, magnitude):
    """`stock.anchored_scores` in one call.

    Args:
        logits: (B, N) float32, bfloat16 or float16, read as they are.
        magnitude: length of the anchors, a Python float.

    Returns:
        `stock.Scores`, float32 and int32; NaN and class 0 where logits are not
        finite.
    """
    return _scores(logits, float(magnitude))


def anchored_cac_loss(labels, logits, magnitude, anchor_weight, validate):
    """The CAC loss with both of its terms, in one call.

    Args:
        labels: (B,) int32 or int64.
        logits: (B, N) float32, bfloat16 or float16, read as they are; their
            gradient has the same type.
        magnitude: length of the anchors, a Python float.
        anchor_weight: weight of the anchor loss, a Python float.
        validate: without effect: an invalid label or logit makes its row NaN.

    Returns:
        `LossTerms`.
    """
    del validate
    terms, _ = _loss_and_state(
        logits, labels, float(magnitude), float(anchor_weight)
    )
    return terms
