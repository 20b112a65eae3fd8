# SPDX-License-Identifier: Apache-2.0
"""Outputs that a classifier gave earlier, in place of its inputs."""

from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Tensor
from cac_tf.models.network import Network
from cac_tf.scores import Score
from cac_tf.scores.score import OF_CENTERS

_ROWS = 4096


class ComputedOutputs:
    """Takes the place of raw inputs wherever a model takes data.

    Args:
        outputs: dict of (n, ...) float arrays by the names of the classifier's
            outputs: `logits`, (n, D), and whatever the score reads.

    Raises:
        ValueError: no `logits`, or arrays of different lengths.
    """

    def __init__(self, outputs: Mapping[str, ArrayLike]) -> None:
        if not isinstance(outputs, Mapping) or "logits" not in outputs:
            raise ValueError(
                "outputs must be a dict of arrays with the key 'logits'; got "
                f"{list(outputs) if isinstance(outputs, Mapping) else outputs}."
            )
        self._outputs = {
            name: np.asarray(value, "float32")
            for name, value in outputs.items()
        }
        lengths = {name: len(value) for name, value in self._outputs.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"The outputs have different numbers of rows: {lengths}."
            )

    def __len__(self) -> int:
        return len(self._outputs["logits"])

    def check(self, network: Network, score: Score) -> None:
        """Raises ValueError unless a network gives them, and a score can read.

        Args:
            network: of the classifier that they are outputs of.
            score: what will read them.
        """
        needed = {"logits", *score.READS} - set(OF_CENTERS)
        if network.width_of_class_distances is not None:
            needed.add("class_distances")
        missing = sorted(needed - set(self._outputs))
        if missing:
            raise ValueError(
                f"The score {score.name!r} needs {', '.join(missing)} among "
                f"the outputs, which are: {', '.join(sorted(self._outputs))}."
            )
        widths = {
            "logits": network.width,
            "features": network.width_of_features,
        }
        for name in needed & set(widths):
            width = self._outputs[name].shape[-1]
            if widths[name] not in (None, width):
                raise ValueError(
                    f"The classifier's {name} have {widths[name]} columns; "
                    f"these have {width}."
                )

    def batches(self) -> Iterator[tuple[dict[str, Tensor], slice]]:
        """Some rows at a time, as tensors, and which rows."""
        for start in range(0, len(self), _ROWS):
            rows = slice(start, start + _ROWS)
            yield (
                {
                    name: ops.convert_to_tensor(value[rows])
                    for name, value in self._outputs.items()
                },
                rows,
            )
