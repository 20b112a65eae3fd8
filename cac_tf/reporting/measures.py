# SPDX-License-Identifier: Apache-2.0
"""The numbers of `metrics.json` as a reader sees them."""

import html

# What a reader of the page is told about each number.
MEANINGS = {
    "AUROC": "Probability that an unknown input has a higher unknown score "
    "than a known one; .5 is chance, 1 is perfect. Does not depend on a "
    "threshold.",
    "AUROC, 95 % interval": "From a bootstrap over the test inputs.",
    "FPR at TPR 95 %": "Fraction of unknown inputs accepted at the threshold "
    "that accepts 95 % of the known test inputs.",
    "AUPR, unknown positive": "Area under the precision-recall curve for "
    "detecting unknown inputs; depends on the numbers of known and unknown "
    "inputs.",
    "AUPR, known positive": "The same for detecting known inputs.",
    "accuracy": "Fraction of known inputs whose predicted class is correct, "
    "without rejection (closed set).",
    "OSCR": "Area under the curve of known inputs accepted as their own class "
    "against unknown inputs accepted.",
    "CCR": "Fraction of known inputs accepted as their own class, at the "
    "threshold that accepts this fraction of unknown inputs.",
    "Bhattacharyya": "Overlap between the distances of known and unknown "
    "inputs to the nearest center: 0 for none, 1 for complete.",
    "openness": "How many of the test classes are unknown: "
    "1 - sqrt(2 N / (2 N + U)) for N known and U unknown classes.",
    "known accepted": "Fraction of known inputs accepted at the threshold.",
    "unknown accepted": "Fraction of unknown inputs accepted at the threshold.",
    "macro-F1": "F1, the harmonic mean of precision and recall of the "
    'decisions, averaged over the known classes and "unknown".',
}


def rows_of(measures):
    """Name and text of each number that was measured.

    Args:
        measures: as `metrics.json` holds them.
    """
    ccr = measures["ccr"] or {}
    counts = measures["counts"]
    rows = [
        ("AUROC", number(measures["auroc"])),
        ("AUROC, 95 % interval", _interval(measures["intervals"])),
        ("FPR at TPR 95 %", number(measures["fpr_at_95_tpr"])),
        ("AUPR, unknown positive", number(measures["aupr_unknown"])),
        ("AUPR, known positive", number(measures["aupr_known"])),
        ("accuracy", number(measures["accuracy"])),
        ("OSCR", number(measures["oscr"])),
        *(
            (f"CCR at FPR {float(rate):.0%}", number(value))
            for rate, value in ccr.items()
        ),
        ("Bhattacharyya", number(measures["bhattacharyya"])),
        ("openness", percent(measures["openness"])),
        ("known accepted", percent(measures["true_positive_rate"])),
        ("unknown accepted", percent(measures["false_positive_rate"])),
        ("macro-F1", number(measures.get("macro_f1"))),
        *(
            (
                f"{measures.get('inputs', 'images')}: {name.replace('_', ' ')}",
                f"{count:,}",
            )
            for name, count in counts.items()
        ),
    ]
    return [row for row in rows if row[1] != NOT_MEASURED]


# What scores are compared by: titles, and names in `metrics.json`.
_COMPARED = {
    "AUROC": "auroc",
    "FPR at TPR 95 %": "fpr_at_95_tpr",
    "AUPR, known positive": "aupr_known",
    "AUPR, unknown positive": "aupr_unknown",
    "accuracy": "accuracy",
    "OSCR": "oscr",
}


def score_rows(measures):
    """Titles of columns, and a row for each score: its name and its numbers.

    None where there is nothing to compare.
    """
    if len(measures["scores"]) < 2 or measures["auroc"] is None:
        return None
    titles = [
        *_COMPARED,
        *(f"CCR at FPR {float(rate):.0%}" for rate in measures["ccr"]),
        "µs per input",
    ]
    rows = [
        [
            name,
            *(number(values[one]) for one in _COMPARED.values()),
            *map(number, values["ccr"].values()),
            f"{measures['microseconds_per_image'][name]:.2f}",
        ]
        for name, values in measures["scores"].items()
    ]
    return titles, rows


def unknown_set_rows(measures):
    """Names of the sets of unknown images, and a row for each score's AUROCs.

    The last row has the shares that the threshold accepts. None where no
    further unknown images were evaluated.
    """
    sets = measures.get("unknown_data")
    if not sets:
        return None
    own = {"of the data set": measures} if measures["auroc"] is not None else {}
    sets = {**own, **sets}
    rows = [
        [name, *(number(o["scores"][name]["auroc"]) for o in sets.values())]
        for name in measures["scores"]
    ]
    accepted = [number(one["false_positive_rate"]) for one in sets.values()]
    return list(sets), [*rows, ["accepted at the threshold", *accepted]]


# Stands for a number that there is not.
NOT_MEASURED = "–"


def percent(value):
    """E.g. "12.5 %"."""
    return NOT_MEASURED if value is None else f"{100 * value:.1f} %"


def number(value):
    """With four digits after the point."""
    return NOT_MEASURED if value is None else f"{value:.4f}"


def significant(value):
    """With four significant digits."""
    return NOT_MEASURED if value is None else f"{value:.4g}"


def _interval(intervals):
    if intervals is None:
        return NOT_MEASURED
    low, high = intervals["auroc"]
    return f"{low:.3f}–{high:.3f}"


def meaning(name):
    """What a number is, for a reader who sees its name: HTML, or ""."""
    return html.escape(MEANINGS.get(name.split(" at FPR")[0], ""))


def explained(name):
    """A number's name, with its meaning where the pointer rests: HTML."""
    said = meaning(name)
    name = html.escape(name)
    return f'<abbr title="{said}">{name}</abbr>' if said else name
