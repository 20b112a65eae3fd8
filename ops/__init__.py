# SPDX-License-Identifier: Apache-2.0
"""The optional fused operations: C++ and CUDA kernels for what layers compute.

Nothing depends on them. Where their library was built (`make ops`, or
`python -m cac_tf.ops.build` beside an installed package),
`losses.cac_loss_from_logits`, and with it the training step of an
`OpenSetClassifier`, uses them automatically, on TensorFlow and JAX; so does the
metric `OpenSetAUROC`. Predictions never do: where gamma vanishes, they must
decide as the exported model. Everywhere else it computes the same from stock
operations. Exported models hold only stock operations. On JAX, the fused
operations have reverse-mode derivatives of first and second order, but no
forward-mode ones (`jax.jvp`, `jax.hessian`): those need stock operations.

To leave the fused operations unused: `CAC_TF_DISABLE_FUSED_OPS=1` in the
environment, `set_enabled(False)`, or `with stock_operations():`. All three
are read when a function is traced, so a function that is already compiled
stays as it is.
"""

from cac_tf.ops.loader import binding
from cac_tf.ops.loader import binding_for
from cac_tf.ops.loader import set_enabled
from cac_tf.ops.loader import stock_operations

__all__ = ["set_enabled", "stock_operations"]
