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


if __name__ == "__main__":
    print(digits_table(), vehicles_animals_table(), sep="\n\n")
