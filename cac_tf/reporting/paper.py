# SPDX-License-Identifier: Apache-2.0
"""What the paper's tables and figures show: data, methods, class splits."""

import dataclasses
import typing

from cac_tf.reporting.published import published
from cac_tf.reporting.published import published_ccr

_SETS = ("mnist", "svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet")
_LEARNT = "learnt centers"


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """What a table of the paper measures, on which data, of which methods."""

    title: str
    split_family: str
    # From the paper's name of a row to our method and score.
    rows: dict
    # From a column's title to the column of results.csv.
    measures: dict
    # Of published.json; by default, what it has of the split family.
    source: str | None = None
    datasets: tuple = _SETS
    # Whether rows of methods that are not here are shown too.
    shows_others: bool = False

    def published(self, dataset):
        """By row, the mean and spread of each measure on a data set."""
        if self.source == "ccr":
            return {
                name: [(value, None) for value in values]
                for name, values in published_ccr(dataset).items()
            }
        return {
            name: [values[dataset]]
            for name, values in published(
                self.source or self.split_family
            ).items()
            if dataset in values
        }

    @property
    def split_families(self):
        """The split family, in a tuple."""
        return (self.split_family,)

    @property
    def methods(self):
        """Names of the methods that have to be trained."""
        return tuple(dict.fromkeys(method for method, _ in self.rows.values()))


TABLES = {
    1: PaperTable(
        "Table 1: AUROC",
        "neal",
        {
            # That row was trained with one loss per class.
            "Softmax": ("one_vs_all", "max_softmax"),
            "Softmax, cross-entropy": ("cross_entropy", "max_softmax"),
            # That row is not the probability of "unknown".
            "OpenMax": ("cross_entropy", "openmax_log_sum_exp"),
            "OpenMax, P(unknown)": ("cross_entropy", "openmax"),
            "G-OpenMax, our re-implementation": (
                "g_openmax",
                "unknown_class_openmax",
            ),
            "OSRCI": ("osrci", "unknown_class"),
            "C2AE, our re-implementation": ("c2ae", "min_reconstruction_error"),
            "CROSR, our re-implementation": ("crosr", "latent_openmax"),
            "GFROR, our re-implementation": ("gfror", "max_logit"),
            "CAC": ("cac", "gamma"),
        },
        {"AUROC": "auroc"},
        shows_others=True,
    ),
    2: PaperTable(
        "Table 2: Bhattacharyya coefficient of the distances to the closest "
        "class mean, known against unknown (smaller is better)",
        "miller2020",
        {
            "Cross-entropy": ("cross_entropy", "max_softmax"),
            "CAC": ("cac", "gamma"),
        },
        {"coefficient": "bhattacharyya"},
        "bhattacharyya",
    ),
    3: PaperTable(
        "Table 3: correct classification rate by false-positive rate",
        "neal",
        {
            "Softmax": ("cross_entropy", "max_softmax"),
            "Entropic open-set": ("entropic_open_set", "max_softmax"),
            "Objectosphere": ("objectosphere", "objectosphere"),
            "CAC": ("cac", "gamma"),
        },
        {"1 %": "ccr@1%", "5 %": "ccr@5%", "10 %": "ccr@10%"},
        "ccr",
        ("cifar10_vs_svhn", "cifar10_vs_cifar100"),
    ),
    4: PaperTable(
        "Table 4: AUROC by loss, trained with anchored centers",
        "miller2020",
        {
            "Center loss": ("center", "gamma"),
            "Tuplet loss": ("tuplet", "gamma"),
            "Anchor loss": ("anchor", "gamma"),
            "CAC": ("cac", "gamma"),
        },
        {"AUROC": "auroc"},
    ),
    5: PaperTable(
        "Table 5: AUROC with anchored and with learnt centers",
        "miller2020",
        {
            "Center loss": ("center", "gamma"),
            f"Center loss, {_LEARNT}": ("center_learnt", "gamma"),
            "CAC": ("cac", "gamma"),
            f"CAC, {_LEARNT}": ("cac_learnt", "gamma"),
        },
        {"AUROC": "auroc"},
    ),
}


class PaperFigure(typing.NamedTuple):
    """What a figure of the paper shows: data, methods, class splits."""

    datasets: tuple
    methods: tuple
    split_families: tuple


# The paper draws growing numbers of classes of TinyImageNet.
FIGURES = {
    "1": PaperFigure(
        ("vehicles_animals",), ("cross_entropy", "cac"), ("neal",)
    ),
    "2": TABLES[2],
    "3": TABLES[2],
    "convergence": TABLES[5],
    "classes": PaperFigure(
        ("digits",),
        ("cac", "cac_learnt"),
        ("random2", "random3", "random4", "random5"),
    ),
}
