# SPDX-License-Identifier: Apache-2.0
"""Which networks there are: those that are registered, under the names of
their functions, and pretrained ones."""

from collections.abc import Callable
from typing import Any

from cac_tf.registry import Registry

_NETWORKS = Registry(
    "network", "cac_tf.models.networks", but=("network_parts", "registry")
)
names, find = _NETWORKS.names, _NETWORKS.get


def register(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that registers a network by its function's name."""
    return _NETWORKS.register(function, name=function.__name__)


# How the names of pretrained networks begin, or end.
APPLICATIONS, HUB, FILE = "keras_applications/", "keras_hub/", ".keras"
PRETRAINED = (
    f"{APPLICATIONS}NAME, such as EfficientNetV2B0, {HUB}PRESET, or a "
    f"FILE{FILE}"
)


def is_pretrained(name: str) -> bool:
    """Whether `models.pretrained_backbone` makes it.

    Example:

    >>> is_pretrained("photos.keras"), is_pretrained("resnet18")
    (True, False)
    """
    return name.startswith((APPLICATIONS, HUB)) or name.endswith(FILE)


def check(name: str) -> None:
    """Raises ValueError unless there is a network of this name."""
    if is_pretrained(name):
        return
    try:
        _NETWORKS.check(name)
    except ValueError as error:
        raise ValueError(
            f"{error} Or a pretrained network: {PRETRAINED}."
        ) from None
