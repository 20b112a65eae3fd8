# SPDX-License-Identifier: Apache-2.0
"""Names for types, used in annotations alone."""

import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

# A tensor of the backend in use, a `keras.KerasTensor`, or an array. The
# backend is chosen when the program runs, so no checker knows its class.
Tensor: TypeAlias = Any

# A classifier's outputs by name.
Outputs: TypeAlias = Mapping[str, Tensor]

# Of a tensor; None where a dimension may have any size.
Shape: TypeAlias = tuple[int | None, ...]

# What `get_config` of a layer, loss, metric or score gives.
Config: TypeAlias = dict[str, Any]

Path: TypeAlias = str | os.PathLike[str]

# Of `results.csv`: dicts with the same keys.
Rows: TypeAlias = Sequence[Mapping[str, Any]]
