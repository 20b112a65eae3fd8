# SPDX-License-Identifier: Apache-2.0
"""The optional fused operations: C++ and CUDA kernels for what layers compute.

Nothing depends on them. Where their library was built (`make ops`, or
`python -m cac_tf.ops.build` beside an installed package), these functions
use it by themselves, on TensorFlow and JAX:

* `losses.cac_loss_from_logits`, and with it the training step of an
  `OpenSetClassifier`,
* `layers.decide_from_logits`.

Everywhere else they compute the same from stock operations. Exported models
hold stock operations only.

To leave the fused operations unused: `CAC_TF_DISABLE_FUSED_OPS=1` in the
environment, `set_enabled(False)`, or `with stock_operations():`. All three
are looked at when a function is traced, so a function that is compiled
already stays as it is.
"""

from cac_tf.ops.loader import binding
from cac_tf.ops.loader import binding_for
from cac_tf.ops.loader import set_enabled
from cac_tf.ops.loader import stock_operations
