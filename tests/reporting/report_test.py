# SPDX-License-Identifier: Apache-2.0
import base64
import dataclasses
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

import numpy as np
import PIL.Image
import pytest

from cac_tf.data import Examples
from cac_tf.data import OpenSetDataset
from cac_tf.experiments.evaluation import COMPARABLE
from cac_tf.experiments.evaluation import Evaluation
from cac_tf.experiments.evaluation import _decisions
from cac_tf.experiments.evaluation import _measures
from cac_tf.reporting import comparison
from cac_tf.reporting import figures
from cac_tf.reporting import page as html_page
from cac_tf.reporting import write_report
from cac_tf.reporting.progress import TrainingProgress
from cac_tf.reporting.sheets import Row
from cac_tf.reporting.sheets import Sheet
from cac_tf.reporting.sheets import sheet_section
from cac_tf.reporting.verdict import share
from tests.conftest import ROOT

NODE_MODULES = ROOT / "build" / "node" / "node_modules"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(
    not (
        CHROMIUM
        and shutil.which("node")
        and (NODE_MODULES / "puppeteer-core").exists()
        and (NODE_MODULES / "axe-core").exists()
    ),
    reason="needs Chromium, Node.js and: npm install --no-save "
    "--prefix build/node puppeteer-core axe-core",
)


def example(rng, num_unknown=30, threshold=0.5, names=("cat", "dog", "cow")):
    """An evaluation of made scores, with the data set it belongs to."""
    n = 60
    labels = np.arange(n) % 3
    wrong = rng.random(n) < 0.1
    logits = 10 * np.eye(3)[(labels + wrong) % 3] + rng.normal(0, 1, (n, 3))
    all_logits = np.concatenate([logits, rng.normal(3, 2, (num_unknown, 3))])
    evaluation = Evaluation(
        metrics={"threshold": threshold},
        labels=np.r_[labels, np.full(num_unknown, -1)],
        unknown_labels=np.r_[np.full(n, -1), np.zeros(num_unknown, int)],
        predicted_class_id=all_logits.argmax(axis=1),
        unknown_score=np.r_[
            rng.gamma(1, 0.2, n), rng.gamma(3, 0.5, num_unknown)
        ].astype("float32"),
        min_distance=rng.random(n + num_unknown).astype("float32"),
        logits=all_logits.astype("float32"),
    )
    images = rng.integers(0, 256, (n, 8, 8, 3)).astype("uint8")
    known = Examples(images, labels)
    dataset = OpenSetDataset(
        name="made",
        class_names=names,
        class_ids=(0, 1, 2),
        unknown_class_names=("bear",) if num_unknown else (),
        unknown_class_ids=(3,) if num_unknown else (),
        train=known,
        validation=known,
        known_test=known,
        unknown_test=Examples(
            images[:num_unknown], np.zeros(num_unknown, "int64")
        ),
        notes=("5 images in grayscale were converted",),
    )
    measures = {
        "class_names": list(names),
        "counts": dataset.counts,
        "openness": dataset.openness,
        **evaluation.metrics,
        **_measures(evaluation),
        "intervals": {"auroc": [0.9, 1.0]} if num_unknown else None,
    }
    measures["scores"] = {
        name: {k: measures[k] for k in COMPARABLE}
        for name in ("gamma", "max_logit")
    }
    measures["score"] = "gamma"
    measures["microseconds_per_image"] = {
        "network": 100.0,
        "gamma": 0.1,
        "max_logit": 0.2,
    }
    return dataclasses.replace(evaluation, metrics=measures), dataset


def by_class(evaluation, thresholds):
    """The same evaluation, with a threshold for each class."""
    evaluation = dataclasses.replace(
        evaluation, metrics={**evaluation.metrics, "threshold": thresholds}
    )
    measures = {**evaluation.metrics, **_measures(evaluation)}
    return dataclasses.replace(evaluation, metrics=measures)


def page_of(tmp_path, evaluation, dataset, history=()):
    path = tmp_path / "report.html"
    config = {"settings": {"epochs": 3}, "environment": {"python": "3.11"}}
    write_report(path, evaluation, dataset, config, 10 * np.eye(3), history)
    return path.read_text()


def in_chromium(page, **options):
    """What tests/reporting/in_chromium.cjs finds of a page's text."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.html"
        path.write_text(page)
        said = subprocess.run(
            [
                *("node", ROOT / "tests" / "reporting" / "in_chromium.cjs"),
                *(path, json.dumps(options)),
            ],
            env={
                **os.environ,
                "NODE_PATH": str(NODE_MODULES),
                "CHROMIUM": CHROMIUM,
            },
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    return json.loads(said)


HISTORY = [
    {"loss": 2.0, "val_loss": 2.1, "accuracy": 0.5, "val_accuracy": 0.4},
    {"loss": 1.0, "val_loss": 1.1, "accuracy": 0.9, "val_accuracy": 0.8},
]


def test_page_of_an_open_set_run(rng, tmp_path):
    evaluation, dataset = example(rng)
    page = page_of(tmp_path, evaluation, dataset, HISTORY)
    for caption in (
        "Unknown scores",
        "ROC curve",
        "OSCR curve",
        "Training",
        "Logit space",
    ):
        assert f"<figcaption>{caption}</figcaption>" in page
    assert f"{evaluation.metrics['auroc']:.4f}" in page
    assert "5 images in grayscale were converted" in page
    # As many pictures of each kind as there are errors of it.
    accepted = evaluation.unknown_score <= 0.5
    check_pictures(page, evaluation, accepted)


def check_pictures(page, evaluation, accepted):
    known, correct = evaluation.is_known, evaluation.is_correct
    errors = (known & ~(accepted & correct)) | (~known & accepted)
    counts = re.findall(r"<h3>[^(]*\((\d+)", page)
    assert sum(map(int, counts)) == errors.sum()
    assert page.count('class="picture"') == errors.sum()


def test_scores_are_compared(rng, tmp_path):
    evaluation, dataset = example(rng)
    page = page_of(tmp_path, evaluation, dataset)
    auroc = f"{evaluation.metrics['auroc']:.4f}"
    assert f'<th scope="row">max_logit</th><td>{auroc}</td>' in page
    assert (
        '<th scope="row"><strong>gamma (in use)</strong></th>'
        f"<td><strong>{auroc}</strong></td>" in page
    )
    closed, dataset = example(rng, num_unknown=0)
    assert "<h2>Scores</h2>" not in page_of(tmp_path, closed, dataset)


def test_scores_below_zero_have_a_linear_axis(rng):
    evaluation, _ = example(rng)
    (axes,) = figures.score_histogram(evaluation).axes
    assert axes.get_xscale() == "log"
    negative = dataclasses.replace(
        evaluation, unknown_score=evaluation.unknown_score - 5.0
    )
    (axes,) = figures.score_histogram(negative).axes
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim()[0] < -4.0
    # Two of them, as close as float32 allows.
    scores = np.full_like(evaluation.unknown_score, -7.25, "float32")
    scores[0] = np.nextafter(scores[0], np.float32(0))
    almost = dataclasses.replace(evaluation, unknown_score=scores)
    (axes,) = figures.score_histogram(almost).axes
    assert axes.get_xscale() == "linear"


def test_the_learning_curve_has_the_epochs_that_were_evaluated():
    history = [dict(logs) for logs in HISTORY]
    history[1]["test_auroc"] = 0.75
    _, right = figures.training_figure(history).axes
    (line,) = (a for a in right.get_lines() if a.get_label() == "AUROC")
    assert line.get_xydata().tolist() == [[2.0, 0.75]]


def test_trainings_with_and_without_validation_share_a_curve():
    history = [{"loss": 2.0, "val_loss": 3.0}, {"loss": 1.0}]
    left, _ = figures.training_figure(history).axes
    lines = {a.get_label(): a.get_xydata() for a in left.get_lines()}
    assert lines["loss"].tolist() == [[1.0, 2.0], [2.0, 1.0]]
    assert lines["validation loss"].tolist() == [[1.0, 3.0]]


def test_each_training_of_a_run_has_a_figure_of_its_own(rng, tmp_path):
    evaluation, dataset = example(rng)
    history = [
        {"training": "classifier", "loss": 2.0},
        {"training": "classifier", "loss": 1.0},
        {"training": "auto_encoder", "loss": 300.0},
        {"training": "auto_encoder", "loss": 200.0},
    ]
    page = page_of(tmp_path, evaluation, dataset, history)
    captions = re.findall("<figcaption>(Training.*?)</figcaption>", page)
    assert captions == ["Training: classifier", "Training: auto encoder"]
    assert "Training over 2 epochs: loss from 2 to 1." in page
    assert "Training over 2 epochs: loss from 300 to 200." in page
    page = page_of(tmp_path, evaluation, dataset, history[:2])
    assert "<figcaption>Training</figcaption>" in page


def test_compared_runs_share_a_figure_of_the_same_training():
    """Each training has one: their losses have no common scale."""
    classifier = [{"training": "classifier", "loss": x} for x in (2.0, 1.0)]
    decoder = [{"training": "auto_encoder", "loss": 300.0}]
    one, two = (
        comparison.ComparedRun(name, {"auroc": None}, {}, history, [], [])
        for name, history in (
            ("one", classifier),
            ("two", [*decoder, *classifier, {**classifier[0], "loss": 0.5}]),
        )
    )
    drawn = comparison._figures([one, two])
    captions = re.findall("<figcaption>(.*?)</figcaption>", drawn)
    assert captions == [
        "Training loss: classifier",
        "Training loss: auto encoder",
    ]
    assert "classifier by epoch, final value: one 1.000, two 0.500." in drawn
    assert "auto encoder by epoch, final value: two 300.000." in drawn
    (caption,) = re.findall(
        "<figcaption>(.*?)</figcaption>", comparison._figures([one])
    )
    assert caption == "Training loss"


def numbers_of(page):
    """What the page's script reads."""
    pattern = r'<script type="application/json" id="scores">(.*?)</script>'
    (text,) = re.findall(pattern, page)
    return json.loads(text)


def test_the_threshold_that_can_be_dragged(rng, tmp_path):
    """The script's numbers are the evaluation's, bit for bit."""
    evaluation, dataset = example(rng)
    page = page_of(tmp_path, evaluation, dataset)
    numbers = numbers_of(page)
    known = evaluation.is_known
    scores = evaluation.unknown_score
    order = np.argsort(scores, kind="stable")
    np.testing.assert_array_equal(np.float32(numbers["score"]), scores[order])
    truth = np.where(known, evaluation.labels, 3)[order]
    np.testing.assert_array_equal(numbers["truth"], truth)
    np.testing.assert_array_equal(
        numbers["answer"], evaluation.predicted_class_id[order]
    )
    threshold = evaluation.metrics["threshold"]
    assert numbers["thresholds"] == [threshold] * 3
    # One picture for each example, in the order of known and unknown scores.
    tiles = numbers["tiles"]
    assert len(tiles) == len(scores)
    for is_known, chosen in ((True, known), (False, ~known)):
        own = [t["score"] for t in tiles if t["known"] == is_known]
        np.testing.assert_array_equal(np.float32(own), np.sort(scores[chosen]))
    first = tiles[0]
    row = np.flatnonzero(known)[scores[known].argmin()]
    assert first["truth"] == dataset.class_names[evaluation.labels[row]]
    # The sheet holds that example's picture in its first place.
    (sheet,) = re.findall(r"url\(data:image/png;base64,([^)]*)\)", page)
    pixels = np.asarray(PIL.Image.open(io.BytesIO(base64.b64decode(sheet))))
    np.testing.assert_array_equal(
        pixels[:8, :8], dataset.known_test.images[row]
    )
    axis = numbers["axis"]
    assert axis["logarithmic"]
    assert axis["low"] <= scores.min() * 1.001
    assert axis["high"] >= scores.max() * 0.999


def test_a_threshold_for_each_class(rng, tmp_path):
    """All are shown; the line starts at their median, and the page says so."""
    evaluation, dataset = example(rng)
    thresholds = [0.25, 0.75, 0.125]
    evaluation = by_class(evaluation, thresholds)
    accepted = (
        evaluation.unknown_score
        <= np.array(thresholds)[evaluation.predicted_class_id]
    )
    known = evaluation.is_known
    measures = evaluation.metrics
    assert measures["true_positive_rate"] == accepted[known].mean()
    assert measures["false_positive_rate"] == accepted[~known].mean()
    page = page_of(tmp_path, evaluation, dataset)
    for name, threshold in zip(dataset.class_names, thresholds, strict=True):
        assert f'<th scope="row">{name}</th><td>{threshold}</td>' in page
    assert "(gamma, thresholds from 0.125 to 0.75 by class)" in page
    assert f"Accepts {share(accepted[known].mean(), known.sum())} of" in page
    assert "a separate threshold for each class" in page
    assert numbers_of(page)["threshold"] == 0.25
    assert numbers_of(page)["thresholds"] == thresholds
    check_pictures(page, evaluation, accepted)
    (axes,) = figures.score_histogram(evaluation).axes
    lines = [line.get_xdata()[0] for line in axes.get_lines()]
    assert lines == sorted(thresholds)
    # Those of one kind of error, by how far their own threshold is.
    rows = np.flatnonzero(~known & accepted)
    own = np.array(thresholds)[evaluation.predicted_class_id[rows]]
    first = rows[np.abs(evaluation.unknown_score[rows] - own).argmin()]
    section = page[page.index("<h3>Unknown, accepted as known") :]
    assert re.findall(r"<br>score ([^<]*)<", section)[0] == (
        f"{evaluation.unknown_score[first]:.4g}"
    )
    # One threshold, or one that all classes share, is no such thing.
    assert "a separate threshold for each class" not in page_of(
        tmp_path, *example(rng)
    )
    (axes,) = figures.score_histogram(by_class(evaluation, [0.5] * 3)).axes
    assert [line.get_label() for line in axes.get_lines()] == [
        "threshold = 0.5"
    ]


def answers_of(evaluation, thresholds):
    """Counts by true class and by answer, "unknown" last; by a loop."""
    num_classes = len(evaluation.metrics["class_names"])
    counts = np.zeros((num_classes + 1, num_classes + 1), int)
    for label, answer, score in zip(
        evaluation.labels,
        evaluation.predicted_class_id,
        evaluation.unknown_score,
        strict=True,
    ):
        truth = label if label >= 0 else num_classes
        counts[
            truth, answer if score <= thresholds[answer] else num_classes
        ] += 1
    return counts


def check_state(state, evaluation, thresholds):
    """What the page says at thresholds, against NumPy, SciPy and the loop."""
    known = evaluation.is_known
    scores = evaluation.unknown_score
    accepted = scores <= np.array(thresholds)[evaluation.predicted_class_id]
    right = accepted & known & evaluation.is_correct
    counts = answers_of(evaluation, thresholds)
    shares = [f"{100 * r[:-1].sum() / r.sum():.0f} %" for r in counts]
    assert state["answers"] == [
        [*map(str, row), share_]
        for row, share_ in zip(counts.tolist(), shares, strict=True)
    ]
    rates = [accepted[known].mean(), right[known].mean()]
    assert state["tiles"][:3] == [
        *(share(rate, known.sum()) for rate in rates),
        share(accepted[~known].mean(), (~known).sum()),
    ]
    assert state["counts"] == (
        f"Known: {(accepted & known).sum()} of {known.sum()} accepted, "
        f"{right.sum()} of them as their own class. Unknown: "
        f"{(~accepted & ~known).sum()} of {(~known).sum()} rejected."
    )
    wrong = counts[:, :-1].copy()
    np.fill_diagonal(wrong, 0)
    most = wrong.sum(axis=0)
    assert state["sentence"].startswith(
        f"Of {wrong.sum()} inputs accepted as a class that is not their own, "
        f"{most.max()} are taken for "
        f"{evaluation.metrics['class_names'][most.argmax()]}, "
        if wrong.any()
        else "No input was accepted"
    )
    false_positives = accepted[~known].mean()
    for name, figure, height in (
        ("roc", figures.roc_figure, rates[0]),
        ("oscr", figures.oscr_figure, rates[1]),
    ):
        drawn = figure(evaluation)
        drawn.savefig(io.BytesIO(), format="svg")
        (axes,) = drawn.axes
        x, y = axes.transData.transform([false_positives, height])
        width, tall = drawn.bbox.size
        assert state[name] == pytest.approx(
            [100 * x / width, 100 * (1 - y / tall)], abs=0.5
        )


@needs_chromium
@pytest.mark.parametrize("is_logarithmic", [True, False])
def test_the_page_follows_the_threshold(is_logarithmic, rng, tmp_path):
    """Slider, keys and dragging move tiles, points, answers and pictures."""
    evaluation, dataset = example(rng)
    if not is_logarithmic:
        evaluation = dataclasses.replace(
            evaluation, unknown_score=evaluation.unknown_score - 1.0
        )
        evaluation = by_class(evaluation, 0.5)
    page = page_of(tmp_path, evaluation, dataset)
    axis = numbers_of(page)["axis"]
    assert axis["logarithmic"] == is_logarithmic
    (frame,) = re.findall(r"""data-name="histogram" data-axes='(.*?)'""", page)
    frame = json.loads(frame)
    scale = np.log if is_logarithmic else np.asarray
    inverse = np.exp if is_logarithmic else np.asarray
    low, high = scale(axis["low"]), scale(axis["high"])
    places = [0.25, 0.6, 0.601, 0.8, 0.95]
    width = frame["right"] - frame["left"]
    moves = [250, 600, ["press", "ArrowRight"]]
    moves += [["drag", frame["left"] + width * place] for place in places[3:]]
    thresholds = [
        0.5,
        *(float(inverse(low + p * (high - low))) for p in places),
    ]
    found = in_chromium(page, moves=[*moves, ["click", ".own"]])
    assert found["errors"] == []
    states = found["states"]
    for state, threshold in zip(states, [*thresholds, 0.5], strict=True):
        # A pixel of the window is no more exact.
        near = (state["value"] - threshold) / (high - low)
        assert abs(near) < 5e-3 * max(1.0, abs(threshold))
        threshold = state["value"]
        check_state(state, evaluation, [threshold] * 3)
        check_pictures_beside(state, evaluation, [threshold] * 3)
        assert all(
            alt.startswith("img: test image of ") for alt in state["alts"]
        )
        assert f" --threshold={state['value']} " in state["command"]
        assert state["spoken"].startswith(f"threshold {state['value']}: acc")
        place = (scale(threshold) - low) / (high - low)
        assert state["histogram"][0] == pytest.approx(
            100 * (frame["left"] + place * width), abs=1e-3
        )
    assert states[-1] == states[0]


@needs_chromium
def test_the_page_begins_with_the_thresholds_of_each_class(rng, tmp_path):
    evaluation, dataset = example(rng)
    thresholds = [0.25, 0.75, 0.125]
    evaluation = by_class(evaluation, thresholds)
    page = page_of(tmp_path, evaluation, dataset)
    first, one = in_chromium(page, moves=[500])["states"]
    check_state(first, evaluation, thresholds)
    assert first["tiles"][3] == "per class"
    check_pictures_beside(first, evaluation, thresholds)
    # No command has a threshold for each class.
    assert not first["commandIsShown"]
    threshold = one["value"]
    check_state(one, evaluation, [threshold] * 3)
    check_pictures_beside(one, evaluation, [threshold] * 3)
    assert one["commandIsShown"]


def check_pictures_beside(state, evaluation, thresholds):
    """The six on either side that are nearest to their own threshold."""
    scores = evaluation.unknown_score.astype("float64")
    margins = scores - np.array(thresholds)[evaluation.predicted_class_id]
    order = np.lexsort([scores, margins])
    border = (margins <= 0).sum()
    for side, expected in (
        ("accepted", scores[order[max(0, border - 6) : border]]),
        ("rejected", scores[order[border : border + 6]]),
    ):
        shown = [float(t.removeprefix("score ")) for t in state[side]]
        np.testing.assert_array_equal(np.float32(shown), np.float32(expected))


@needs_chromium
@pytest.mark.parametrize("can_copy", [True, False])
def test_the_command_that_is_copied(can_copy, rng, tmp_path):
    """It sets the threshold to the last digit, and finds the model."""
    threshold = float(np.float32(0.1234567))
    evaluation, dataset = example(rng)
    evaluation = by_class(evaluation, threshold)
    path = tmp_path / "report.html"
    write_report(path, evaluation, dataset, model="../a model/model.keras")
    found = in_chromium(
        path.read_text(), moves=[["click", ".copy"], 500], canCopy=can_copy
    )
    assert found["errors"] == []
    first, clicked, moved = found["states"]
    assert first["value"] == 0.1235 and first["copied"] == ""
    *command, flag, output = shlex.split(clicked["command"])
    assert command == ["cac-export", "--model=../a model/model.keras"]
    given = flag.removeprefix("--threshold=")
    assert np.float32(given) == np.float32(threshold)
    assert output == f"--output_dir=serving_{given}"
    assert clicked["selected"] == clicked["command"]
    if can_copy:
        assert clicked["copied"] == "copied"
        assert clicked["clipboard"] == clicked["command"]
    else:
        assert clicked["copied"].startswith("selected")
    # Another threshold has not been copied.
    assert moved["command"] != clicked["command"] and moved["copied"] == ""


@needs_chromium
def test_a_printed_page_has_what_paper_can_show(rng, tmp_path):
    evaluation, dataset = example(rng)
    page = page_of(tmp_path, evaluation, dataset, HISTORY)
    for width in (794, 1200):  # A4, and a window.
        found = in_chromium(page, media="print", scheme="dark", width=width)
        assert found["isShown"] == {
            "button": False,
            "#threshold-slider": False,
            ".tiles": True,
            ".answers": True,
            ".figures img": True,
        }
        assert not found["isTooWide"]
        assert found["violations"] == []


@needs_chromium
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "variant", ["open set", "closed set", "by class", "no threshold"]
)
def test_everybody_can_read_the_page(variant, width, scheme, rng, tmp_path):
    """No violation that axe finds, and nothing wider than the window."""
    evaluation, dataset = example(
        rng, names=("cat", "an animal with a long name", "_$x^$<&")
    )
    if variant == "by class":
        evaluation = by_class(evaluation, [0.25, 0.75, 0.125])
    elif variant == "no threshold":
        evaluation, dataset = example(rng, threshold=None)
    elif variant == "closed set":
        evaluation, dataset = example(rng, num_unknown=0)
    images = np.zeros((9, 4, 4, 3))
    row = Row("a row with a name", images, ("a caption",) * 9)
    sheets = [Sheet("Sheet", "What it shows.", (row,))]
    path = tmp_path / "report.html"
    write_report(
        path, evaluation, dataset, None, 10 * np.eye(3), HISTORY, sheets
    )
    page = path.read_text()
    found = in_chromium(page, width=width, scheme=scheme)
    assert found["errors"] == []
    assert found["violations"] == []
    assert not found["isTooWide"]


@needs_chromium
def test_the_page_without_scripts(rng, tmp_path):
    evaluation, dataset = example(rng)
    page = page_of(tmp_path, evaluation, dataset)
    text = in_chromium(page, script=False)["text"]
    assert "Without JavaScript, the threshold cannot be moved" in text
    assert "of 30 unknown ones (gamma, threshold 0.5)" in text
    assert "the model's own" not in text.split("Numbers")[0]


@needs_chromium
def test_many_classes_have_a_short_table(rng, tmp_path):
    evaluation, dataset = example(rng)
    names = tuple(f"class {i}" for i in range(40))
    evaluation = dataclasses.replace(
        evaluation, metrics={**evaluation.metrics, "class_names": names}
    )
    dataset = dataclasses.replace(
        dataset,
        class_names=names,
        class_ids=range(40),
        unknown_class_ids=(40,),
        train=Examples(
            dataset.train.images, np.arange(len(dataset.train.labels)) % 40
        ),
    )
    page = page_of(tmp_path, evaluation, dataset)
    (state,) = in_chromium(page)["states"]
    counts = answers_of(evaluation, [0.5] * 40)
    for truth, row in enumerate(state["answers"]):
        own = counts[truth, truth] if truth < 40 else 0
        other = counts[truth, :40].sum() - own
        assert row[:3] == [str(own), str(other), str(counts[truth, 40])]


def test_pictures_of_many_examples_are_spread_over_the_scores(
    rng, tmp_path, monkeypatch
):
    monkeypatch.setattr("cac_tf.reporting.threshold._MOST_TILES", 10)
    evaluation, dataset = example(rng)
    tiles = numbers_of(page_of(tmp_path, evaluation, dataset))["tiles"]
    assert len(tiles) == 20
    known = np.sort(evaluation.unknown_score[evaluation.is_known])
    assert np.float32(tiles[0]["score"]) == known[0]
    assert np.float32(tiles[9]["score"]) == known[-1]


def test_curves_of_all_scores(rng):
    evaluation, _ = example(rng)
    other = dataclasses.replace(
        evaluation, other_scores={"max_logit": -evaluation.logits.max(axis=1)}
    )
    (axes,) = figures.roc_figure(other).axes
    labels = [line.get_label() for line in axes.get_lines()]
    looks = {(a.get_color(), a.get_linestyle()) for a in axes.get_lines()[:2]}
    assert len(looks) == 2
    auroc = evaluation.metrics["auroc"]
    assert labels[:2] == [f"{auroc:.3f} max_logit", f"{auroc:.3f} gamma"]


def test_curves_differ_in_color_and_in_kind_of_line(rng):
    """Of the best scores; the table of scores has all."""
    evaluation, _ = example(rng)
    score = evaluation.metrics["scores"]["gamma"]
    names = [f"score {i}" for i in range(20)]
    evaluation = dataclasses.replace(
        evaluation,
        metrics={
            **evaluation.metrics,
            "scores": dict.fromkeys([*names, "gamma"], score),
        },
        other_scores=dict.fromkeys(names, evaluation.unknown_score),
    )
    (axes,) = figures.roc_figure(evaluation).axes
    lines = axes.get_lines()[:6]
    assert [a.get_label()[6:] for a in lines] == [*names[:5], "gamma"]
    assert len({(a.get_color(), a.get_linestyle()) for a in lines}) == 6
    assert len({a.get_linestyle() for a in lines[:4]}) == 4


def test_legends_cover_nothing(rng):
    """They lie below the axes and what is written at these."""
    evaluation, _ = example(rng)
    history = [{**logs, "test_auroc": 0.5} for logs in HISTORY]
    for figure in (
        figures.roc_figure(evaluation),
        figures.oscr_figure(evaluation),
        figures.score_histogram(evaluation),
        figures.training_figure(history),
        figures.learning_curves_figure({"a run": HISTORY}, "loss"),
    ):
        html_page.svg(figure, "Drawn, it knows where everything is.")
        (legend,) = figure.legends
        top = legend.get_window_extent().y1
        assert all(top <= axes.get_tightbbox().y0 for axes in figure.axes)
        assert all(axes.get_legend() is None for axes in figure.axes)


def test_the_axis_names_what_is_drawn():
    _, right = figures.training_figure(HISTORY).axes
    assert right.get_ylabel() == "accuracy"


def test_the_title_says_what_was_trained(rng, tmp_path):
    evaluation, dataset = example(rng)
    dataset = dataclasses.replace(dataset, trial=2, split_family="neal")
    path = tmp_path / "report.html"
    settings = {"method": "cac", "recipe": {"network": "files/tiny.keras"}}
    config = {"settings": settings, "environment": {}}
    write_report(path, evaluation, dataset, config)
    assert (
        "<h1>made: tiny.keras trained by cac; 3 known classes, 1 unknown "
        "(neal, trial 2)</h1>" in path.read_text()
    )
    write_report(path, evaluation, dataclasses.replace(dataset, trial=None))
    assert "<h1>made: 3 known classes, 1 unknown</h1>" in path.read_text()


def test_what_is_accepted_of_each_class(rng, tmp_path):
    evaluation, dataset = example(rng)
    measures = {
        **evaluation.metrics,
        **_decisions(evaluation, dataset.class_names),
    }
    evaluation = dataclasses.replace(evaluation, metrics=measures)
    text = page_of(tmp_path, evaluation, dataset)
    accepted = evaluation.unknown_score <= 0.5
    for name, rows in (
        ("cat", evaluation.labels == 0),
        ("unknown", evaluation.labels < 0),
        ("unknown: bear", evaluation.unknown_labels == 0),
    ):
        rate = f"{100 * accepted[rows].mean():.1f} %"
        row = f'<th scope="row">{name}</th><td>{rows.sum()}</td><td>{rate}</td>'
        assert row in text


def test_figures_are_described(rng, tmp_path):
    """The text in a figure's place says what one sees there."""
    evaluation, dataset = example(rng)
    page = page_of(tmp_path, evaluation, dataset, HISTORY)
    alts = re.findall(r'<img class="drawn" alt="([^"]*)"', page)
    known = evaluation.is_known
    medians = [
        f"{np.median(evaluation.unknown_score[part]):.4g}"
        for part in (known, ~known)
    ]
    measures = evaluation.metrics
    assert alts == [
        "Histogram of unknown scores: the median of known test inputs is "
        f"{medians[0]}, the median of unknown test inputs is {medians[1]}, "
        f"the threshold is {measures['threshold']:.4g}.",
        f"ROC curve of gamma, AUROC {measures['auroc']:.3f}; the model&#x27;s "
        f"threshold accepts {measures['true_positive_rate']:.0%} of known "
        f"and {measures['false_positive_rate']:.0%} of unknown inputs.",
        f"OSCR curve of gamma, area {measures['oscr']:.3f}.",
        "Training over 2 epochs: loss from 2 to 1, accuracy 0.900 at the end.",
        "Logits of the test inputs in three dimensions, by class (cat, dog, "
        "cow and unknown), with the class centers.",
    ]


def test_page_of_a_closed_set_run(rng, tmp_path):
    evaluation, dataset = example(rng, num_unknown=0)
    page = page_of(tmp_path, evaluation, dataset)
    assert "closed-set evaluation" in page
    assert "ROC curve" not in page


def test_page_without_a_threshold(rng, tmp_path):
    evaluation, dataset = example(rng, threshold=None)
    page = page_of(tmp_path, evaluation, dataset)
    assert "Known, misclassified" in page
    assert "At the threshold" not in page
    assert "nearest to the threshold shown" not in page
    assert "model's own" not in page
    assert '<button class="own" type="button">the median</button>' in page


def test_class_names_are_text_and_not_markup(rng, tmp_path):
    hostile = "</script><script>\"'&"
    evaluation, dataset = example(rng, names=(hostile, "a&b", "_$x^$"))
    known = dataset.known_test
    dataset = dataclasses.replace(
        dataset,
        name=hostile,
        unknown_class_names=(hostile,),
        notes=(hostile,),
        known_test=Examples(known.images, known.labels, [hostile] * 60),
    )
    path = tmp_path / "report.html"
    config = {"settings": {hostile: hostile}, "environment": {}}
    history = [{"training": name, "loss": 1.0} for name in (hostile, "b")]
    write_report(
        path, evaluation, dataset, config, np.eye(3), history, model=hostile
    )
    page = path.read_text()
    assert "<script>" not in page
    assert "\\u003cscript>" in page  # In the JSON of the threshold.
    assert "&lt;script&gt;&quot;&#x27;&amp;" in page
    assert "a&amp;b" in page


@pytest.mark.parametrize("first_epoch", [0, 2])
def test_progress_shows_epoch_numbers_and_time_left(first_epoch):
    stream = io.StringIO()
    progress = TrainingProgress(epochs=4, steps_per_epoch=2, stream=stream)
    for epoch in range(first_epoch, 4):
        progress.on_epoch_begin(epoch)
        for batch in range(2):
            progress.on_train_batch_end(batch)
        progress.on_epoch_end(epoch, {"loss": 0.5, "val_accuracy": 0.75})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4 - first_epoch
    assert lines[0].startswith(
        f"epoch {first_epoch + 1}/4  loss 0.5000  val_accuracy 0.7500"
    )
    assert lines[-1].endswith("0 s left")


def test_progress_ends_with_the_training():
    """Whether or not all epochs were needed."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = TrainingProgress(epochs=4, steps_per_epoch=2, stream=stream)
    for epoch in range(2):
        progress.on_epoch_begin(epoch)
        progress.on_train_batch_end(0)
        progress.on_epoch_end(epoch, {"loss": 0.5})
    bar = progress._bar
    assert not bar.disable
    progress.on_train_end()
    assert bar.disable  # It was closed.
    progress.on_train_end()
    # Another stage has a bar too.
    progress.on_epoch_begin(2)
    assert not progress._bar.disable
    progress.on_train_end()


def test_sheets_of_pictures_have_their_captions_and_nothing_is_markup():
    images = np.zeros((2, 4, 4, 3))
    images[1, :, :, 0] = 255.0
    row = Row("<b>row</b>", images, ("0.1", "<i>"))
    text = sheet_section(Sheet("A & B", "What it shows.", (row,)))
    assert "<h2>A &amp; B</h2><p>What it shows.</p>" in text
    assert "&lt;b&gt;row&lt;/b&gt;" in text and "&lt;i&gt;" in text
    assert "<b>" not in text and "<i>" not in text
    data = re.findall(r'base64,([^"]+)"', text)
    black, red = (
        np.asarray(PIL.Image.open(io.BytesIO(base64.b64decode(d))))
        for d in data
    )
    assert black.max() == 0 and red[0, 0].tolist() == [255, 0, 0]
    assert "<p>" not in sheet_section(Sheet("A", "", (row,)))
