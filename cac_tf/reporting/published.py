# SPDX-License-Identifier: Apache-2.0
"""Numbers of the literature, as `published.json` holds them."""

import importlib.resources
import json


def _content():
    text = importlib.resources.files("cac_tf.reporting") / "published.json"
    return json.loads(text.read_text(encoding="utf-8"))


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


def published(what):
    """Numbers of the literature on the benchmark's data sets.

    Args:
        what: a split family, for AUROCs; or "bhattacharyya", for the
            coefficients of the distances to the closest center (Table 2).

    Returns:
        Dict from a method's name to a dict from a data set's name to mean
        and standard deviation (None where it was not published).

    Example:

    >>> published("neal")["CAC"]["cifar10"]
    (0.801, 0.03)
    >>> published("bhattacharyya")["CAC"]["mnist"]
    (0.324, None)
    """
    content = _content()
    found = {}
    for method, (means, *deviations) in content.get(what, {}).items():
        spreads = deviations[0] if deviations else [None] * len(means)
        found[method] = {
            dataset: (mean, spread)
            for dataset, mean, spread in zip(
                content["datasets"], means, spreads, strict=True
            )
            if mean is not None
        }
    return found
