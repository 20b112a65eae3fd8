# SPDX-License-Identifier: Apache-2.0
"""The scripts of the benchmarks, what they keep, and the tables of that."""

import dataclasses
import importlib.util
import inspect
import json
import os
import pathlib

import keras
import numpy as np
import pytest
from absl import flags

from cac_tf import experiments
from cac_tf.data import Examples
from cac_tf.data import tfds_images
from cac_tf.data.image_file import as_pixels
from cac_tf.experiments.released_weights import find_released_weights
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import read_metrics
from cac_tf.train import cac_import_weights
from tests.conftest import ROOT
from tests.conftest import load_benchmark

released = pytest.mark.skipif(
    not (
        os.environ.get("CAC_TF_OFFICIAL_DIR")
        and os.environ.get("TFDS_DATA_DIR")
        and importlib.util.find_spec("torch")
    ),
    reason="needs CAC_TF_OFFICIAL_DIR, TFDS_DATA_DIR and PyTorch",
)


SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_of_the_benchmarks_can_be_imported(name, monkeypatch):
    # Run, a script finds those beside it.
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    before = dict(os.environ)
    try:
        load_benchmark(name)
    except ModuleNotFoundError as error:
        # What a script compares with is no dependency.
        assert error.name in ("torch", "pytorch_ood")
        pytest.skip(f"{error.name} is not installed")
    assert dict(os.environ) == before


class Interrupts(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore:These classes keep")
def test_the_numbers_of_a_run_are_kept(tmp_path):
    """Of one on the way from its checkpoint, then of the finished one."""
    keep = load_benchmark("keep_run").keep
    config = experiments.ExperimentConfig(
        {"dataset": "digits", "test_fraction": 0.8}, recipe={"epochs": 2}
    )
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        experiments.train(
            config,
            run,
            tell=lambda kind, *_: [Interrupts()] * (kind == "callbacks"),
        )
    keep(run, "on_the_way", tmp_path)
    on_the_way = json.loads((tmp_path / "on_the_way.json").read_text())
    assert on_the_way["settings"] == config.settings()
    assert "metrics" not in on_the_way
    assert on_the_way["seconds"] > 0
    experiments.train(config, run)
    keep(run, "finished", tmp_path)
    finished = json.loads((tmp_path / "finished.json").read_text())
    history = json.loads((run / "history.json").read_text())
    assert finished["history"] == history
    assert len(history) == 2
    assert on_the_way["history"] == history[:1]
    assert finished["metrics"] == read_metrics(run)
    assert str(tmp_path) not in (tmp_path / "finished.json").read_text()


def test_no_paths_of_the_machine_are_kept(tmp_path):
    """Of a run that evaluates the model of another one, and of own arrays."""
    keep = load_benchmark("keep_run").keep
    model = tmp_path / "neal" / "cifar+10" / "cac" / "trial0" / "model.keras"
    settings = {
        "data": {"dataset": str(tmp_path / "own.npz"), "data_dir": "/data"},
        "model": str(model),
    }
    with RunFolder.open(tmp_path / "run", settings, {}) as folder:
        metrics = pathlib.Path(folder.file("metrics.json"))
        content = {"format": experiments.FORMAT}
        content["dataset"] = settings["data"]["dataset"]
        metrics.write_text(json.dumps(content))
    keep(tmp_path / "run", "kept", tmp_path)
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["metrics"]["dataset"] == "own.npz"
    assert kept["settings"] == {
        "data": {"dataset": "own.npz"},
        "model": "neal/cifar+10/cac/trial0/model.keras",
    }


@pytest.mark.parametrize("channels", [1, 3])
def test_packed_images_come_back(channels, tmp_path, monkeypatch):
    """In columns that are not full, in several files, in their order."""
    device = load_benchmark("device_training")
    monkeypatch.setattr(device, "IMAGES_PER_FILE", 200)
    rng = np.random.default_rng(channels)
    images = rng.integers(0, 256, (550, 8, 8, channels), "uint8")
    labels = rng.integers(0, 10, len(images))
    device.write_split(
        tmp_path, "digits", "train", device.as_columns(images), labels
    )
    about = {"digits": {"channels": channels}}
    (tmp_path / device.ABOUT).write_text(json.dumps(about))
    packed = device.Packed(tmp_path, "digits")
    assert len(list(tmp_path.glob("*.npz"))) == 3
    for found, expected in zip(
        packed.read("train"), (images, labels), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    sorted(tmp_path.glob("*.npz"))[1].unlink()
    with pytest.raises(ValueError, match="Files of digits, train, are missing"):
        packed.read("train")


def test_packed_images_are_read_in_place_of_those_of_tfds(
    tmp_path, monkeypatch
):
    """With the same arguments, to the same pixels."""
    device = load_benchmark("device_training")
    of_tfds = inspect.signature(tfds_images.read_split).parameters
    for name in ("prepared_builder", "class_names", "test_split", "read_split"):
        # So that they come back.
        monkeypatch.setattr(tfds_images, name, getattr(tfds_images, name))
    device.read_packed(tmp_path)
    # (The images of the benchmark have these names.)
    read = tfds_images.read_split
    assert [*inspect.signature(read).parameters, "image", "label"] == [*of_tfds]

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 8, 8, 3), "uint8")
    labels = np.arange(20) % 4
    device.write_split(
        tmp_path, "digits", "train", device.as_columns(images), labels
    )
    about = {"digits": {"channels": 3}}
    (tmp_path / device.ABOUT).write_text(json.dumps(about))
    found = read(
        tfds_images.prepared_builder("digits"),
        "train",
        [1, 3],
        image_size=12,
        interpolation="bicubic",
    )
    np.testing.assert_array_equal(found.labels, [1, 3] * 5)
    expected = [as_pixels(one, 12, 3, "bicubic")[0] for one in images[1::2]]
    np.testing.assert_array_equal(found.images, expected)


def test_only_missing_scores_of_the_released_weights_are_measured():
    benchmark = load_benchmark("released_scores")
    every = benchmark.missing_scores({}, "cifar+10")
    assert set(every) == {
        "cifar+10",
        "cifar+10, tta",
        "cifar+50",
        "cifar+50, tta",
    }
    assert set(benchmark.missing_scores({}, "mnist")) == {"mnist"}
    kept = {
        column: {"measured": dict.fromkeys(names, 0.5)}
        for column, names in every.items()
    }
    assert not benchmark.missing_scores(kept, "cifar+10")
    del kept["cifar+50"]["measured"]["vim"], kept["cifar+50, tta"]
    assert benchmark.missing_scores(kept, "cifar+10") == {
        "cifar+50": {"vim"},
        "cifar+50, tta": every["cifar+50, tta"],
    }
    # The other measures are missing everywhere, but only asked for.
    assert benchmark.missing_scores(kept, "cifar+10", True) == every


def test_a_column_keeps_what_it_had():
    benchmark = load_benchmark("released_scores")
    kept = {"measured": {"gamma": 0.8}}
    found = {"measured": {"gamma": 0.7, "vim": 0.6}, "aupr_known": {"vim": 0.5}}
    assert benchmark.with_column(kept, found) == {
        "measured": {"gamma": 0.8, "vim": 0.6},
        "aupr_known": {"vim": 0.5},
    }


@pytest.mark.slow
@released
def test_released_weights_of_mnist(tmp_path):
    """Imported, as the authors' own network has them, around class means.

    A part of the test images, with class means of a part of the training
    images.
    """
    benchmark = load_benchmark("released_scores")
    theirs = load_benchmark("authors_network")
    checkpoint = find_released_weights(
        os.environ["CAC_TF_OFFICIAL_DIR"], "mnist", "cac", 0
    )
    model, dataset = benchmark.imported(checkpoint, "mnist", tmp_path)
    dataset = dataclasses.replace(
        dataset,
        train=first(dataset.train, 3_000),
        validation=first(dataset.validation, 1_000),
        known_test=first(dataset.known_test, 1_000),
        unknown_test=first(dataset.unknown_test, 700),
    )
    expected = theirs.measure_dataset(checkpoint, "mnist", dataset)
    model, rules = benchmark.fitted(model, dataset)
    measured = benchmark.measure(model, rules, dataset, None)["measured"]
    for name in ("gamma", "gamma, anchors", "min_distance", "max_logit"):
        assert measured[name] == pytest.approx(expected[name], abs=1e-4)
    assert measured["accuracy"] == expected["accuracy by the largest logit"]
    assert measured["true_positive_rate"] == pytest.approx(0.95, abs=0.03)


def first(examples, number):
    return Examples(examples.images[:number], examples.labels[:number])


@pytest.mark.slow
@released
def test_released_weights_with_the_classes_of_another_split(tmp_path):
    """As many classes, but not those: found by what it answers."""
    values = flags.FlagValues()
    cac_import_weights.define_flags(values)
    official = pathlib.Path(os.environ["CAC_TF_OFFICIAL_DIR"])
    checkpoint = official / "MNIST_0_CACclassifierAnchorLoss.pth"
    values(
        [
            "cac-import-weights",
            "--dataset=mnist",
            "--split_family=neal",
            "--trial=3",
            f"--checkpoint={checkpoint}",
            f"--output_dir={tmp_path / 'out'}",
        ]
    )
    with pytest.raises(ValueError, match="different data set, split family"):
        cac_import_weights.main(values)
    assert not (tmp_path / "out").exists()


def environments(content):
    """What every part of a result was made with."""
    if isinstance(content, dict):
        if "commit" in content and "hardware" in content:
            yield content
        else:
            for part in content.values():
                yield from environments(part)
    elif isinstance(content, list):
        for part in content:
            yield from environments(part)


RESULTS = sorted((ROOT / "benchmarks" / "results").rglob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_says_what_it_was_made_with(path):
    found = list(environments(json.loads(path.read_text("utf-8"))))
    assert found
    for environment in found:
        assert environment["date"]
        assert not environment["commit"].endswith("-dirty")


def test_every_page_shows_the_committed_numbers():
    tables = load_benchmark("tables")
    shown = set()
    for page in tables.pages():
        text = page.read_text("utf-8")
        # If this fails: python benchmarks/tables.py
        assert tables.with_current_tables(text) == text, page.name
        shown.update(tables.names_in(text))
    assert shown == set(tables.TABLES)
