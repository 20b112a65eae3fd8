# SPDX-License-Identifier: Apache-2.0
"""The tables of the README and of docs/, from the committed results.

    python benchmarks/tables.py

A table stands below a line `<!-- table: NAME -->`, where NAME is one of
`TABLES`. This script replaces every such table by the current one.
"""

import collections
import functools
import json
import math
import pathlib
import re

import numpy as np
import table_1_methods
from training_queue import kind_of

from cac_tf.reporting.benchmark_table import NOTHING
from cac_tf.reporting.benchmark_table import as_published
from cac_tf.reporting.benchmark_table import mean_of_trials
from cac_tf.reporting.paper import TABLES as PAPER_TABLES
from cac_tf.reporting.published import published

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def digits_table():
    """AUROC / accuracy of every digits trial and seed, in Markdown."""
    result = json.loads((RESULTS / "digits.json").read_text())
    runs = {(run["seed"], run["trial"]): run for run in result["runs"]}
    seeds = sorted({seed for seed, _ in runs})
    trials = sorted({trial for _, trial in runs})
    header = " | ".join(f"trial {trial}" for trial in trials)
    lines = [
        f"| seed | {header} | mean |",
        "| --- |" + " --- |" * (len(trials) + 1),
    ]
    for seed in seeds:
        cells = [
            f"{runs[seed, t]['auroc']:.3f} / {runs[seed, t]['accuracy']:.3f}"
            for t in trials
        ]
        mean = result["mean_by_seed"][str(seed)]
        cells.append(f"{mean['auroc']:.3f} / {mean['accuracy']:.3f}")
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    # By how much one recipe differs on the same data.
    variances = [
        np.var([runs[seed, trial]["auroc"] for seed in seeds], ddof=1)
        for trial in trials
    ]
    cells = [f"{value:.4f}" for value in np.sqrt(variances)]
    cells.append(f"{np.sqrt(np.mean(variances)):.4f}")
    lines.append(f"| AUROC's deviation between seeds | {' | '.join(cells)} |")
    return "\n".join(lines)


def vehicles_animals_table():
    """Every committed run on the photographs, in Markdown."""
    lines = [
        "| method | seed | AUROC | accuracy | OSCR |",
        "| --- | --- | --- | --- | --- |",
    ]
    measures = ("auroc", "accuracy", "oscr")
    by_method = {}
    for path in sorted(RESULTS.glob("vehicles_animals_*.json")):
        result = json.loads(path.read_text())
        settings, metrics = result["settings"], result["metrics"]
        values = [metrics[name] for name in measures]
        by_method.setdefault(settings["method"], []).append(values)
        cells = " | ".join(f"{value:.3f}" for value in values)
        lines.append(f"| {settings['method']} | {settings['seed']} | {cells} |")
    for method, runs in by_method.items():
        cells = " | ".join(map(mean_of_trials, zip(*runs, strict=True)))
        lines.append(f"| {method} | mean | {cells} |")
    return "\n".join(lines)


def released_weights_table():
    """CAC's trial 0: ours beside the authors' own network, Markdown."""
    runs, theirs = (
        json.loads((RESULTS / f"{name}.json").read_text())["runs"]
        for name in ("released_scores", "authors_network")
    )
    names = {
        "accuracy": "accuracy by the largest logit",
        # As the authors' evaluation takes the class.
        "accuracy, gamma": "accuracy by the smallest gamma",
        "gamma": "gamma",
        "gamma, anchors": "gamma, anchors",
        "min_distance": "min_distance",
        "max_logit": "max_logit",
    }
    titles = [
        their if name.startswith("accuracy") else name
        for name, their in names.items()
    ]
    lines = [
        f"| trial 0 | {' | '.join(titles)} |",
        "| --- |" + " --- |" * len(names),
    ]
    ours = {
        dataset: columns["measured"]
        for run in ("mnist cac 0", "cifar10 cac 0", "cifar+10 cac 0")
        for dataset, columns in runs[run]["columns"].items()
    }
    for dataset in ("mnist", "cifar10", "cifar+10", "cifar+50"):
        cells = []
        for name, their in names.items():
            own = ours[dataset].get(name)
            cells.append(
                f"{'–' if own is None else f'{own:.4f}'} "
                f"({theirs[f'{dataset} 0'][their]:.4f})"
            )
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(share):
    return f"{100 * share:.0f} %"


def readme_table():
    """What a user may expect of the default scores, in Markdown."""
    released = {
        kind: _released_scores(kind)[0]
        for kind in ("measured", "fpr_at_95_tpr")
    }
    frozen, few = (
        json.loads((RESULTS / f"{name}.json").read_text())
        for name in ("frozen_features", "few_examples")
    )

    def of_released(column):
        for training in ("cac", "cross_entropy"):
            yield [
                np.mean(released[kind][training, "vim"][column])
                for kind in ("measured", "fpr_at_95_tpr")
            ]

    def of_frozen(data):
        runs = [
            run["heads"]
            for name, run in frozen["runs"].items()
            if name.startswith(f"{data} trial")
        ]
        for training in ("cac", "cross_entropy"):
            heads = [run[f"{training}, as cac-train"] for run in runs]
            yield [
                np.mean([head[kind]["vim"] for head in heads])
                for kind in ("auroc", "unknown accepted")
            ]

    def of_few():
        means = few["data"]["banking77"]["mean and standard deviation"]
        for training in ("cac", "cross_entropy"):
            own = means[f"{training}, 100 a class, knn"]
            yield [own[kind][0] for kind in ("auroc", "unknown accepted")]

    rows = {
        "digits, MNIST, from scratch": ("vim", of_released("mnist")),
        "photos, CIFAR10, from scratch": ("vim", of_released("cifar10")),
        "the same, frozen network": ("vim", of_frozen("cifar10")),
        "photos, CIFAR+50, from scratch": ("vim", of_released("cifar+50")),
        "photos, CIFAR+50, frozen network": ("vim", of_frozen("cifar+50")),
        "photos, TinyImageNet, frozen network": (
            "vim",
            of_frozen("tinyimagenet"),
        ),
        "sentences, BANKING77, vectors": ("knn", of_few()),
    }
    lines = [
        "| data | score | CAC | cross-entropy |",
        "| --- | --- | ---: | ---: |",
    ]
    for title, (score, trainings) in rows.items():
        cells = [
            f"{auroc:.3f}, {_percent(accepted)}"
            for auroc, accepted in trainings
        ]
        lines.append(f"| {title} | `{score}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _trained_files(kind):
    """Paths, in the results, of the kept runs of training_queue.py."""
    return [
        f"training/{path.name}"
        for path in sorted((RESULTS / "training").glob("*.json"))
        if kind_of(path.stem) == kind
    ]


def _trained(kind):
    """The kept runs of training_queue.py by name."""
    return {
        pathlib.Path(file).stem: json.loads((RESULTS / file).read_text())
        for file in _trained_files(kind)
    }


# What is shown of them; of other methods, their own score. Cross-entropy has no
# centers of its own.
_SCORES_TRAINED = {
    "cac": ("gamma", "max_logit", "vim"),
    "cross_entropy": ("max_softmax", "max_logit", "vim"),
}


def trained_here_table(recipe):
    """AUROC of what training_queue.py trained, beside the published."""
    found, minutes = {}, {}
    for name, run in _trained(recipe).items():
        metrics = run["metrics"]
        dataset, method = metrics["dataset"], metrics["method"]
        label = ", ".join([method, *re.findall(r"gan_epochs=\d+", name)])
        for score in _SCORES_TRAINED.get(method, [metrics["score"]]):
            cells = found.setdefault((label, f"`{score}`"), {})
            cells.setdefault(dataset, []).append(
                metrics["scores"][score]["auroc"]
            )
        by_measure = {
            name: metrics[name] for name in ("accuracy", "bhattacharyya")
        }
        for measure, value in by_measure.items():
            cells = found.setdefault((label, measure), {})
            cells.setdefault(dataset, []).append(value)
        times = minutes.setdefault(dataset, [])
        # (Cross-entropy takes as long, but was trained on other processors.)
        is_on_cpu = run["environment"]["hardware"]["accelerator"] is None
        if label == "cac" and "epochs" in metrics and is_on_cpu:
            times.append(metrics["seconds"] / 60)
    minutes = {
        name: minutes[name]
        for name in PAPER_TABLES[1].datasets
        if name in minutes
    }
    lines = [
        f"| training, measure | {' | '.join(minutes)} |",
        "| --- |" + " ---: |" * len(minutes),
    ]
    for (label, measure), cells in sorted(found.items()):
        shown = [mean_of_trials(cells.get(name, [])) for name in minutes]
        lines.append(f"| {label}, {measure} | {' | '.join(shown)} |")
    for number, row in ((1, "CAC"), (2, "CAC"), (2, "Cross-entropy")):
        table = PAPER_TABLES[number]
        theirs = [as_published(table.published(n)[row][0]) for n in minutes]
        lines.append(
            f"| published, Table {number} ({table.split_family}): {row} "
            f"| {' | '.join(theirs)} |"
        )
    spent = [
        f"{np.median(values):.0f}" if values else NOTHING
        for values in minutes.values()
    ]
    lines.append(f"| cac, median minutes a training | {' | '.join(spent)} |")
    return "\n".join(lines)


def recipes_tried_table():
    """The search of a fast recipe, every run that was tried."""
    lines = [
        "| recipe | training images | accuracy | validation loss "
        "| own score | `max_logit` | `vim` |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for name, run in _trained("search").items():
        metrics, last = run["metrics"], run["history"][-1]
        aurocs = [
            f"{metrics['scores'][score]['auroc']:.3f}"
            for score in (metrics["score"], "max_logit", "vim")
        ]
        images = metrics["counts"]["train"] * metrics["epochs"]
        # Other methods have other losses.
        is_cac = metrics["method"] == "cac"
        loss = f"{last['val_loss']:.3f}" if is_cac else NOTHING
        lines.append(
            f"| {name.removeprefix('search_').replace('_', ' ')} | {images:,} "
            f"| {metrics['accuracy']:.3f} | {loss} "
            f"| {' | '.join(aurocs)} |"
        )
    return "\n".join(lines)


def better_training_table(dataset, *scores):
    """The search of a better recipe, every run that was tried."""
    result = json.loads((RESULTS / "better_training.json").read_text())
    lines = [
        f"| try | accuracy | {' | '.join(f'`{s}`' for s in scores)} |",
        "| --- |" + " --: |" * (len(scores) + 1),
    ]
    for name, run in result["tries"].items():
        tried = {**result["base"], **run["changed"]}
        if tried["dataset"] != dataset or name.startswith("small_cross"):
            continue
        # Of several cycles, the last one.
        cells = [run["accuracy"], *(run["auroc"].get(s) for s in scores)]
        cells = " | ".join(
            f"{values[-1]:.3f}" if values else NOTHING for values in cells
        )
        name = name.removeprefix(f"{dataset}_").replace("_", " ")
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def better_training_pairs_table(*scores):
    """Tries that were made with several pairs of classes left out."""
    tries = json.loads((RESULTS / "better_training.json").read_text())["tries"]
    found = {}
    for name, run in tries.items():
        recipe, _, pair = name.rpartition("_pair_")
        if recipe.startswith("small_cross_entropy"):
            found.setdefault(recipe, {})[int(pair)] = run
    lines = [
        f"| try | accuracy | {' | '.join(f'`{s}`' for s in scores)} |",
        "| --- |" + " --: |" * (len(scores) + 1),
    ]
    for recipe, runs in found.items():
        # Of several networks, the AUROC of their mean score.
        rows = [
            [np.mean(run["accuracy"])]
            + [
                run["auroc"].get(f"{s}, mean", run["auroc"][s][-1])
                for s in scores
            ]
            for _, run in sorted(runs.items())
        ]
        cells = [
            " / ".join(f"{value:.3f}" for value in column)
            for column in zip(*rows, strict=True)
        ]
        name = recipe.removeprefix("small_").replace("_", " ")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def better_trials_table():
    """Accuracy and AUROC of what better_trials.py trained, by score."""
    found = {}
    for path in sorted((RESULTS / "better_trials").glob("*.json")):
        run = json.loads(path.read_text())
        loss = run["recipe"]["loss"]
        lengths = [w for w in ("long", "longer") if f"_{w}_" in path.stem]
        training = ", ".join([loss, *lengths])
        for tested in run["tested_on"]:
            values = {"accuracy": tested["accuracy"]}
            if loss == "cac":  # (There are no anchors otherwise.)
                values["`gamma`"] = tested["auroc"].get("gamma")
            values["`max_logit`"] = tested["auroc"].get("max_logit")
            values["fixed score"] = tested["auroc"].get(run["score"])
            for measure, value in values.items():
                cells = found.setdefault((training, measure), {})
                if value:
                    cells.setdefault(tested["dataset"], []).extend(value)
    published = PAPER_TABLES[1].published
    measured = {name for cells in found.values() for name in cells}
    names = [name for name in PAPER_TABLES[1].datasets if name in measured]
    lines = [
        f"| training, measure | {' | '.join(names)} |",
        "| --- |" + " ---: |" * len(names),
    ]
    for (training, measure), cells in found.items():
        shown = [mean_of_trials(cells.get(name, [])) for name in names]
        lines.append(f"| {training}, {measure} | {' | '.join(shown)} |")
    theirs = [as_published(published(name)["CAC"][0]) for name in names]
    lines.append(f"| published, Table 1: CAC | {' | '.join(theirs)} |")
    return "\n".join(lines)


def throughput_table(columns):
    """Training images per second beside PyTorch, in Markdown.

    Args:
        columns: by head, the ending of a result's name.
    """
    rates = [
        json.loads((RESULTS / f"training_throughput{ending}.json").read_text())[
            "variants"
        ]
        for ending in columns.values()
    ]
    lines = [
        f"| training, batch 128 | {' | '.join(columns)} |",
        "| --- |" + " --- |" * len(columns),
    ]
    for name in rates[0]:
        cells = [f"{of[name]['images_per_second']:.0f}" for of in rates]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


FUSED_OP_ROWS = (
    "fused, tf.function",
    "fused, XLA",
    "O(B N), stock, tf.function",
    "O(B N), stock, XLA",
    "inexact O(B N), XLA",
    "matrix product, stock, XLA",
    "direct differences, stock, tf.function",
    "PyTorch cdist",
    "PyTorch, the authors' formulation",
    *(
        f"{what}, {kind}, {way}"
        for what in ("bfloat16 logits", "rejection scores")
        for kind in ("fused", "stock")
        for way in ("tf.function", "XLA")
    ),
    "an empty tf.function",
    "memcpy",
)


def fused_op_table(name="fused_op"):
    """Microseconds of loss and gradient, one thread, in Markdown."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    shapes = result["shapes"]
    lines = [
        f"| µs, median (10th percentile) "
        f"| {' | '.join(s.replace('x', '×') for s in shapes)} |",
        "| --- |" + " ---: |" * len(shapes),
    ]
    for name in FUSED_OP_ROWS:
        cells = [
            "{median_us:,.0f} ({p10_us:,.0f})".format(**variants[name])
            if name in variants
            else ""
            for variants in shapes.values()
        ]
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    speed_ups = [f"{r['speed_up']:.2f}" for r in result["ratios"].values()]
    title = "**speed-up over the best stock form**"
    lines.append(f"| {title} | {' | '.join(speed_ups)} |")
    over_inexact = [
        f"{r['speed_up_over_inexact']:.2f}"
        for r in result["ratios"].values()
        if "speed_up_over_inexact" in r
    ]
    if over_inexact:
        title = "**speed-up over the inexact form**"
        lines.append(f"| {title} | {' | '.join(over_inexact)} |")
    return "\n".join(lines)


def fused_core_table(name="fused_op"):
    """Microseconds of the bare C++ core beside a memcpy, in Markdown."""
    core = json.loads((RESULTS / f"{name}.json").read_text())["core"]
    lines = [
        f"| µs, median | {' | '.join(s.replace('x', '×') for s in core)} |",
        "| --- |" + " ---: |" * len(core),
    ]
    for threads, text in (
        ("threads_1", "1 thread"),
        ("threads_2", "2 threads"),
    ):
        cells = [
            f"{values[threads]['loss_us']:,.0f} + "
            f"{values[threads]['gradient_us']:,.0f}"
            for values in core.values()
        ]
        lines.append(f"| loss + gradient, {text} | {' | '.join(cells)} |")
        if all("scores_us" in values[threads] for values in core.values()):
            cells = [f"{v[threads]['scores_us']:,.0f}" for v in core.values()]
            lines.append(f"| rejection scores, {text} | {' | '.join(cells)} |")
    cells = [f"{v['threads_1']['memcpy_us']:,.1f}" for v in core.values()]
    lines.append(f"| memcpy, in cache | {' | '.join(cells)} |")
    return "\n".join(lines)


def fused_op_gpu_table():
    """Bandwidth of the CUDA kernels beside a copy, in Markdown."""
    result = json.loads((RESULTS / "fused_op_gpu.json").read_text())
    shapes = result["bandwidth"]
    heads = (f"{int(s.split('x')[0]):,}×{s.split('x')[1]}" for s in shapes)
    lines = [
        f"| rows × classes | {' | '.join(heads)} |",
        "| --- |" + " ---: |" * len(shapes),
    ]
    for name, text in (
        ("loss_us", "loss, µs"),
        ("loss_and_gradient_us", "loss + gradient, µs"),
        ("loss_gb_per_s", "loss, GB/s"),
        ("both_gb_per_s", "loss + gradient, GB/s"),
        ("copy_gb_per_s", "copy, GB/s"),
    ):
        cells = [f"{rates[name]:,.0f}" for rates in shapes.values()]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    ratios = [f"{rates['both_to_copy']:.2f}" for rates in shapes.values()]
    lines.append(
        f"| **loss + gradient, compared with a copy** | {' | '.join(ratios)} |"
    )
    return "\n".join(lines)


def serving_table():
    """What the rejection head costs a server, in Markdown."""
    result = json.loads((RESULTS / "serving.json").read_text())
    lines = [
        "| one core | bare, p50 (p99), ms | served | more at p50 | at p99 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for part in ("head", "files"):
        for name, row in result[part].items():
            cells = [
                "{p50:.2f} ({p99:.2f})".format(**row[kind])
                for kind in ("bare_ms", "served_ms")
            ]
            more = "{p50:+.1f} % | {p99:+.1f} %".format(**row["more_percent"])
            lines.append(f"| {name} | {' | '.join(cells)} | {more} |")
    return "\n".join(lines)


def edge_formats_table():
    """Files for devices beside the SavedModel, digits, in Markdown."""
    path = RESULTS / "edge_formats.json"
    trials = list(json.loads(path.read_text())["trials"].values())
    lines = [
        "| format | kilobytes | AUROC of the trials | mean | largest "
        "difference of gamma | changed decisions |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for name in ("SavedModel", "LiteRT", "ONNX", "LiteRT, int8"):
        rows = [trial[name] for trial in trials]
        aurocs = [row["auroc"] for row in rows]
        difference = max(row["largest_difference"]["gamma"] for row in rows)
        other = sum(row["other_decisions"] for row in rows)
        images = sum(row["images"] for row in rows)
        lines.append(
            f"| {name} | {rows[0]['bytes'] / 1000:,.0f} "
            f"| {', '.join(f'{value:.4f}' for value in aurocs)} "
            f"| {sum(aurocs) / len(aurocs):.4f} | {difference:.1g} "
            f"| {other} of {images:,} |"
        )
    return "\n".join(lines)


def _released_scores(kind="measured"):
    """By training and score: the trials' values by column; and the columns."""
    runs = json.loads((RESULTS / "released_scores.json").read_text())["runs"]
    values = {}
    for run in runs.values():
        for column, found in run["columns"].items():
            for name, value in found.get(kind, {}).items():
                row = values.setdefault((run["training"], name), {})
                row.setdefault(column, []).append(value)
    columns = dict.fromkeys(c for run in runs.values() for c in run["columns"])
    return values, tuple(columns)


def released_scores_table():
    """AUROC of every score on the released weights, in Markdown.

    Means over the trials, with their standard deviation.
    """
    values, columns = _released_scores()
    lines = [
        f"| training, score | {' | '.join(columns)} |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for (training, name), row in sorted(values.items(), key=_by_training):
        cells = [mean_of_trials(row.get(column)) for column in columns]
        name = _NO_SCORES.get(name, name)
        lines.append(f"| {training}, {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def released_measures_table():
    """FPR at 95 % TPR, and AUPR, on the released weights, in Markdown.

    Means over the trials, one view.
    """
    kinds = ("fpr_at_95_tpr", "aupr_known", "aupr_unknown")
    by_kind = {kind: _released_scores(kind)[0] for kind in kinds}
    datasets = ("mnist", "cifar10", "cifar+10", "cifar+50")
    lines = [
        f"| training, score | {' | '.join(datasets)} |",
        "| --- |" + " ---: |" * len(datasets),
    ]
    for training, name in sorted(by_kind[kinds[0]]):
        cells = []
        for dataset in datasets:
            values = [
                by_kind[kind][training, name].get(dataset) for kind in kinds
            ]
            cells.append(
                " / ".join(f"{np.mean(found):.3f}" for found in values)
                if all(values)
                else NOTHING
            )
        lines.append(f"| {training}, {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


# Of the paper's Table 2, and the bins that are shown.
_OVERLAP_ROWS = {"cac": "CAC", "cross_entropy": "Cross-entropy"}
_OVERLAP_BINS = (10, 20, 50, 100, 200, 500)


def overlap_table():
    """Table 2 by the number of bins, beside the published one, in Markdown.

    The last row has the mean of how far the means of the trials lie from the
    published ones.
    """
    runs = json.loads((RESULTS / "released_scores.json").read_text())["runs"]
    found = {}  # (training, data set) -> bins -> values of the trials
    for run in runs.values():
        for column, measured in run["columns"].items():
            by_bins = found.setdefault((run["training"], column), {})
            for bins, value in measured["bhattacharyya"].items():
                by_bins.setdefault(int(bins), []).append(value)
    references = published("bhattacharyya")
    lines = [
        "| training, test set | published | "
        + " | ".join(f"{bins} bins" for bins in _OVERLAP_BINS)
        + " |",
        "| --- |" + " ---: |" * (len(_OVERLAP_BINS) + 1),
    ]
    away = {bins: [] for bins in _OVERLAP_BINS}
    for training, name in _OVERLAP_ROWS.items():
        for dataset, (reference, _) in references[name].items():
            by_bins = found.get((training, dataset))
            if by_bins is None:
                continue
            cells = [mean_of_trials(by_bins[bins]) for bins in _OVERLAP_BINS]
            for bins in _OVERLAP_BINS:
                away[bins].append(abs(np.mean(by_bins[bins]) - reference))
            lines.append(
                f"| {training}, {dataset} | {reference:.3f} "
                f"| {' | '.join(cells)} |"
            )
    cells = [f"{np.mean(away[bins]):.3f}" for bins in _OVERLAP_BINS]
    lines.append(f"| mean difference | | {' | '.join(cells)} |")
    return "\n".join(lines)


# What the table has besides AUROC, and what it says of it.
_NO_SCORES = {
    "accuracy": "(accuracy)",
    "accuracy, gamma": "(accuracy, gamma)",
    "true_positive_rate": "(known images accepted)",
}


def _by_training(item):
    (training, name), _ = item
    return training, name not in _NO_SCORES, name


def predict_memory_table():
    """Memory and rate of cac-predict by the kind of file, in Markdown."""
    result = json.loads((RESULTS / "predict_memory.json").read_text())
    lines = [
        "| file | GB for 100,000 rows | for 1,000,000 rows | rows/s |",
        "| --- | ---: | ---: | ---: |",
    ]
    for kind, found in result["kinds"].items():
        few, many = (one / 1e9 for one in found["peak bytes"].values())
        rate = found["rows per second"]
        lines.append(f"| .{kind} | {few:.2f} | {many:.2f} | {rate:,.0f} |")
    return "\n".join(lines)


def predict_speed_table():
    """Rates of cac-predict beside those of a bare loop, in Markdown."""
    result = json.loads((RESULTS / "predict_speed.json").read_text())
    rows = [("PNG, 32×32", *item) for item in result["networks"].items()]
    for network, kinds in result["rows"].items():
        rows += [(f".{kind}", network, found) for kind, found in kinds.items()]
    lines = [
        "| inputs | network | bare loop, inputs/s | cac-predict | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for inputs, network, found in rows:
        rates = found["inputs per second"].values()
        cells = [f"{rate:,.0f}" for rate in rates]
        cells.append(f"{found['ratio']:.2f}")
        lines.append(f"| {inputs} | {network} | {' | '.join(cells)} |")
    return "\n".join(lines)


def large_data_table():
    """Starting to train on many images, in Markdown."""
    result = json.loads((RESULTS / "large_data.json").read_text())
    lines = [
        "| | start | s to load | s to the end of the first step | GB before "
        "the step | GB with it | images/s | by Pillow from memory |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, starts in result["kinds"].items():
        for which, found in starts.items():
            lines.append(
                f"| {found['images']:,} images, {kind} | {which} "
                f"| {found['seconds to load']:.1f} "
                f"| {found['seconds to the first step']:.1f} "
                f"| {found['peak bytes before the step'] / 1e9:.2f} "
                f"| {found['peak bytes'] / 1e9:.2f} "
                f"| {found['images per second']:,.0f} "
                f"| {found['images per second by Pillow from memory']:,.0f} |"
            )
    return "\n".join(lines)


def _milliseconds(seconds):
    milliseconds = 1e3 * seconds
    digits = 0 if milliseconds >= 100 else 2
    return f"{milliseconds:,.{digits}f} ms"


def growth_table():
    """How time grows, in Markdown."""
    result = json.loads((RESULTS / "growth.json").read_text())
    lines = [
        "| what grows | operation | smallest | largest | exponent "
        "| of the mathematics |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for what, study in result["studies"].items():
        for name, times in study["seconds"].items():
            lines.append(
                f"| {what}, {study['sizes'][0]:,} to {study['sizes'][-1]:,} "
                f"| {name} | {_milliseconds(times[0])} "
                f"| {_milliseconds(times[-1])} "
                f"| {study['exponent'][name]:.2f} "
                f"| {study['exponent of the mathematics'][name]:.2f} |"
            )
    return "\n".join(lines)


def beside_pytorch_ood_table():
    """Fitting and scoring beside pytorch-ood, in Markdown."""
    result = json.loads((RESULTS / "beside_pytorch_ood.json").read_text())
    lines = [
        "| score | fit, ms (pytorch-ood) | ratio | score, ms (pytorch-ood) "
        "| ratio | agreement |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in result["scores"].items():
        cells = []
        for what in ("fit", "score"):
            if f"{what}, ratio" not in row:
                cells += ["", ""]
                continue
            ours, theirs = (
                1000 * row[f"{what}, {whose} (s)"]
                for whose in ("ours", "pytorch-ood")
            )
            cells += [
                f"{ours:,.1f} ({theirs:,.1f})",
                f"{row[f'{what}, ratio']:.2f}",
            ]
        agreement = (
            f"{row['agreement']:.0e}"
            if "agreement" in row
            else f"ranks: {row['rank correlation']:.2f}"
        )
        lines.append(f"| {name} | {' | '.join(cells)} | {agreement} |")
    return "\n".join(lines)


def near_far_table():
    """AUROC, near and far unknown images, in Markdown."""
    runs = json.loads((RESULTS / "near_far.json").read_text())["runs"]
    lines = [
        "| weights, unknown images | gamma | max_logit | max_softmax | energy "
        "| vim | knn, k = 1, bank of 10,000 | accepted |",
        "| --- |" + " ---: |" * 7,
    ]
    for key, run in runs.items():
        for name, found in run["unknown"].items():
            cells = [
                f"{found['auroc'][score]:.3f}"
                for score in (
                    "gamma",
                    "max_logit",
                    "max_softmax",
                    "energy",
                    "vim",
                    "knn",
                )
            ]
            accepted = f"{found['accepted at the threshold']:.0%}".replace(
                "%", " %"
            )
            lines.append(
                f"| {key.replace('_', '-')}, {name} | {' | '.join(cells)} "
                f"| {accepted} |"
            )
    return "\n".join(lines)


def frozen_features_table():
    """Accuracy and AUROC on a frozen pretrained network, in Markdown."""
    result = json.loads((RESULTS / "frozen_features.json").read_text())
    scores = (
        "gamma",
        "max_logit",
        "relative_mahalanobis",
        "knn",
        "nnguide",
        "vim",
    )
    lines = [
        f"| data (trials), head | accuracy | {' | '.join(scores)} "
        "| accepted, vim |",
        "| --- |" + " ---: |" * (len(scores) + 2),
    ]
    by_data = collections.defaultdict(list)
    for key, run in sorted(result["runs"].items()):
        by_data[key.split(" trial ")[0]].append(run)
    for data, runs in by_data.items():
        for head in runs[0]["heads"]:
            own = [run["heads"][head] for run in runs]
            cells = [
                f"{np.mean(values):.3f}"
                for values in (
                    [one["accuracy"] for one in own],
                    *([one["auroc"][score] for one in own] for score in scores),
                )
            ]
            accepted = np.mean([one["unknown accepted"]["vim"] for one in own])
            lines.append(
                f"| {data} ({len(runs)}), {head.replace('_', '-')} "
                f"| {' | '.join(cells)} | {100 * accepted:.0f} % |"
            )
    return "\n".join(lines)


def banking77_table():
    """AUROC and macro-F1 by share of known classes, and what was published."""
    result = json.loads((RESULTS / "banking77.json").read_text())
    shares = result["shares"]
    titles = [
        f"{float(share):.0%} known".replace("%", " %") for share in shares
    ]
    lines = [
        f"| training, threshold | {' | '.join(titles)} |",
        "| --- |" + " ---: |" * len(shares),
    ]
    for name in next(iter(shares.values())):
        cells = []
        for own in shares.values():
            f1, auroc = own[name]["macro_f1"], own[name]["auroc"]
            cells.append(
                f"{f1['mean']:.3f} ± {f1['std']:.3f} ({auroc['mean']:.3f})"
            )
        shown = name.replace("_", "-").replace("%", " %")
        if "," not in name:
            shown += ", by left-out classes"
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    for name, values in result["published"].items():
        cells = [f"{value:.3f}" for value in values]
        lines.append(f"| {name}, published | {' | '.join(cells)} |")
    return "\n".join(lines)


_KINDS_OF_HEADS = {
    "hidden": "hidden layer",
    "linear": "linear head",
    "from scratch": "from scratch",
}
_FAMILIES = {
    "banking77": "sentences",
    "cifar": "CIFAR",
    "tinyimagenet": "TinyImageNet",
    "digits": "digits",
    "mnist": "MNIST",
}
_RULES_SHOWN = {
    **{
        name: f"`{name}`"
        for name in (
            *("gamma", "max_logit", "relative_mahalanobis", "knn", "nnguide"),
            "vim",
        )
    },
    "knn of the embedding": "`knn`, embedding",
    "vim of the embedding": "`vim`, embedding",
    "composites of two images": "composites",
}


def score_evidence_table():
    """AUROC of scores and of rules that choose one, in Markdown."""
    result = json.loads((RESULTS / "score_evidence.json").read_text())
    lines = [
        "| trained | data (networks) | "
        + " | ".join(_RULES_SHOWN.values())
        + " |",
        "| --- | --- |" + " ---: |" * len(_RULES_SHOWN),
    ]
    for kind, shown in _KINDS_OF_HEADS.items():
        for loss in ("cac", "cross_entropy"):
            rules = result["compared"][f"{loss}, {kind}"]
            for family, name in _FAMILIES.items():
                if family not in rules["gamma"]:
                    continue
                found = {
                    rule: rules.get(rule, {}).get(family)
                    for rule in _RULES_SHOWN
                }
                cells = [
                    f"{one['mean']:.3f}" if one else NOTHING
                    for one in found.values()
                ]
                best = max(cell for cell in cells if cell != NOTHING)
                cells = [f"**{c}**" if c == best else c for c in cells]
                lines.append(
                    f"| {shown}, {loss.replace('_', '-')} | {name} "
                    f"({found['gamma']['networks']}) | {' | '.join(cells)} |"
                )
    return "\n".join(lines)


def few_examples_table():
    """AUROC, macro-F1 and accepted known inputs of few examples."""
    result = json.loads((RESULTS / "few_examples.json").read_text())
    found = collections.defaultdict(dict)
    for name, data in result["data"].items():
        for key, measures in data["mean and standard deviation"].items():
            head, count, score = key.split(", ")
            found[name, head, count][score] = measures
    (scores, *_) = found.values()
    lines = [
        f"| data, head, examples | {' | '.join(scores)} |",
        "| --- |" + " ---: |" * len(scores),
    ]
    for name, head, count in sorted(
        found, key=lambda key: (*key[:2], int(key[2].split()[0]))
    ):
        cells = []
        for measures in found[name, head, count].values():
            auroc, macro_f1, (accepted, spread) = (
                measures[one] for one in ("auroc", "macro_f1", "known accepted")
            )
            cells.append(
                f"{auroc[0]:.3f} / {macro_f1[0]:.3f} / "
                f"{100 * accepted:.1f} ± {100 * spread:.1f} %"
            )
        number = count.removesuffix(" a class")
        of = f"{name.upper()}, {head.replace('_', '-')}, {number} per class"
        lines.append(f"| {of} | {' | '.join(cells)} |")
    return "\n".join(lines)


def monitoring_table():
    """Rates of false alarms, and delays of true ones, in Markdown."""
    result = json.loads((RESULTS / "monitoring.json").read_text())
    bounds, rows = {}, collections.defaultdict(list)
    for key, one in result["delay"].items():
        size, share = re.match(r"(\d+) .*, (\d+ ?%) ", key).groups()
        delays = [math.inf if d is None else d for d in one["delays"]]
        told = sum(map(math.isfinite, delays))
        median = np.median(delays) if delays else math.inf
        said = f"{median:,.0f}" if math.isfinite(median) else NOTHING
        rows[size].append(f"{said} ({told}/{len(delays)})")
        bounds[share] = f"{one['shortest']:,}"
    lines = [
        "| calibration examples | naive | monitor | "
        + " | ".join(f"{share} unknown" for share in bounds)
        + " |",
        "| ---: |" + " ---: |" * (2 + len(bounds)),
    ]
    for size, cells in rows.items():
        one = result["false alarms"][f"{size} calibration rows"]
        rates = [
            f"{100 * one[kind] / one['runs']:.1f} %"
            for kind in ("naive", "monitor")
        ]
        lines.append(f"| {' | '.join([size, *rates, *cells])} |")
    cells = ["no test is faster", "", "", *bounds.values()]
    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def enrolling_table():
    """Accuracies, and decisions, when all classes are enrolled."""
    result = json.loads((RESULTS / "enrolling.json").read_text())
    found, columns = collections.defaultdict(dict), []
    for name, data in result["data"].items():
        keys = [key.split(", ", 2) for key in data["mean"]]
        last = max(int(classes.split()[0]) for _, classes, _ in keys)
        for count, classes, way in keys:
            if classes != f"{last} classes":
                continue
            column = f"{name}, {count.split()[0]}"
            if column not in columns:
                columns.append(column)
            measures = data["mean"][f"{count}, {classes}, {way}"]
            found[way][column] = " / ".join(
                f"{measures[one]:.3f}"
                for one in (
                    "known accuracy",
                    "enrolled accuracy",
                    "harmonic mean",
                )
            )
    lines = [
        f"| enrolled by, examples of each | {' | '.join(columns)} |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for way, cells in found.items():
        row = " | ".join(cells.get(column, NOTHING) for column in columns)
        way = way.replace("trained again", "retrained")
        lines.append(f"| {way.replace(' of the ', ' on the ')} | {row} |")
    return "\n".join(lines)


_DATA_OF_GROUPS = {"banking77": "BANKING77", "cifar100": "CIFAR100"}


def grouping_table():
    """Groups of what was rejected, and what was published, in Markdown."""
    result = json.loads((RESULTS / "grouping.json").read_text())
    measures = ("grouped", "nmi", "ari", "accuracy")
    lines = [
        "| what was rejected | groups | in a group | NMI | ARI | accuracy |",
        "| --- |" + " ---: |" * 5,
    ]
    for name, shown in _DATA_OF_GROUPS.items():
        for way, found in result["data"][name]["test"]["mean"].items():
            if way == "seconds":
                continue
            cells = [
                f"{found['unknown'][one]:.3f} / {found['all'][one]:.3f}"
                for one in measures
            ]
            lines.append(
                f"| {shown}, {way} | {found['groups']:.1f} | "
                f"{' | '.join(cells)} |"
            )
    for way, values in result["published"].items():
        cells = [f"{value:.3f}" for value in values]
        lines.append(
            f"| all of BANKING77, {way} | 77 | 1 | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def grouping_settings_table():
    """By leaving known classes out, in Markdown."""
    result = json.loads((RESULTS / "grouping.json").read_text())
    shown = [_DATA_OF_GROUPS[name] for name in result["data"]]
    lines = [
        f"| NMI / ARI / accuracy | {' | '.join(shown)} |",
        "| --- |" + " ---: |" * len(shown),
    ]
    found = [of["left out"]["mean"] for of in result["data"].values()]
    for setting in found[0]:
        cells = [
            " / ".join(
                f"{of[setting]['unknown'][one]:.3f}"
                for one in ("nmi", "ari", "accuracy")
            )
            for of in found
        ]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines)


def digits_scores_table():
    """Mean AUROC (and the trials') of every score on digits, in Markdown."""
    result = json.loads((RESULTS / "digits_scores.json").read_text())
    mean, runs = result["mean"], result["runs"]
    methods = list(mean)
    lines = [
        "| mean AUROC (trials 0 to 4) | " + " | ".join(methods) + " |",
        "| --- |" + " --- |" * len(methods),
    ]
    for score in sorted(mean["cac"], key=lambda s: -mean["cac"][s]["auroc"]):
        cells = []
        for method in methods:
            trials = ", ".join(
                f"{run['scores'][score]['auroc']:.3f}" for run in runs[method]
            )
            cells.append(f"{mean[method][score]['auroc']:.3f} ({trials})")
        lines.append(f"| {score} | {' | '.join(cells)} |")
    return "\n".join(lines)


def serving_scores_table():
    """What each score costs a server, in Markdown."""
    result = json.loads((RESULTS / "serving_scores.json").read_text())
    lines = [
        "| N = 10, batch 32, one core | more at p50 | at p99 |",
        "| --- | ---: | ---: |",
    ]
    for name, row in result["scores"].items():
        more = row["more_percent"]
        lines.append(
            f"| {name} | {more['p50']:+.1f} % | {more['p99']:+.1f} % |"
        )
    return "\n".join(lines)


def far_away_table():
    """The share of inputs far from everything known that is rejected."""
    result = json.loads((RESULTS / "far_away.json").read_text())
    radii = [f"{radius:,}" for radius in result["radii"]]
    lines = [
        f"| score | {' | '.join(radii)} |",
        "| --- |" + " ---: |" * len(radii),
    ]
    for name, shares in result["rejected"].items():
        cells = [f"{100 * share:.0f} %" for share in shares]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def table_1_digits_table():
    """The methods of Table 1 on the digits, by their own scores."""
    runs = {name: [] for name in table_1_methods.RUNS}
    for path in sorted((RESULTS / "table_1_digits").glob("*.json")):
        name = path.stem.rsplit("_", 1)[0]
        runs[name].append(json.loads(path.read_text()))
    lines = [
        "| method | score | AUROC (trials) | accuracy | seconds | MiB |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for name in filter(runs.get, runs):
        for score in runs[name][0]["scores"]:
            own = [run["scores"][score] for run in runs[name]]
            auroc = mean_of_trials([one["auroc"] for one in own])
            accuracy = np.mean([one["accuracy"] for one in own])
            seconds, memory = (
                np.median([run[key] for run in runs[name]])
                for key in ("cpu_seconds", "peak_memory_mib")
            )
            longest = max(run["seconds"] for run in runs[name])
            lines.append(
                f"| `{name}` | `{score}` | {auroc} | {accuracy:.3f} "
                f"| {seconds:.0f} ({longest:.0f}) | {memory:.0f} |"
            )
    return "\n".join(lines)


TABLES = {
    "frozen_features": frozen_features_table,
    "beside_pytorch_ood": beside_pytorch_ood_table,
    "banking77": banking77_table,
    "enrolling": enrolling_table,
    "few_examples": few_examples_table,
    "grouping": grouping_table,
    "grouping_settings": grouping_settings_table,
    "monitoring": monitoring_table,
    "near_far": near_far_table,
    "digits": digits_table,
    "digits_scores": digits_scores_table,
    "edge_formats": edge_formats_table,
    "far_away": far_away_table,
    "fused_core": fused_core_table,
    "fused_core_without_avx512": functools.partial(
        fused_core_table, "fused_op_without_avx512"
    ),
    "fused_op": fused_op_table,
    "fused_op_gpu": fused_op_gpu_table,
    "fused_op_without_avx512": functools.partial(
        fused_op_table, "fused_op_without_avx512"
    ),
    "readme": readme_table,
    "overlap": overlap_table,
    "better_training": functools.partial(
        better_training_table,
        "cifar10",
        *("gamma", "max_logit", "max_logit, flip", "nnguide, flip", "vim"),
    ),
    "better_training_mnist": functools.partial(
        better_training_table,
        "mnist",
        *("gamma", "max_logit", "nnguide", "knn", "vim"),
    ),
    "better_training_pairs": functools.partial(
        better_training_pairs_table, "max_logit, flip", "nnguide, flip"
    ),
    "better_trials": better_trials_table,
    "recipes_tried": recipes_tried_table,
    "trained_here": functools.partial(trained_here_table, "fast"),
    "trained_here_paper": functools.partial(trained_here_table, "paper"),
    "predict_memory": predict_memory_table,
    "predict_speed": predict_speed_table,
    "large_data": large_data_table,
    "growth": growth_table,
    "released_measures": released_measures_table,
    "released_scores": released_scores_table,
    "released_weights": released_weights_table,
    "score_evidence": score_evidence_table,
    "serving": serving_table,
    "serving_scores": serving_scores_table,
    "table_1_digits": table_1_digits_table,
    "throughput": functools.partial(throughput_table, {"images/s": ""}),
    "throughput_without_bfloat16": functools.partial(
        throughput_table,
        {
            "AVX-512 alone": "_without_bfloat16",
            "without AVX-512": "_without_avx512",
        },
    ),
    "vehicles_animals": vehicles_animals_table,
}
# Where a table's numbers are, as patterns in `results/`, if not in a file of
# its name; and what makes them, if not the script of that name.
_SOURCES = {
    "better_training_mnist": (
        ["better_training.json"],
        "benchmarks/better_training.py",
    ),
    "better_training_pairs": (
        ["better_training.json"],
        "benchmarks/better_training.py",
    ),
    "better_trials": (["better_trials/*.json"], "benchmarks/better_trials.py"),
    "far_away": (["far_away.json"], "python -m tests.scores.far_away_test"),
    "fused_core": (["fused_op.json"], "benchmarks/fused_op.py"),
    "fused_core_without_avx512": (
        ["fused_op_without_avx512.json"],
        "benchmarks/fused_op.py",
    ),
    "fused_op_gpu": (["fused_op_gpu.json"], "benchmarks/fused_op_device.py"),
    "fused_op_without_avx512": (
        ["fused_op_without_avx512.json"],
        "benchmarks/fused_op.py",
    ),
    "grouping_settings": (["grouping.json"], "benchmarks/grouping.py"),
    "overlap": (["released_scores.json"], "benchmarks/released_scores.py"),
    "recipes_tried": (
        _trained_files("search"),
        "benchmarks/training_queue.py",
    ),
    "readme": (
        ["released_scores.json", "frozen_features.json", "few_examples.json"],
        "benchmarks/released_scores.py, frozen_features.py, few_examples.py",
    ),
    "released_measures": (
        ["released_scores.json"],
        "benchmarks/released_scores.py",
    ),
    "released_weights": (
        ["released_scores.json", "authors_network.json"],
        "benchmarks/released_scores.py, authors_network.py",
    ),
    "table_1_digits": (
        ["table_1_digits/*.json"],
        "benchmarks/table_1_methods.py",
    ),
    "throughput": (
        ["training_throughput.json"],
        "benchmarks/training_throughput.py",
    ),
    "throughput_without_bfloat16": (
        ["training_throughput_without_*.json"],
        "benchmarks/training_throughput.py",
    ),
    "trained_here": (
        _trained_files("fast"),
        "benchmarks/training_queue.py, device_training.py",
    ),
    "trained_here_paper": (
        _trained_files("paper"),
        "benchmarks/training_queue.py, device_training.py",
    ),
    "vehicles_animals": (
        ["vehicles_animals_*.json"],
        "benchmarks/vehicles_animals.py",
    ),
}


def _environments(content):
    """What every part of a result was made with."""
    if isinstance(content, dict):
        if "commit" in content and "hardware" in content:
            yield content
        else:
            for part in content.values():
                yield from _environments(part)
    elif isinstance(content, list):
        for part in content:
            yield from _environments(part)


def _machine(hardware):
    device = hardware["accelerator"]
    if device:
        return device.removesuffix(" 80GB HBM3")
    name = hardware["cpu"].replace("(R)", "").replace(" Processor", "")
    return f"{hardware['cpu_count']} cores of {name.partition(' @')[0]}"


def how_measured(name):
    """One line: what made a table, when, where, and with which versions."""
    patterns, made_by = _SOURCES.get(
        name, ([f"{name}.json"], f"benchmarks/{name}.py")
    )
    found = [
        environment
        for pattern in patterns
        for path in sorted(RESULTS.glob(pattern))
        for environment in _environments(json.loads(path.read_text()))
    ]
    dates = sorted({one["date"] for one in found})
    machines = sorted({_machine(one["hardware"]) for one in found})
    versions = sorted(
        {
            f"{package} {one['versions'][package]}"
            for one in found
            for package in ("jax", "keras", "tensorflow")
            if package in one["versions"]
        }
    )
    period = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return (
        f"*How measured: `{made_by}`, {period}; {', '.join(machines)}; "
        f"{', '.join(versions)}.*"
    )


_MARKED_TABLE = re.compile(
    r"(<!-- table: (\w+) -->\n)(?:\|.*\n)*(?:\n\*How measured: .*\n)?"
)


def pages():
    """The Markdown files that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def names_in(text):
    """Names of the tables that a page shows."""
    return [match[2] for match in _MARKED_TABLE.finditer(text)]


def with_current_tables(text):
    """A page with every marked table made anew from the results."""
    return _MARKED_TABLE.sub(
        lambda match: (
            f"{match[1]}{TABLES[match[2]]()}\n\n{how_measured(match[2])}\n"
        ),
        text,
    )


def main():
    """Brings the tables of all pages up to date."""
    for page in pages():
        text = page.read_text("utf-8")
        current = with_current_tables(text)
        if current != text:
            page.write_text(current, "utf-8")
            print(f"updated {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
