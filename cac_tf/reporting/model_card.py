# SPDX-License-Identifier: Apache-2.0
"""The model card of a run: what a stranger must know to use its model."""

from collections.abc import Mapping
from typing import Any

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.plain_text import for_markdown
from cac_tf.reporting.verdict import verdict

_LOADING = """```python
import cac_tf

model = cac_tf.load_model("model.keras")
prediction = model.predict_open_set({inputs})  # {raw}
prediction.label  # class names, or "unknown"
```

On the command line, `cac-predict` takes this folder as its model."""
_LICENSE = (
    "cac_tf, which trained the model, is licensed under the Apache License "
    "2.0. That does not determine who may use the model: its training data "
    "have their own licenses."
)


def write_model_card(
    path: Path, measures: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    """Writes `MODEL_CARD.md`.

    Args:
        path: of the Markdown file.
        measures: as `metrics.json` holds them.
        config: the run's `config.json`.
    """
    atomic_files.write_text(path, model_card(measures, config))


def model_card(measures, config):
    """The text of a model card, in Markdown."""
    settings, data = config["settings"], config["data"]
    sections = [
        ("What it does", _purpose(measures, settings)),
        ("Numbers", _numbers(measures)),
        ("Data", _data(data, settings["data"], measures)),
        ("Training", _training(settings, config["environment"])),
        ("Limits", _limits(measures)),
        ("How to load it", _loading(measures)),
        ("License", _LICENSE),
    ]
    parts = [f"# Open-set classifier: {_text(measures['dataset'])}"]
    parts += [f"## {title}\n\n{text}" for title, text in sections]
    return "\n\n".join(parts) + "\n"


def _purpose(measures, settings):
    method = settings.get("method") or measures["method"]
    made = f", made with the method `{method}` of cac_tf" if method else ""
    purpose = (
        f"It assigns an input to one of {len(measures['class_names'])} known "
        f"classes, or rejects it as unknown. It is a Keras model{made}; an "
        f"input is rejected if its `{measures['score']}` score exceeds the "
        "threshold."
    )
    enrolled = measures.get("enrolled_classes")
    if enrolled:
        names = ", ".join(f"{_text(n)} ({k})" for n, k in enrolled.items())
        purpose += (
            " Classes enrolled after training, without retraining (with the "
            f"number of examples): {names}."
        )
    return purpose


def _numbers(measures):
    rows = [("AUROC", "auroc"), ("FPR at 95 % TPR", "fpr_at_95_tpr")]
    rows += [("OSCR", "oscr"), ("closed-set accuracy", "accuracy")]
    lines = ["| measure | value | 95 % interval |", "| --- | ---: | --- |"]
    for title, name in rows:
        value = measures.get(name)
        if value is None:
            continue
        interval = (measures.get("intervals") or {}).get(name)
        shown = (
            "-" if not interval else f"{interval[0]:.3f} to {interval[1]:.3f}"
        )
        lines.append(f"| {title} | {value:.3f} | {shown} |")
    return "\n".join(
        [
            *(f"- {sentence}" for sentence in verdict(measures)),
            "",
            *lines,
            "",
            "Intervals reflect only the random choice of test data, not "
            "retraining or other unknown classes.",
        ]
    )


def _loading(measures):
    """How to load the model, for what it takes."""
    inputs = measures.get("inputs", "images")
    raw = "raw pixels, 0...255"
    if inputs == "vectors":
        raw = "(n, D) numbers, as in the training data"
    elif inputs == "texts":
        raw = "a list of strings"
    return _LOADING.replace("{inputs}", inputs).replace("{raw}", raw)


def _data(data, options, measures):
    counts = ", ".join(
        f"{count:,} {part.replace('_', ' ')}"
        for part, count in data["counts"].items()
    )
    source = ", ".join(f"{name} {value}" for name, value in options.items())
    lines = [
        f"- Source: {_text(source)}",
        f"- Known classes: {_text(', '.join(data['class_names']))}",
        f"- Unknown classes in the test data: "
        f"{_text(', '.join(data['unknown_class_names']) or 'none')}",
        f"- {measures.get('inputs', 'images').capitalize()}: {counts}",
    ]
    columns = data.get("input_columns")
    if columns:
        lines.append(f"- Input columns: {_text(', '.join(columns))}")
    return "\n".join(lines)


def _training(settings, environment):
    recipe = settings.get("recipe") or {}
    lines = [f"- {name}: {_text(value)}" for name, value in recipe.items()]
    for name in ("seed", "precision", "backend", "true_positive_rate"):
        if name in settings:
            lines.append(f"- {name}: {_text(settings[name])}")
    versions = environment["versions"].items()
    lines.append(f"- versions: {', '.join(f'{n} {v}' for n, v in versions)}")
    if environment.get("commit"):
        lines.append(f"- commit of cac_tf: {_text(environment['commit'])}")
    lines.append(
        f"- on {_text(environment['hardware']['cpu'])}, {environment['date']}"
    )
    return "\n".join(lines)


def _limits(measures):
    changes = "the camera, the lighting"
    if measures.get("inputs") == "vectors":
        changes = "the source of the vectors"
    elif measures.get("inputs") == "texts":
        changes = "the way people write"
    lines = [
        "- The rejection rates apply to unknown inputs like those in the "
        "test data. Other unknown inputs may be accepted more often.",
        "- The threshold is calibrated for known inputs like the training "
        f"data. If {changes} or the class frequencies change, recalibrate it.",
        "- It is no defense against inputs crafted to be accepted.",
    ]
    if measures["auroc"] is None:
        lines.insert(0, "- Rejection was not measured.")
    return "\n".join(lines)


def _text(value):
    return for_markdown(str(value))
