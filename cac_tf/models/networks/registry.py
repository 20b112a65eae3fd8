# SPDX-License-Identifier: Apache-2.0
"""Where networks are registered, under the names of their functions."""

from collections.abc import Callable
from typing import Any

from cac_tf.registry import Registry

_NETWORKS = Registry(
    "network", "cac_tf.models.networks", but=("network_parts", "registry")
)
names, find = _NETWORKS.names, _NETWORKS.get


def register(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a network under its function's name; a decorator."""
    return _NETWORKS.register(function, name=function.__name__)
