# SPDX-License-Identifier: Apache-2.0
"""Part of the report: near and far unknown images, from several sets."""

import html
from collections.abc import Mapping
from typing import Any

from cac_tf.reporting import page
from cac_tf.reporting.measures import unknown_set_rows


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
    found = unknown_set_rows(measures)
    if found is None:
        return ""
    sets, rows = found
    for cells in rows:
        cells[0] = html.escape(cells[0])
    table = page.table(["AUROC", *map(html.escape, sets)], rows)
    return f"<h2>Unknown images by set</h2>{page.scrolled(table, 'Sets')}"
