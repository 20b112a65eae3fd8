# SPDX-License-Identifier: Apache-2.0
"""The README's tables, from the committed results.

python benchmarks/tables.py
"""

import json
import pathlib

RESULTS = pathlib.Path(__file__).parent / "results"


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
        cells.append(f"**{mean['auroc']:.3f}** / {mean['accuracy']:.3f}")
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(lines)


def vehicles_animals_table():
    """Every committed run on the photographs, in Markdown."""
    lines = [
        "| seed | precision | AUROC | accuracy | OSCR |",
        "| --- | --- | --- | --- | --- |",
    ]
    for path in sorted(RESULTS.glob("vehicles_animals_seed*.json")):
        result = json.loads(path.read_text())
        settings, metrics = result["settings"], result["metrics"]
        lines.append(
            f"| {settings['seed']} | {settings['precision']} "
            f"| {metrics['auroc']:.3f} | {metrics['accuracy']:.3f} "
            f"| {metrics['oscr']:.3f} |"
        )
    return "\n".join(lines)


def released_weights_table():
    """The authors' released weights: ours beside their own code's, Markdown."""
    result = json.loads((RESULTS / "released_weights.json").read_text())
    names = {
        "accuracy": "accuracy",
        "gamma_class_means": "gamma, class means",
        "gamma_anchors": "gamma, anchors",
        "min_distance_class_means": "min d, class means",
        "max_logit": "−max logit",
    }
    lines = [
        f"| trial 0 | {' | '.join(names.values())} |",
        "| --- |" + " --- |" * len(names),
    ]
    for dataset, values in result["datasets"].items():
        cells = [
            f"{values['measured'][name]:.4f} ({values['reference'][name]:.4f})"
            for name in names
        ]
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return "\n".join(lines)


def benchmark_runs_table():
    """The benchmark's runs that were made so far, in Markdown."""
    lines = [
        "| trial 0 of `neal` | epochs | AUROC | accuracy | OSCR |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in ("mnist_trial0", "tinyimagenet_trial0"):
        result = json.loads((RESULTS / f"{name}.json").read_text())
        metrics = result["metrics"]
        lines.append(
            f"| {metrics['dataset']} | {metrics['epochs']} "
            f"| {metrics['auroc']:.3f} | {metrics['accuracy']:.4f} "
            f"| {metrics['oscr']:.3f} |"
        )
    result = json.loads((RESULTS / "cifar10_trial0_curve.json").read_text())
    history = result["history"]
    lines.append(
        f"| cifar10, on its way | {len(history)} of 200 "
        f"| {history[-1]['test_auroc']:.3f} "
        f"| {history[-1]['test_accuracy']:.4f} | – |"
    )
    return "\n".join(lines)


def throughput_table():
    """Training images per second beside PyTorch, in Markdown."""
    result = json.loads((RESULTS / "training_throughput.json").read_text())
    lines = ["| training, batch 128 | images/s |", "| --- | --- |"]
    lines += [
        f"| {name} | {rate['images_per_second']:.0f} |"
        for name, rate in result["variants"].items()
    ]
    return "\n".join(lines)


FUSED_OP_ROWS = (
    "fused, tf.function",
    "fused, XLA",
    "O(B N), stock, tf.function",
    "O(B N), stock, XLA",
    "matrix product, stock, XLA",
    "direct differences, stock, tf.function",
    "PyTorch cdist",
    "PyTorch, the authors' formulation",
    "an empty tf.function",
    "memcpy",
)


def fused_op_table():
    """Microseconds of loss and gradient, one thread, in Markdown."""
    result = json.loads((RESULTS / "fused_op.json").read_text())
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
        lines.append(f"| {name} | {' | '.join(cells)} |")
    speed_ups = [f"{r['speed_up']:.2f}" for r in result["ratios"].values()]
    lines.append(f"| **fused to best stock form** | {' | '.join(speed_ups)} |")
    return "\n".join(lines)


def fused_core_table():
    """Microseconds of the bare C++ core beside a memcpy, in Markdown."""
    core = json.loads((RESULTS / "fused_op.json").read_text())["core"]
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
    cells = [f"{v['threads_1']['memcpy_us']:,.1f}" for v in core.values()]
    lines.append(f"| memcpy, in cache | {' | '.join(cells)} |")
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
        "difference of gamma | other decisions |",
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


def released_scores_table():
    """AUROC of every score on the released weights, in Markdown."""
    result = json.loads((RESULTS / "released_scores.json").read_text())
    columns = result["columns"]
    lines = [
        f"| trial 0 | {' | '.join(columns)} |",
        "| --- |" + " ---: |" * len(columns),
    ]
    names = list(next(iter(columns.values()))["measured"])
    for name in names:
        values = [column["measured"][name] for column in columns.values()]
        best = [
            name != "accuracy"
            and value
            == max(v for k, v in column["measured"].items() if k != "accuracy")
            for value, column in zip(values, columns.values(), strict=True)
        ]
        cells = [
            f"**{value:.4f}**" if is_best else f"{value:.4f}"
            for value, is_best in zip(values, best, strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
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
            cells.append(f"**{mean[method][score]['auroc']:.3f}** ({trials})")
        lines.append(f"| {score} | {' | '.join(cells)} |")
    cells = [
        ", ".join(f"{r['scores'][r['chosen']]['auroc']:.3f}" for r in own)
        for own in runs.values()
    ]
    lines.append(f"| what `--score=auto` chose | {' | '.join(cells)} |")
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


if __name__ == "__main__":
    print(
        digits_table(),
        vehicles_animals_table(),
        released_weights_table(),
        benchmark_runs_table(),
        throughput_table(),
        fused_op_table(),
        fused_core_table(),
        serving_table(),
        edge_formats_table(),
        released_scores_table(),
        digits_scores_table(),
        serving_scores_table(),
        sep="\n\n",
    )
