# SPDX-License-Identifier: Apache-2.0
"""Numbers of the literature, as `published.json` holds them."""

import importlib.resources
import json


def _content():
    text = importlib.resources.files("cac_tf.reporting") / "published.json"
    return json.loads(text.read_text(encoding="utf-8"))


def published_bhattacharyya():
    """Published Bhattacharyya coefficients (Table 2).

    Returns:
        Dict from the training's name to a dict from a data set's name to the
        coefficient of the distances to the closest center.

    Example:

    >>> published_bhattacharyya()["CAC"]["mnist"]
    0.324
    """
    content = _content()
    return {
        name: dict(zip(content["datasets"], values, strict=True))
        for name, values in content["bhattacharyya"].items()
    }


def published_ccr(dataset):
    """Published CCR at false-positive rates of 1, 5 and 10 % (Table 3).

    Returns:
        Dict from a method's name to three numbers, None where there is none;
        empty for a data set that is not in the table.

    Example:

    >>> published_ccr("cifar10_vs_svhn")["CAC"]
    [0.683, 0.785, 0.826]
    """
    return _content()["ccr"].get(dataset, {})


def published(split_family):
    """AUROCs of the literature on one split family.

    Returns:
        Dict from a method's name to a dict from a data set's name to mean
        and standard deviation (None where it was not published).

    Example:

    >>> published("neal")["CAC"]["cifar10"]
    (0.801, 0.03)
    >>> published("miller2020")["CAC"]["mnist"]
    (0.987, None)
    """
    content = _content()
    found = {}
    for method, (means, *deviations) in content.get(split_family, {}).items():
        spreads = deviations[0] if deviations else [None] * len(means)
        found[method] = {
            dataset: (mean, spread)
            for dataset, mean, spread in zip(
                content["datasets"], means, spreads, strict=True
            )
            if mean is not None
        }
    return found
