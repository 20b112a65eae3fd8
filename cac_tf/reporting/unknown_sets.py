# SPDX-License-Identifier: Apache-2.0
"""Part of the report: near and far unknown images, from several sets."""

import html
from collections.abc import Mapping
from typing import Any

from cac_tf.reporting import page
from cac_tf.reporting.measures import number


def unknown_sets_section(measures: Mapping[str, Any]) -> str:
    """AUROC of each score on each set of unknown images, as HTML.

    Args:
        measures: the `metrics` of an `Evaluation`.

    Returns:
        A heading and a table, with the share of each set that the threshold
        accepts; empty where no further unknown images were evaluated.

    Example:

    >>> sets = {"photos": {"images": 9, "false_positive_rate": 0.25,
    ...     "scores": {"gamma": {"auroc": 0.875}}}}
    >>> measures = {"auroc": None, "scores": {"gamma": {"auroc": None}},
    ...     "unknown_data": sets}
    >>> "0.875" in unknown_sets_section(measures)
    True
    >>> unknown_sets_section({"auroc": 0.9, "scores": {}})
    ''
    """
    sets = measures.get("unknown_data")
    if not sets:
        return ""
    own = {"of the data set": measures} if measures["auroc"] is not None else {}
    sets = {**own, **sets}
    rows = [
        [
            html.escape(name),
            *(number(one["scores"][name]["auroc"]) for one in sets.values()),
        ]
        for name in measures["scores"]
    ]
    rows.append(
        [
            "accepted at the threshold",
            *(number(one["false_positive_rate"]) for one in sets.values()),
        ]
    )
    table = page.table(["AUROC", *map(html.escape, sets)], rows)
    return f"<h2>Unknown images by set</h2>{page.scrolled(table, 'Sets')}"
