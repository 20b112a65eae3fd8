# SPDX-License-Identifier: Apache-2.0
"""The binaries as their users meet them."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import keras
import numpy as np
import PIL.Image
import psutil
import pytest
from absl import flags

import cac_tf
from cac_tf import experiments
from cac_tf import reporting
from cac_tf.data.sources.digits import load_digits
from cac_tf.experiments import results_csv
from cac_tf.experiments.benchmark import State
from cac_tf.experiments.config import scores_named
from cac_tf.experiments.evaluate_saved import EvaluationConfig
from cac_tf.experiments.evaluate_saved import evaluate_saved
from cac_tf.experiments.results_csv import read_results
from cac_tf.experiments.run_folder import read_config
from cac_tf.experiments.run_folder import read_metrics
from cac_tf.train import cac_benchmark
from cac_tf.train import cac_evaluate
from cac_tf.train import cac_export
from cac_tf.train import cac_train
from cac_tf.train import command_line
from tests.conftest import ROOT

QUICK = ["--dataset=digits", "--epochs=3", "--test_fraction=0.5"]

pytestmark = pytest.mark.filterwarnings("ignore:These classes keep")


def run(binary, *arguments):
    """Runs a binary's main in this process."""
    values = flags.FlagValues()
    binary.define_flags(values)
    values(["binary", *map(str, arguments)])
    binary.main(values)


def start(binary, *arguments, **environment):
    """Starts a binary in a process of its own, from the checkout."""
    return subprocess.Popen(
        [sys.executable, "-m", f"cac_tf.train.{binary}", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Started in the background, a test run ignores Ctrl-C, and so would
        # everything that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run on digits."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    run(cac_train, *QUICK, f"--output_dir={folder}")
    return folder


def test_a_run_leaves_everything(finished):
    assert {p.name for p in finished.iterdir()} == {
        "config.json",
        "checkpoints",
        "model.keras",
        "metrics.json",
        "history.json",
        "scores.npz",
        "report.html",
        "MODEL_CARD.md",
        "predictions.csv",
        "serving",
    }
    metrics = read_metrics(finished)
    assert metrics["dataset"] == "digits"
    assert metrics["method"] == "cac"
    config = json.loads((finished / "config.json").read_text())
    settings = config["settings"]
    assert settings["data"] == {"dataset": "digits", "test_fraction": 0.5}
    assert settings["recipe"]["epochs"] == 3
    assert settings["recipe"]["learning_rate"] == 0.02  # of the preset
    checkpoints = list((finished / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == ["classifier.npz"]
    assert config["environment"]["backend"] == "tensorflow"
    assert config["environment"]["versions"]["cac_tf"] == cac_tf.__version__
    page = (finished / "report.html").read_text()
    title = "digits: openset_cnn trained by cac; 6 known classes, 4 unknown"
    assert f"<h1>{title} (neal, trial 0)</h1>" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    scores = np.load(finished / "scores.npz")
    known = scores["labels"] >= 0
    assert known.sum() == metrics["counts"]["known_test"]
    assert metrics["auroc"] == pytest.approx(
        cac_tf.metrics.auroc(
            scores["unknown_score"][known], scores["unknown_score"][~known]
        )
    )
    model = cac_tf.load_model(finished / "model.keras")
    assert model.threshold == pytest.approx(metrics["threshold"])
    assert model.class_names == ("0", "1", "2", "4", "5", "9")
    import tensorflow as tf

    serve = tf.saved_model.load(str(finished / "serving" / "1")).signatures[
        "serving_default"
    ]
    images = load_digits()[0].images[:50]
    out = serve(images=tf.constant(images, tf.float32))
    expected = model.predict_open_set(images)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(out["gamma"], expected.gamma, rtol=1e-5)


def evaluated(model, out, *arguments):
    """The numbers of an evaluation on the command line."""
    arguments = (f"--model={model}", f"--output_dir={out}", *arguments)
    run(cac_evaluate, *arguments)
    return read_metrics(out)


def test_a_finished_run_is_left_alone(finished, tmp_path, capsys):
    before = sorted(p.stat().st_mtime_ns for p in finished.rglob("*"))
    run(cac_train, *QUICK, f"--output_dir={finished}")
    assert "finished" in capsys.readouterr().out
    # So it is by another configuration, and what is no run at all.
    (tmp_path / "letters.txt").write_text("mine")
    for folder, epochs, message in (
        (finished, 4, "epochs: 3 there, 4 now"),
        (tmp_path, 3, "contains no run"),
    ):
        with pytest.raises(ValueError, match=message):
            run(
                cac_train,
                *("--dataset=digits", "--test_fraction=0.5"),
                *(f"--epochs={epochs}", f"--output_dir={folder}"),
            )
    assert [p.name for p in tmp_path.iterdir()] == ["letters.txt"]
    after = sorted(p.stat().st_mtime_ns for p in finished.rglob("*"))
    assert after == before


def test_evaluate_gives_the_same_numbers(finished, tmp_path):
    out = tmp_path / "again"
    one, two = read_metrics(finished), evaluated(finished, out)
    assert two["auroc"] == pytest.approx(one["auroc"], abs=1e-6)
    assert two["threshold"] == one["threshold"]
    # Their pages offer a command, for the folder that the page lies in.
    for folder, named in (
        (finished, finished),
        (out, finished / "model.keras"),
    ):
        page = (folder / "report.html").read_text("utf-8")
        (model,) = re.findall(r'"model": "([^"]*)"', page)
        assert (folder / model).resolve() == named.resolve()
    stricter = evaluated(
        finished / "model.keras",
        tmp_path / "stricter",
        *("--dataset=digits", "--test_fraction=0.5"),
        "--true_positive_rate=0.5",
    )
    assert stricter["threshold"] < one["threshold"]
    assert stricter["true_positive_rate"] < 0.7


def test_unknown_data_from_elsewhere(finished, tmp_path, capsys, rng):
    """Two sets, each measured by itself against the known test images."""
    noise = rng.integers(0, 256, (40, 8, 8), "uint8")
    np.savez(tmp_path / "noise.npz", noise)
    (tmp_path / "dark").mkdir()
    for i in range(3):
        path = tmp_path / "dark" / f"{i}.png"
        PIL.Image.new("L", (8, 8), i).save(path)
    sets = f"npz:{tmp_path / 'noise.npz'}", f"folder:{tmp_path / 'dark'}"
    before, metrics = (
        read_metrics(finished),
        evaluated(
            finished, tmp_path / "out", f"--unknown_data={','.join(sets)}"
        ),
    )
    assert metrics["auroc"] == pytest.approx(before["auroc"], abs=1e-6)
    assert list(metrics["unknown_data"]) == list(sets)
    model = cac_tf.load_model(finished / "model.keras")
    digits = cac_tf.data.load_open_set_dataset("digits", test_fraction=0.5)
    known = model.predict_scores(digits.known_test.images).unknown_score
    unknown = model.predict_open_set(noise[..., None])
    found = metrics["unknown_data"][sets[0]]
    assert found["images"] == 40
    assert set(found["scores"]) == set(metrics["scores"])
    assert found["scores"]["gamma"]["auroc"] == pytest.approx(
        cac_tf.metrics.auroc(known, unknown.unknown_score), abs=1e-6
    )
    assert found["false_positive_rate"] == (~unknown.is_unknown).mean()
    assert "AUROC by set of unknown inputs" in capsys.readouterr().out
    with pytest.raises(ValueError, match="must be given as folder:"):
        evaluated(finished, tmp_path / "other", "--unknown_data=mnist")
    assert not (tmp_path / "other").exists()


def test_the_last_lines_of_a_run(tmp_path, capsys, monkeypatch):
    """Where everything is, what was measured, and what may come next."""
    # Of the programs, one lies beside the running one, and none on the path.
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "cac-train")])
    (tmp_path / "cac-predict").touch(0o755)
    python = f"{sys.executable} -m"
    # A served model must be called something else.
    out = tmp_path / ".run"
    run(
        cac_train,
        *("--dataset=digits", "--epochs=1", "--test_fraction=0.8"),
        f"--output_dir={out}",
    )
    lines = dict(
        line.split(": ", 1)
        for line in capsys.readouterr().out.splitlines()
        if ": " in line
    )
    for name, file in (
        ("Model", "model.keras"),
        ("Serving folder", "serving"),
        ("Report", "report.html"),
        ("How to serve it", "serving/README.md"),
    ):
        assert lines[name].strip() == str(out / file)
        assert (out / file).exists()
    assert (
        lines["Classify new inputs"]
        == f"{tmp_path}/cac-predict --model={out} YOUR_PHOTO.jpg"
    )
    assert lines["Compare all scores"] == (
        f"{python} cac_tf.train.cac_evaluate --model={out} --scores=all "
        f"--output_dir={out}_scores"
    )
    run(cac_evaluate, f"--model={out}", f"--output_dir={tmp_path / 'again'}")
    text = capsys.readouterr().out
    metrics = read_metrics(out)
    assert metrics["calibration"]["asked"] == 0.95
    again = read_metrics(tmp_path / "again")
    assert "asked" not in again["calibration"]
    for sentence in reporting.verdict(again):
        assert f"\n{sentence}\n" in text
    export = f"{python} cac_tf.train.cac_export"
    assert f"{export} --model={out} --output_dir=serving" in text


@pytest.mark.slow
def test_nothing_of_tensorflow_on_the_terminal(tmp_path):
    """Whoever has not asked TensorFlow to be quiet sees our lines alone."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("TF_CPP_")
    }
    result = subprocess.run(
        [
            *(sys.executable, "-m", "cac_tf.train.cac_train"),
            *("--dataset=digits", "--epochs=1", "--test_fraction=0.8"),
            f"--output_dir={tmp_path / 'run'}",
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = (result.stdout + result.stderr).splitlines()
    assert any(line.startswith("Report:") for line in lines)
    foreign = [
        line
        for line in lines
        if re.match(r"[IWEF]\d{4} |WARNING: All log|\d{4}-\d\d-\d\d ", line)
        or "tensorflow/" in line
        or "absl::" in line
    ]
    assert not foreign
    assert len(lines) < 60


def test_evaluate_bad_input(finished, tmp_path):
    model = f"--model={finished / 'model.keras'}"
    out = f"--output_dir={tmp_path / 'out'}"
    with pytest.raises(
        ValueError, match="--trial has no effect without --dataset"
    ):
        run(cac_evaluate, model, out, "--trial=1")
    with pytest.raises(ValueError, match="knows the classes"):
        run(cac_evaluate, model, out, "--dataset=digits", "--trial=1")
    with pytest.raises(ValueError, match="--model=none.keras: not found"):
        run(cac_evaluate, "--model=none.keras", out)
    alone = tmp_path / "model.keras"
    alone.write_bytes((finished / "model.keras").read_bytes())
    with pytest.raises(ValueError, match="set dataset"):
        run(cac_evaluate, f"--model={alone}", out)
    # Beside it may lie what another tool left.
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="was not written by this version"):
        run(cac_evaluate, f"--model={alone}", out)
    with pytest.raises(ValueError, match="knows the classes"):
        run(
            cac_evaluate,
            f"--model={alone}",
            out,
            "--dataset=digits",
            "--trial=1",
        )
    with pytest.raises(ValueError, match="contains the model itself"):
        run(cac_evaluate, model, f"--output_dir={finished}", "--overwrite")
    (tmp_path / "empty").mkdir()
    for binary in (cac_evaluate, cac_export):
        with pytest.raises(ValueError, match=r"a folder without model\.keras"):
            run(binary, f"--model={tmp_path / 'empty'}", out)
    inside = finished / "scores" / "model.keras"
    inside.parent.mkdir()
    inside.write_bytes(alone.read_bytes())
    with pytest.raises(ValueError, match="contains the model itself"):
        run(
            cac_evaluate,
            f"--model={inside}",
            f"--output_dir={finished}",
            "--overwrite",
            "--dataset=digits",
        )
    shutil.rmtree(inside.parent)
    assert not (tmp_path / "out").exists()
    assert (finished / "model.keras").exists()


def test_a_model_whose_training_is_not_known(finished, tmp_path):
    alone = tmp_path / "model.keras"
    alone.write_bytes((finished / "model.keras").read_bytes())
    out = tmp_path / "out"
    metrics = evaluated(
        *(alone, out, "--true_positive_rate=0.9"),
        *("--dataset=digits", "--test_fraction=0.5"),
    )
    assert metrics["method"] is None
    assert list(metrics["scores"]) == ["gamma"]
    card = (out / "MODEL_CARD.md").read_text()
    assert "It is a Keras model; an input is rejected if" in card
    # Its evaluation says no more.
    metrics = evaluated(out, tmp_path / "again", "--scores=all")
    assert metrics["method"] is None
    assert {"gamma", "vim"} <= set(metrics["scores"])


def test_export(finished, tmp_path, capsys):
    model = f"--model={finished / 'model.keras'}"
    folder = tmp_path / "my models"
    out = f"--output_dir={folder}"
    run(cac_export, model, out, "--name=digits", "--batch_sizes=1,16")
    assert (folder / "1" / "saved_model.pb").exists()
    batching = (folder / "batching.config").read_text()
    assert "max_batch_size { value: 16 }" in batching
    assert 'name: "digits"' in (folder / "models.config").read_text()
    files = tmp_path / "files"
    given = [model, f"--output_dir={files}", "--format=litert", "--version=2"]
    run(cac_export, *given, "--quantize=dynamic_range")
    path = files / "2" / "model.tflite"
    said = f"Written: {path} ({path.stat().st_size:,} bytes)"
    assert said in capsys.readouterr().out
    none = tmp_path / "no folder"
    target = f"--output_dir={none}"
    for wrong, message in (
        ([out, "--name=digits"], "never overwritten"),
        (given, "never overwritten"),
        ([out, "--format=litert"], "Choose another --output_dir"),
        ([target, "--version=0"], "--version=0: 0 is not an integer in the ra"),
        ([target, f"--version={10**20}"], "not an integer in the range"),
        ([target, "--batch_sizes=1,x"], "--batch_sizes must be whole numbers"),
        ([target, "--batch_sizes=8,1"], "must be in ascending order"),
        (
            [target, "--quantize=dynamic_range"],
            "no effect with --format=tf_serving",
        ),
        ([target, "--name=x", "--format=onnx"], "no effect with --format=onnx"),
        ([target], "Choose another one with name="),
    ):
        with pytest.raises((ValueError, OSError, flags.Error), match=message):
            run(cac_export, model, *wrong)
    without = cac_tf.load_model(finished / "model.keras").with_score("gamma")
    without.save(tmp_path / "model.keras")
    arguments = [f"--model={tmp_path}", f"--output_dir={tmp_path / 'digits'}"]
    with pytest.raises(ValueError, match="has no threshold"):
        run(cac_export, *arguments)
    assert not (tmp_path / "digits").exists() and not none.exists()
    run(cac_export, *arguments, "--allow_uncalibrated")
    readme = (tmp_path / "digits" / "README.md").read_text()
    assert "has not been calibrated" in readme


def weights(folder):
    model = cac_tf.load_model(folder / "model.keras")
    return [np.asarray(w) for w in model.weights]


@pytest.mark.slow
def test_killed_and_started_again(finished, tmp_path):
    """kill -9 after the first epoch; the same command ends the same."""
    folder = tmp_path / "killed"
    arguments = [*QUICK, f"--output_dir={folder}"]
    process = start("cac_train", *arguments)
    for line in process.stdout:
        if line.startswith("epoch 2/3"):
            process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (folder / "metrics.json").exists()
    again = start("cac_train", *arguments)
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert "epoch 1/3" not in output
    assert "epoch 3/3" in output
    for one, two in zip(weights(folder), weights(finished), strict=True):
        np.testing.assert_array_equal(one, two)


def test_ctrl_c(tmp_path):
    process = start(
        "cac_train",
        *["--dataset=digits", "--epochs=200", f"--output_dir={tmp_path / 'r'}"],
    )
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("epoch 1/200"):
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert "The same command continues" in "".join(said)
    assert "Traceback" not in "".join(said)
    assert "s left" in "".join(said)


def test_names_of_classes_may_hold_commas():
    values = flags.FlagValues()
    cac_train.define_flags(values)
    values(["cac-train", '--known_classes="salt, pepper",cat'])
    settings = command_line.data_settings(values)
    assert settings["known_classes"] == ["salt, pepper", "cat"]


def test_a_disk_that_fills_during_the_export(trained_blobs, tmp_path):
    """Nothing is left where a server would look."""
    import resource

    model = trained_blobs[0]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        with pytest.raises(Exception, match=r"(?i)file|large|write"):
            model.export(tmp_path / "serving" / "1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "serving").iterdir()) == []


@pytest.mark.slow
def test_photographs_from_a_folder(vehicles_folder, tmp_path):
    """A short run; the full one is benchmarks/vehicles_animals.py."""
    out = tmp_path / "run"
    run(
        cac_train,
        "--dataset=folder",
        f"--data_dir={vehicles_folder}",
        "--known_classes=train,bus,bicycle",
        "--epochs=1",
        "--image_size=16",
        f"--output_dir={out}",
    )
    metrics = read_metrics(out)
    assert metrics["counts"] == {
        "train": 1200,
        "validation": 300,
        "known_test": 300,
        "unknown_test": 200,
    }
    assert metrics["unknown_class_names"] == ["bear", "possum"]
    page = (out / "report.html").read_text()
    assert "Logit space" in page  # three classes, three dimensions
    assert "possum →" in page


WITHOUT_TENSORFLOW = """
    import importlib.abc, sys

    class Refuse(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("tensorflow", "tensorflow_datasets"):
                raise ModuleNotFoundError(name, name=name)

    sys.meta_path.insert(0, Refuse())
    import cac_tf
    from cac_tf.train import cac_train
    sys.argv[0] = "cac-train"
    cac_train.run()
"""


@pytest.mark.slow
def test_jax_without_tensorflow(tmp_path):
    """Dumped arrays to model.keras and report, without TensorFlow."""
    path = tmp_path / "digits.npz"
    run(cac_train, "--dataset=digits", "--trial=1", f"--dump_arrays={path}")
    out = tmp_path / "run"
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(WITHOUT_TENSORFLOW),
            f"--dataset={path}",
            "--schedule=two_stage",
            "--epochs=3",
            "--second_stage_epochs=1",
            "--precision=mixed_bfloat16",
            f"--output_dir={out}",
        ],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "export needs TensorFlow" in result.stderr
    assert not (out / "serving").exists()
    metrics = read_metrics(out)
    assert metrics["auroc"] > 0.7
    assert (metrics["dataset"], metrics["trial"]) == ("digits", 1)
    # The preset is that of the data set that was dumped.
    settings = json.loads((out / "config.json").read_text())["settings"]
    assert settings["recipe"]["rotation"] == 15.0
    # What JAX trained, TensorFlow loads.
    model = cac_tf.load_model(out / "model.keras")
    scores = np.load(out / "scores.npz")
    known = scores["labels"] >= 0
    dataset = cac_tf.data.load_open_set_dataset("digits", trial=1)
    np.testing.assert_array_equal(
        scores["labels"][known], dataset.known_test.labels
    )
    logits = model.predict_scores(dataset.known_test.images).logits
    # bfloat16 keeps eight bits.
    np.testing.assert_allclose(logits, scores["logits"][known], atol=0.3)


def test_dumped_arrays_are_the_same_experiment(tmp_path, capsys):
    load = cac_tf.data.load_open_set_dataset
    path = tmp_path / "digits.npz"
    run(
        cac_train,
        *("--dataset=digits", "--split_family=miller2020", "--trial=3"),
        *("--split_seed=5", f"--dump_arrays={path}"),
    )
    one = load("digits", split_family="miller2020", trial=3, split_seed=5)
    two = load(str(path))
    for part in ("train", "validation", "known_test", "unknown_test"):
        for a, b in zip(getattr(one, part), getattr(two, part), strict=True):
            np.testing.assert_array_equal(a, b)
    for name in (
        *("name", "split_family", "trial", "digests", "class_names"),
        *("class_ids", "unknown_class_names", "unknown_class_ids"),
    ):
        assert getattr(one, name) == getattr(two, name), name
    # Other classes make a split of their own.
    run(
        cac_train,
        *("--dataset=digits", "--negative_classes=3,6"),
        f"--dump_arrays={path}",
    )
    expected = np.sum(np.isin(load_digits()[0].labels, [3, 6]))
    assert f"'negatives': {expected}" in capsys.readouterr().out
    dataset = load(str(path))
    assert dataset.negatives.size == expected
    assert dataset.unknown_class_names == ("7", "8")
    dataset = load("digits", unknown_classes=["3", "8"])
    assert dataset.unknown_class_names == ("3", "8")
    assert (dataset.split_family, dataset.trial) == ("custom", None)
    again = load(str(path), unknown_classes=["7"])
    assert again.unknown_class_names == ("7",)
    assert len(again.unknown_class_ids) == 1
    with pytest.raises(ValueError, match="listed twice"):
        load("digits", unknown_classes=["3", "3"])
    with pytest.raises(ValueError, match="split_seed has no effect"):
        load(str(path), split_seed=1)
    with pytest.raises(ValueError, match="arrays: folder not found: .*no"):
        run(
            cac_train,
            *("--dataset=digits", f"--dump_arrays={tmp_path / 'no' / 'a.npz'}"),
        )
    with pytest.raises(ValueError, match="would overwrite --dataset="):
        run(cac_train, f"--dataset={path}", f"--dump_arrays={path}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--second_stage_epochs=3"], "second_stage_epochs=3 has no effect"),
        (["--until_converged"], "until_converged=True has no effect"),
        (["--scores=gamma,none"], "--scores=gamma,none: value should be one"),
        (["--dump_arrays=a.npz", "--seed=1"], "--output_dir has no effect"),
        (["--stream"], "stream has no effect"),
        (["--data_dir=x"], "data_dir has no effect"),
        (["--dataset=none.npz", "--known_classes=a,b"], "File not found"),
        (["--trial=9"], "trial must be at most 4; got 9"),
        (["--trial=x"], "--trial=x: invalid literal for int"),
    ],
)
def test_flags_without_effect(arguments, message, tmp_path):
    out = tmp_path / "out"
    with pytest.raises((ValueError, flags.Error), match=message):
        run(cac_train, "--dataset=digits", f"--output_dir={out}", *arguments)
    assert not out.exists()


def test_evaluate_recenters_and_changes_the_score(finished, tmp_path):
    """What was evaluated is saved, and is what the numbers say."""
    out, before = tmp_path / "logit", read_metrics(finished)
    after = evaluated(finished, out, "--score=max_logit")
    assert after["score"] == "max_logit"
    assert after["auroc"] == pytest.approx(
        before["scores"]["max_logit"]["auroc"], abs=1e-6
    )
    changed = cac_tf.load_model(out / "model.keras")
    assert changed.threshold == pytest.approx(after["threshold"])
    assert changed.score.name == "max_logit"
    again = tmp_path / "recentered"
    recentered = evaluated(finished, again, "--recenter")
    # Centers come from the same images: nothing changes.
    np.testing.assert_allclose(
        cac_tf.load_model(again / "model.keras").centers,
        cac_tf.load_model(finished / "model.keras").centers,
        rtol=1e-5,
    )
    assert recentered["auroc"] == pytest.approx(before["auroc"], abs=1e-5)


def test_the_folder_that_is_taken_without_output_dir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, folder in (
        (["--dataset=digits"], "runs/digits_trial0"),
        (
            ["--dataset=mnist", "--trial=3", "--split_family=miller2020"],
            "runs/mnist_miller2020_trial3",
        ),
        (
            ["--dataset=a/b.npz", "--method=cross_entropy"],
            "runs/b_cross_entropy",
        ),
    ):
        values = flags.FlagValues()
        cac_train.define_flags(values)
        values(["cac-train", *arguments])
        config = cac_train.configure(values)
        assert cac_train._default_folder(config) == folder


@pytest.mark.slow
def test_recentering_a_cross_entropy_model(tmp_path):
    out = tmp_path / "run"
    run(
        cac_train,
        *("--dataset=digits", "--method=cross_entropy", "--score=openmax"),
        *("--epochs=4", f"--output_dir={out}"),
    )
    metrics = read_metrics(out)
    assert list(metrics["scores"]) == [
        "openmax",
        "max_softmax",
        "max_logit",
        "openmax_log_sum_exp",
    ]
    assert (metrics["method"], metrics["score"]) == ("cross_entropy", "openmax")
    # Class means are centers that mean something to it: nothing changes.
    recentered = evaluated(out, tmp_path / "again", "--recenter")
    assert recentered["auroc"] == pytest.approx(metrics["auroc"], abs=1e-5)
    assert metrics["bhattacharyya"] is not None


def test_every_score_of_one_model(finished, tmp_path, capsys):
    """In one table, one report, one file."""
    out = tmp_path / "all"
    metrics = evaluated(finished, out, "--scores=all")
    said = capsys.readouterr().out
    # Scores of other outputs belong to methods that have them.
    assert set(metrics["scores"]) == set(scores_named(["all"]))
    assert set(cac_tf.scores.names()) - set(metrics["scores"]) >= {
        "min_reconstruction_error"
    }
    arrays = np.load(out / "scores.npz")
    known = arrays["labels"] >= 0
    page = (out / "report.html").read_text()
    for name, measures in metrics["scores"].items():
        key = "unknown_score"
        if name != "gamma":
            key += f"_by_{name}"
        assert measures["auroc"] == pytest.approx(
            cac_tf.metrics.auroc(arrays[key][known], arrays[key][~known])
        )
        assert 0 < metrics["microseconds_per_image"][name] < 1e6
        assert f"{measures['auroc']:.4f}" in said
        row = f'<th scope="row">{name}</th><td>{measures["auroc"]:.4f}</td>'
        if name == metrics["score"]:
            row = f'<th scope="row"><strong>{name} (in use)</strong></th>'
        assert row in page
    assert not (out / "model.keras").exists()
    for wrong in ("--scores=gamma,entropy", "--scores=gamma,all"):
        with pytest.raises((ValueError, flags.Error), match="scores"):
            evaluated(finished, out, wrong)


@pytest.mark.slow
def test_test_time_augmentation_on_the_command_line(finished, tmp_path):
    """Digits refuse it; of other data it is kept with the model."""
    model = f"--model={finished / 'model.keras'}"
    out = tmp_path / "flip"
    refused = "Images of digits change class .* leave tta=flip out"
    with pytest.raises(ValueError, match=refused):
        run(cac_evaluate, model, f"--output_dir={out}", "--tta=flip")
    for flag in ("--flip=0.5", "--epochs=1"):
        with pytest.raises(ValueError, match=refused):
            run(cac_train, *QUICK, flag, "--tta=flip", f"--output_dir={out}")
    assert not out.exists()
    rng = np.random.default_rng(0)
    path = tmp_path / "made.npz"
    labels = np.arange(600) % 3
    images = rng.integers(0, 60, (600, 8, 8, 1))
    images += 90 * labels[:, None, None, None]
    np.savez(path, x_train=images, y_train=labels)
    arguments = [f"--dataset={path}", "--known_classes=0,1", "--epochs=1"]
    with pytest.raises(ValueError, match="which flip=0 turns off"):
        run(
            cac_train,
            *arguments,
            *("--tta=flip", "--flip=0", f"--output_dir={out}"),
        )
    run(cac_train, *arguments, "--tta=flip", f"--output_dir={out}")
    assert cac_tf.load_model(out / "model.keras").tta == "flip"
    metrics = read_metrics(out)
    assert metrics["tta"] == "flip"
    # Without the flag as the model has it, with it as it says.
    for flags_of_it, expected in (([], "flip"), (["--tta=none"], None)):
        again = tmp_path / f"as {expected}"
        rate = "--true_positive_rate=0.9"
        metrics = evaluated(out, again, rate, *flags_of_it)
        assert cac_tf.load_model(again / "model.keras").tta == expected
        assert metrics["tta"] == expected


def settings_of(folder):
    return json.loads((folder / "config.json").read_text())["settings"]


@pytest.mark.parametrize(
    "flag",
    [
        *("--dataset=digits", "--epochs=3", "--seed=0", "--method=cac"),
        *("--nostrict", "--dump_arrays=a.npz", "--scores=all", "--tta=none"),
    ],
)
def test_config_says_everything(finished, tmp_path, flag):
    out = tmp_path / "out"
    name = flag.removeprefix("--").removeprefix("no").partition("=")[0]
    with pytest.raises(ValueError, match=f"--({name}|config).*--config|needs"):
        run(
            cac_train,
            f"--config={finished / 'config.json'}",
            *(flag, f"--output_dir={out}"),
        )
    assert not out.exists()


def test_configs_that_are_none(finished, tmp_path):
    content = json.loads((finished / "config.json").read_text())
    settings = content["settings"]
    path = tmp_path / "config.json"
    for changed, message in (
        ("{", "is not a run's config.json"),
        ("[1, 2]", "is not a run's config.json"),
        ('{"settings": {}}', "is not a run's config.json.*format"),
        (
            {"format": 3, "settings": settings},
            "format is 3; this version uses 4",
        ),
        ({"format": 4}, "is not a run's config.json.*settings"),
        ({"format": 4, "settings": {}}, "have no data"),
        (
            {"format": 4, "settings": {**settings, "recipe": {"epochs": 0}}},
            "epochs must be at least 1",
        ),
    ):
        path.write_text(
            changed if isinstance(changed, str) else json.dumps(changed)
        )
        with pytest.raises(ValueError, match=message):
            run(cac_train, f"--config={path}", f"--output_dir={tmp_path / 'o'}")
    with pytest.raises(ValueError, match="file not found"):
        run(cac_train, f"--config={tmp_path / 'none.json'}")
    assert not (tmp_path / "o").exists()


def test_an_evaluation_again_has_a_new_environment(finished, tmp_path):
    """Its numbers are new, so its config.json is; no other model is left."""
    out = tmp_path / "evaluated"
    arguments = [
        f"--model={finished / 'model.keras'}",
        f"--output_dir={out}",
    ]
    run(cac_evaluate, *arguments)
    path = out / "config.json"
    config = path.read_text()
    path.write_text(config.replace(keras.__version__, "3.0.0"))
    (out / "metrics.json").write_text('{"format": 0}')
    (out / "model.keras").write_text("of another score")
    (out / "serving" / "2").mkdir(parents=True)
    (out / "serving" / "2" / "somebody's").touch()
    run(cac_evaluate, *arguments)
    assert not (out / "model.keras").exists()
    assert (out / "serving" / "2" / "somebody's").exists()
    now = json.loads(path.read_text())
    assert now["environment"]["versions"]["keras"] == keras.__version__
    assert read_metrics(out)["auroc"] > 0.5


def test_a_folder_of_others_is_refused_before_the_work(
    finished, tmp_path, monkeypatch
):
    (tmp_path / "thesis.tex").touch()
    evaluate = importlib.import_module("cac_tf.experiments.evaluate_saved")
    monkeypatch.setattr(evaluate, "load_model", None)
    model = str(finished / "model.keras")
    for overwrite in (False, True):
        with pytest.raises(
            ValueError, match="is not empty but contains no run"
        ):
            evaluate_saved(
                EvaluationConfig(model),
                tmp_path,
                overwrite=overwrite,
            )


def test_a_run_that_another_process_finishes_meanwhile(
    finished, tmp_path, monkeypatch
):
    """While this one reads the data: a server may use its model already."""
    train = importlib.import_module("cac_tf.experiments.train")
    load = train.load_open_set_dataset

    def load_slowly(options, **named):
        shutil.copytree(finished, tmp_path / "run")
        return load(options, **named)

    monkeypatch.setattr(train, "load_open_set_dataset", load_slowly)
    monkeypatch.setattr(train, "_train_in", None)
    settings = read_config(finished)["settings"]
    config = experiments.ExperimentConfig.from_dict(settings)
    done = experiments.train(config, tmp_path / "run")
    assert done.evaluation is None
    assert done.folder.is_finished


def test_threshold_by_hand(finished, tmp_path):
    """--threshold, of an evaluation and of an export."""
    model = f"--model={finished / 'model.keras'}"
    before = read_metrics(finished)
    threshold = float(np.float32(before["threshold"] / 2))
    out = tmp_path / "evaluated"
    after = evaluated(finished, out, f"--threshold={threshold!r}")
    arrays = np.load(out / "scores.npz")
    known = arrays["labels"] >= 0
    accepted = arrays["unknown_score"] <= threshold
    assert after["threshold"] == threshold
    assert after["true_positive_rate"] == accepted[known].mean()
    assert after["false_positive_rate"] == accepted[~known].mean()
    assert after["true_positive_rate"] < before["true_positive_rate"]
    assert after["auroc"] == pytest.approx(before["auroc"], abs=1e-6)
    # What was evaluated is what can be shipped.
    assert cac_tf.load_model(out / "model.keras").threshold == threshold
    folder = tmp_path / "serving"
    run(
        cac_export,
        model,
        f"--output_dir={folder}",
        f"--threshold={threshold!r}",
    )
    import tensorflow as tf

    images = load_digits()[0].images[:80]
    serve = tf.saved_model.load(str(folder / "1")).signatures
    answers = serve["serving_default"](images=tf.constant(images, tf.float32))
    assert np.float32(threshold) == np.unique(answers["threshold"])
    np.testing.assert_array_equal(
        answers["is_unknown"], answers["unknown_score"] > np.float32(threshold)
    )
    for binary in (cac_evaluate, cac_export):
        for wrong in ("nan", "inf", "-1", "1e39"):
            target = tmp_path / "wrong"
            with pytest.raises(
                (ValueError, flags.Error), match=r"the threshold|below 0|finite"
            ):
                run(
                    binary,
                    *(model, f"--output_dir={target}", f"--threshold={wrong}"),
                )
            assert not target.exists()
    with pytest.raises(ValueError, match="true_positive_rate=.*not both"):
        both = ("--threshold=1", "--true_positive_rate=0.9")
        evaluated(finished, tmp_path / "wrong", *both)


def losses_in_logs(folder):
    """Epochs and losses in event files of TensorBoard."""
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.util import tensor_util

    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        event.step: float(tensor_util.make_ndarray(event.tensor_proto))
        for event in events.Tensors("epoch_loss")
    }


class Interrupts(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_is_repeated_bit_by_bit(finished, tmp_path):
    """From its config, in Python and on the command line, and resumed.

    Logs for TensorBoard change nothing, are no setting, and go on with the
    run.
    """
    pytest.importorskip("tensorboard")
    out, told = tmp_path / "run", []

    def tell(kind, *values):
        told.append((kind, values))
        return [Interrupts()] * (kind == "callbacks")

    config = experiments.ExperimentConfig(
        {"dataset": "digits", "test_fraction": 0.5}, recipe={"epochs": 3}
    )
    with pytest.raises(KeyboardInterrupt):
        experiments.train(config, out, tensorboard=True, tell=tell)
    (steps,) = (values for kind, values in told if kind == "callbacks")
    one = read_metrics(finished)
    assert steps == ("classifier", 3, -(-one["counts"]["train"] // 64))
    from_config = f"--config={finished / 'config.json'}"
    run(cac_train, from_config, f"--output_dir={out}", "--tensorboard")
    history = json.loads((out / "history.json").read_text())
    logs = out / "tensorboard" / "classifier"
    for part, name in (("train", "loss"), ("validation", "val_loss")):
        assert losses_in_logs(logs / part) == pytest.approx(
            {epoch: one[name] for epoch, one in enumerate(history)}, rel=1e-6
        )
    for a, b in zip(weights(finished), weights(out), strict=True):
        np.testing.assert_array_equal(a, b)
    assert settings_of(out) == settings_of(finished)
    two = read_metrics(out)
    for measures in (one, two):
        del measures["seconds"], measures["microseconds_per_image"]
    assert one == two
    # Finished: nothing is done again.
    before = (finished / "metrics.json").stat().st_mtime_ns
    run(cac_train, from_config, f"--output_dir={finished}")
    assert experiments.train(config, out).evaluation is None
    assert (finished / "metrics.json").stat().st_mtime_ns == before
    evaluated = evaluate_saved(
        EvaluationConfig(str(out / "model.keras")), tmp_path / "evaluated"
    )
    assert evaluated.evaluation.metrics["scores"] == two["scores"]
    assert evaluated.evaluation.metrics["threshold"] == two["threshold"]
    run(cac_train, *QUICK, f"--output_dir={out}", "--overwrite")
    assert not (out / "tensorboard").exists()


@pytest.mark.parametrize(
    "missing", ["tensorboard", "matplotlib", "tensorflow_serving"]
)
def test_a_package_that_is_not_there(tmp_path, monkeypatch, missing):
    """Said before anything is written."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name: None if name == missing else real(name),
    )
    out = tmp_path / "run"
    with pytest.raises(ImportError, match=f"needs the package {missing}.*pip"):
        run(cac_train, *QUICK, f"--output_dir={out}", "--tensorboard")
    assert not out.exists()


@pytest.mark.slow
def test_benchmark_queue(tmp_path, capsys):
    """One run works, one cannot; the rest goes on, and a second call skips."""
    out = tmp_path / "bench"
    arguments = (
        "--datasets=digits",
        "--trials=0,1",
        "--train_flags=--epochs=2 --test_fraction=0.6",
        f"--output_dir={out}",
    )
    run(cac_benchmark, *arguments, "--dry_run")
    assert "2 of 2 runs to do" in capsys.readouterr().out
    assert not out.exists()
    blocked = out / "neal" / "digits" / "cac" / "trial0"
    blocked.mkdir(parents=True)
    (blocked / "letter.txt").touch()
    with pytest.raises(RuntimeError, match="1 of 2 runs failed.*\n.*trial 0"):
        run(cac_benchmark, *arguments)
    text = capsys.readouterr().out
    assert "published" not in text  # There is nothing published on digits.
    (row, *others) = read_results(out / "results.csv")
    assert row["trial"] == 1 and row["epochs"] == 2
    assert {r["score"] for r in (row, *others)} == {
        "gamma",
        "min_distance",
        "max_logit",
    }
    metrics = json.loads(
        (blocked.parent / "trial1" / "metrics.json").read_text()
    )
    by_score = metrics["scores"][row["score"]]
    assert row["auroc"] == by_score["auroc"]
    assert row["ccr@5%"] == by_score["ccr"]["0.05"]
    assert (out / "results.png").exists()
    (blocked / "letter.txt").unlink()
    run(cac_benchmark, *arguments)
    text = capsys.readouterr().out
    assert "trial 1: finished earlier" in text
    assert len(read_results(out / "results.csv")) == 6
    # One row a score, by an evaluation of the runs that are there.
    compared = (*arguments, "--scores=vim,energy")
    run(cac_benchmark, *compared)
    text = capsys.readouterr().out
    assert text.count("finished earlier") == 2
    for trial in (0, 1):
        assert f"comparing scores of digits cac trial {trial}: done in" in text
    rows = read_results(out / "results.csv")
    assert len(rows) == 10
    assert {r["score"] for r in rows} >= {"vim", "energy", "min_distance"}
    run(cac_benchmark, *compared)
    assert "comparing scores" not in capsys.readouterr().out
    # What the paper decides, these flags do not leave to it.
    of_paper = (*arguments, "--methods=cac", "--split_family=neal")
    run(cac_benchmark, *of_paper, "--table=1")
    text = capsys.readouterr().out
    assert text.count("finished earlier") == 2
    mean = np.mean([r["auroc"] for r in rows if r["score"] == "gamma"])
    assert f"| CAC | {mean:.3f} ± " in (out / "table_1.md").read_text()
    for figure in ("2", "3", "convergence"):
        run(cac_benchmark, *of_paper, f"--figure={figure}")
        assert "finished earlier" in capsys.readouterr().out
        assert (out / f"figure_{figure}.png").read_bytes()[:4] == b"\x89PNG"
    (out / "results.csv").write_text("dataset,trial\n")
    with pytest.raises(ValueError, match="not written by this version"):
        run(cac_benchmark, *arguments)


@pytest.mark.slow
def test_benchmark_of_a_sweep(tmp_path, capsys):
    out = tmp_path / "sweep"
    run(
        cac_benchmark,
        "--datasets=digits",
        "--trials=0",
        "--train_flags=--test_fraction=0.8",
        # For `cac` this preset is no other.
        "--sweep=preset=paper epochs=1,2",
        f"--output_dir={out}",
    )
    assert "cac, epochs=2, gamma" in capsys.readouterr().out
    rows = read_results(out / "results.csv")
    assert {(r["variant"], r["epochs"]) for r in rows} == {
        ("epochs=1", 1),
        ("epochs=2", 2),
    }
    assert (out / "sweep.png").read_bytes()[:4] == b"\x89PNG"


def test_a_sweep_whose_runs_all_failed(tmp_path, monkeypatch, capsys):
    """Says so, in a folder that has results of other runs."""
    other = dict.fromkeys(results_csv.COLUMNS)
    other.update(dataset="digits", split_family="neal", method="cac")
    other.update(format=results_csv.FORMAT, score="gamma", trial=0, auroc=0.9)
    results_csv.write_results(tmp_path / "results.csv", [other])
    monkeypatch.setattr(
        "cac_tf.experiments.run_benchmark",
        lambda configs, *_: State([], [], dict.fromkeys(configs, "no memory")),
    )
    with pytest.raises(RuntimeError, match="2 of 2 runs failed.*\n.*no memory"):
        run(
            cac_benchmark,
            *("--datasets=digits", "--trials=0", "--sweep=epochs=1,2"),
            f"--output_dir={tmp_path}",
        )
    assert "gamma" in capsys.readouterr().out
    assert not (tmp_path / "sweep.png").exists()


def test_a_sweep_is_drawn_over_numbers():
    of_others = {"preset": ("fast", "paper"), "until_converged": (True, False)}
    words = {"schedule": ("cosine",)}
    for others in (of_others, words):
        assert cac_benchmark._axis({**others, "epochs": (1, 2)}) == "epochs"
    for sweep in ({}, of_others, words):
        assert cac_benchmark._axis(sweep) is None


def test_a_figure_shows_its_own_runs_of_a_folder():
    rows = [
        {
            "dataset": dataset,
            "method": method,
            "split_family": family,
            "variant": variant,
        }
        for dataset, method, family, variant in (
            ("mnist", "cac", "neal", "epochs=1,magnitude=2"),
            ("mnist", "cac", "neal", None),
            ("mnist", "cac", "neal", "epochs=1"),
            ("mnist", "cac", "miller2020", "epochs=1,magnitude=2"),
            ("mnist", "tuplet", "neal", "epochs=1,magnitude=2"),
            ("cifar+50", "cac", "neal", "epochs=1,magnitude=2"),
            # Only its model is wanted.
            ("cifar+10", "cac", "neal", "epochs=1,magnitude=2"),
        )
    ]
    datasets = ["mnist", "cifar+50"]
    for sweep, shown in (
        ({"epochs": (1,), "magnitude": (2,)}, [rows[0], rows[5]]),
        ({}, [rows[1]]),
    ):
        runs = experiments.plan(
            "o", datasets, ["cac"], [0], "neal", None, sweep
        )
        assert cac_benchmark._rows_of(datasets, runs, rows) == shown


def test_a_table_of_released_weights_has_what_was_released(tmp_path, capsys):
    """Of Table 4, CAC alone, and the data sets that the folder has."""
    weights = tmp_path / "weights"
    weights.mkdir()
    for name in ("MNIST", "CIFAR+10", "CIFAR+50"):
        (weights / f"{name}_0_CACclassifierAnchorLoss.pth").touch()
    values = flags.FlagValues()
    cac_benchmark.define_flags(values)
    arguments = ["--table=4", f"--released_weights={weights}", "--trials=0"]
    values(["cac-benchmark", "--output_dir=out", *arguments])
    cac_benchmark._paper_decides(values)
    assert values.methods == ["cac"]
    assert values.datasets == ["mnist", "cifar+10", "cifar+50"]
    told = capsys.readouterr().out
    assert "weights for them: svhn, cifar10, tinyimagenet." in told
    assert "weights for them: center, tuplet, anchor." in told
    # What was asked for by name is not left out in silence.
    with pytest.raises(ValueError, match="CIFAR10_0_CAC.* not found in"):
        run(
            cac_benchmark,
            *arguments,
            "--datasets=cifar10",
            "--methods=cac",
            f"--output_dir={tmp_path / 'b'}",
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table=1", "--figure=2"], "--table or --figure, not both"),
        (["--sweep=magnitud=5"], "not a field of a recipe.*'magnitude'"),
        (["--sweep=magnitude=5,x"], "--sweep: magnitude=5,x: it must be"),
        (["--sweep=magnitude="], "--sweep: magnitude=: it must be"),
        (["--sweep=magnitude=5,5.0"], "magnitude=5,5.0 contains a value twice"),
        (["--sweep=epochs=1 epochs=2"], "--sweep contains epochs twice"),
        (
            ["--sweep=epochs=1", "--train_flags=--epochs=2"],
            "both set epochs",
        ),
        (
            ["--train_flags=--preset=fast"],
            "cannot contain --preset: use --sweep=preset=fast",
        ),
        (["--sweep=preset=best"], "--sweep: preset=best"),
        (["--sweep=epochs=1", "--figure=2"], "--sweep cannot be combined with"),
        (["--sweep=epochs=1", "--table=1"], "--table allows only"),
        (
            ["--sweep=magnitude=5", "--methods=cross_entropy"],
            "magnitude is not in the recipe of cross_entropy",
        ),
        (
            ["--released_weights=w", "--train_flags=--epochs=2"],
            "cannot contain --epochs: with --released_weights, nothing",
        ),
        (["--released_weights=w"], "belong to the split family miller2020"),
        (["--trials="], "Nothing to run"),
        (["--scores=surprise"], "value should be one of <all"),
        (["--train_flags=--epoch"], "--train_flags.*epoch"),
        (["--train_flags=--trial=3"], "--train_flags cannot contain"),
        (["--train_flags=--dataset=mnist"], "--train_flags cannot contain"),
        (["--train_flags=--overwrite"], "--train_flags cannot contain"),
        (["--train_flags=--epochs='3"], "--train_flags: No closing quotation"),
        (
            ["--figure=1", "--datasets=mnist,digits"],
            "--figure=1 shows a single data set",
        ),
        (
            ["--released_weights=w", "--split_family=miller2020"],
            "released weights of the data sets mnist, .*, but not of digits",
        ),
    ],
)
def test_flags_of_the_benchmark_that_do_not_fit(tmp_path, arguments, message):
    out = tmp_path / "b"
    with pytest.raises((ValueError, flags.Error), match=message):
        run(
            cac_benchmark,
            "--datasets=digits",
            f"--output_dir={out}",
            *arguments,
        )
    assert not out.exists()


def wait_for(text, file, process):
    """Until a text is in a file that another process writes."""
    while not (file.exists() and text in file.read_text()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "to_all"),
    [
        (signal.SIGINT, False),
        (signal.SIGINT, True),  # as a terminal does
        (signal.SIGTERM, False),
        (signal.SIGKILL, False),
    ],
)
def test_an_ended_benchmark_leaves_no_orphans(tmp_path, sent, to_all):
    """Nobody trains on; the same command goes on where it was."""
    arguments = [
        *("--datasets=digits", "--trials=0", f"--output_dir={tmp_path / 'b'}"),
        "--train_flags=--epochs=20 --test_fraction=0.6",
    ]
    folder = tmp_path / "b" / "neal" / "digits" / "cac" / "trial0"
    log = folder.parent / "trial0.log"
    process = start("cac_benchmark", *arguments)
    wait_for("epoch 2/20", log, process)
    others = psutil.Process(process.pid).children(recursive=True)
    assert others
    if to_all:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    output, _ = process.communicate()
    _, alive = psutil.wait_procs(others, timeout=20)
    for orphan in alive:
        orphan.kill()
    assert not alive
    assert not (folder / "metrics.json").exists()
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert "The same command continues where it stopped." in output
        assert "Traceback" not in output + log.read_text()
        return
    assert process.returncode == -sent
    if sent == signal.SIGKILL:
        before = log.read_text()
        again = start("cac_benchmark", *arguments)
        output, _ = again.communicate()
        assert again.returncode == 0, output
        assert "done in" in output
        # The epoch it was ended in may not have been kept yet.
        assert log.read_text().startswith(before)
        assert "epoch 1/20" not in log.read_text()[len(before) :]
        assert "epoch 20/20" in log.read_text()


@pytest.mark.slow
def test_a_run_whose_process_is_killed(tmp_path):
    """By the system, which lacks memory: the benchmark goes on."""
    arguments = [
        *("--datasets=digits", "--trials=0,1"),
        "--train_flags=--epochs=8 --test_fraction=0.6",
        f"--output_dir={tmp_path / 'b'}",
    ]
    folder = tmp_path / "b" / "neal" / "digits" / "cac"
    process = start("cac_benchmark", *arguments)
    wait_for("epoch 2/8", folder / "trial0.log", process)
    for other in psutil.Process(process.pid).children():
        if "spawn_main" in " ".join(other.cmdline()):
            other.kill()
    output, _ = process.communicate()
    assert process.returncode == 1
    assert "its process was killed by signal 9 (log: " in output
    assert "1 of 2 runs failed" in output
    assert (folder / "trial1" / "metrics.json").exists()


@pytest.mark.slow
def test_a_disk_that_fills(tmp_path):
    """No file larger than 1 MB can be written: the error says so."""
    code = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        from cac_tf.train import cac_train
        sys.argv[0] = "cac-train"
        cac_train.run()
    """
    out = tmp_path / "run"
    result = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(code)),
            *(*QUICK, f"--output_dir={out}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "cac-train: error: " in result.stderr
    assert "Traceback" not in result.stderr
    assert list(pathlib.Path(out / "checkpoints").iterdir()) == []
