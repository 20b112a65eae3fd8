# SPDX-License-Identifier: Apache-2.0
"""The binaries as their users meet them."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from absl import flags

import cac_tf
from cac_tf import benchmark
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import environment
from cac_tf.train import cac_benchmark
from cac_tf.train import cac_evaluate
from cac_tf.train import cac_export
from cac_tf.train import cac_train
from tests.conftest import ROOT

METRICS = {
    "auroc",
    "accuracy",
    "ccr",
    "oscr",
    "bhattacharyya",
    "openness",
    "threshold",
    "true_positive_rate",
    "false_positive_rate",
    "counts",
    "dataset",
    "split_family",
    "trial",
    "method",
}
QUICK = ["--dataset=digits", "--epochs=3", "--test_fraction=0.5"]

pytestmark = pytest.mark.filterwarnings("ignore:Class .* keeps its anchor")


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
        "serving",
    }
    metrics = json.loads((finished / "metrics.json").read_text())
    assert set(metrics) >= METRICS
    assert metrics["dataset"] == "digits"
    assert metrics["method"] == "cac"
    config = json.loads((finished / "config.json").read_text())
    settings = config["settings"]
    assert settings["epochs"] == 3
    assert settings["learning_rate"] == 0.02  # of the preset
    assert config["environment"]["backend"] == "tensorflow"
    assert config["environment"]["versions"]["cac_tf"] == cac_tf.__version__
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
    images = cac_tf.data.load_digits()[0].images[:50]
    out = serve(images=tf.constant(images, tf.float32))
    expected = model.predict_open_set(images)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(out["gamma"], expected.gamma, rtol=1e-5)


def test_the_report_needs_no_other_file(finished):
    page = (finished / "report.html").read_text()
    for text in (
        "digits: 6 known classes, trial 0 of neal",
        "ROC curve",
        "Unknown scores",
        "OSCR curve",
        "Confusion matrix",
        "Unknown, kept as known",
        "learning_rate",
    ):
        assert text in page
    assert "data:image/svg+xml;base64," in page
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_finished_run_is_left_alone(finished, capsys):
    before = (finished / "metrics.json").stat().st_mtime_ns
    run(cac_train, *QUICK, f"--output_dir={finished}")
    assert "finished" in capsys.readouterr().out
    assert (finished / "metrics.json").stat().st_mtime_ns == before


def test_another_configuration_in_the_same_folder(finished):
    before = sorted(p.stat().st_mtime_ns for p in finished.rglob("*"))
    with pytest.raises(ValueError, match=r"epochs: 3 there, 4 now"):
        run(
            cac_train,
            *["--dataset=digits", "--epochs=4", "--test_fraction=0.5"],
            f"--output_dir={finished}",
        )
    assert sorted(p.stat().st_mtime_ns for p in finished.rglob("*")) == before


def test_evaluate_gives_the_same_numbers(finished, tmp_path):
    out = tmp_path / "again"
    run(
        cac_evaluate,
        f"--model={finished / 'model.keras'}",
        f"--output_dir={out}",
    )
    one, two = (
        json.loads((p / "metrics.json").read_text()) for p in (finished, out)
    )
    assert two["auroc"] == pytest.approx(one["auroc"], abs=1e-6)
    assert two["threshold"] == one["threshold"]
    assert (out / "report.html").exists()
    run(
        cac_evaluate,
        f"--model={finished / 'model.keras'}",
        f"--output_dir={tmp_path / 'stricter'}",
        "--dataset=digits",
        "--test_fraction=0.5",
        "--true_positive_rate=0.5",
    )
    stricter = json.loads((tmp_path / "stricter" / "metrics.json").read_text())
    assert stricter["threshold"] < one["threshold"]
    assert stricter["true_positive_rate"] < 0.7


def test_evaluate_bad_input(finished, tmp_path):
    model = f"--model={finished / 'model.keras'}"
    out = f"--output_dir={tmp_path / 'out'}"
    with pytest.raises(ValueError, match="--trial needs --dataset"):
        run(cac_evaluate, model, out, "--trial=1")
    with pytest.raises(ValueError, match="knows the classes"):
        run(cac_evaluate, model, out, "--dataset=digits", "--trial=1")
    with pytest.raises(FileNotFoundError, match="no model file"):
        run(cac_evaluate, "--model=none.keras", out)
    alone = tmp_path / "model.keras"
    alone.write_bytes((finished / "model.keras").read_bytes())
    with pytest.raises(ValueError, match="pass --dataset"):
        run(cac_evaluate, f"--model={alone}", out)
    with pytest.raises(ValueError, match="folder of the model itself"):
        run(cac_evaluate, model, f"--output_dir={finished}", "--overwrite")
    assert not (tmp_path / "out").exists()
    assert (finished / "model.keras").exists()


def test_export(finished, tmp_path):
    arguments = (
        f"--model={finished / 'model.keras'}",
        f"--output_dir={tmp_path / 'serving'}",
        "--version=7",
    )
    run(cac_export, *arguments)
    assert (tmp_path / "serving" / "7" / "saved_model.pb").exists()
    with pytest.raises(FileExistsError, match="never overwritten"):
        run(cac_export, *arguments)


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["--format=litert"], "model.tflite"),
        (["--format=litert", "--quantize=dynamic_range"], "model.tflite"),
        (["--format=onnx"], "model.onnx"),
    ],
)
def test_export_of_files(finished, tmp_path, capsys, arguments, file):
    if file == "model.onnx":
        pytest.importorskip("tf2onnx")
    arguments = [
        f"--model={finished / 'model.keras'}",
        f"--output_dir={tmp_path}",
        "--version=2",
        *arguments,
    ]
    run(cac_export, *arguments)
    path = tmp_path / "2" / file
    assert f"Written: {path} ({path.stat().st_size:,} bytes)" in (
        capsys.readouterr().out
    )
    with pytest.raises(FileExistsError, match="never overwritten"):
        run(cac_export, *arguments)


def test_options_of_the_export(finished, tmp_path):
    folder = tmp_path / "my models"
    arguments = [f"--model={finished / 'model.keras'}"]
    run(
        cac_export,
        *arguments,
        f"--output_dir={folder}",
        "--name=digits",
        "--batch_sizes=1,16",
    )
    assert "max_batch_size { value: 16 }" in (
        (folder / "batching.config").read_text()
    )
    assert 'name: "digits"' in (folder / "models.config").read_text()
    for wrong, message in (
        (["--version=0"], "whole number of at least 1"),
        (["--version=0", "--format=onnx"], "whole number of at least 1"),
        (["--batch_sizes=1,x"], "--batch_sizes must be whole numbers"),
        (["--batch_sizes=8,1"], "must be ascending"),
        (["--quantize=dynamic_range"], "no effect with --format=tf_serving"),
        (["--name=x", "--format=onnx"], "no effect with --format=onnx"),
        ([], "Pass name="),
    ):
        target = tmp_path / "other models"
        with pytest.raises(ValueError, match=message):
            run(cac_export, *arguments, f"--output_dir={target}", *wrong)
        assert not target.exists()
    with pytest.raises(ValueError, match="Choose another --output_dir"):
        run(
            cac_export,
            *(*arguments, f"--output_dir={folder}", "--format=litert"),
        )


def test_export_of_a_model_without_a_threshold(finished, tmp_path):
    model = cac_tf.load_model(finished / "model.keras").with_score("gamma")
    model.save(tmp_path / "model.keras")
    arguments = [
        f"--model={tmp_path / 'model.keras'}",
        f"--output_dir={tmp_path / 'digits'}",
    ]
    with pytest.raises(ValueError, match="no valid threshold"):
        run(cac_export, *arguments)
    assert not (tmp_path / "digits").exists()
    run(cac_export, *arguments, "--allow_uncalibrated")
    assert "not calibrated" in (tmp_path / "digits" / "README.md").read_text()


def weights(folder):
    model = cac_tf.load_model(folder / "model.keras")
    return [np.asarray(w) for w in model.weights]


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
    assert "The same command goes on" in "".join(said)
    assert "Traceback" not in "".join(said)
    assert "s left" in "".join(said)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--dataset=digits", "--epoch=3"], "Unknown command line flag"),
        (["--dataset=digits", "extra"], "unexpected argument 'extra'"),
        (["--dataset=digits", "--true_positive_rate=1"], "must be in (0, 1)"),
        (["--dataset=digits", "--scale=2"], "scale must be in (0, 1]"),
        (["--dataset=digits", "--data_dir=x"], "--data_dir has no effect"),
        (["--dataset=none.npz", "--known_classes=a,b"], "There is no file"),
        ([], "--dataset"),
    ],
)
def test_bad_command_lines_are_one_sentence(tmp_path, arguments, message):
    process = start("cac_train", *arguments, f"--output_dir={tmp_path / 'r'}")
    output, _ = process.communicate()
    assert process.returncode == 1
    assert message in output
    assert "Traceback" not in output
    assert not (tmp_path / "r" / "checkpoints").exists()


def test_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds no run"):
        run(cac_train, *QUICK, f"--output_dir={tmp_path}")
    assert [p.name for p in tmp_path.iterdir()] == ["letters.txt"]


def test_an_interrupted_start_and_overwrite(finished, tmp_path):
    """A kill before config.json is complete; then settings that differ."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".writing-config.json").touch()
    opened = RunFolder.open(folder, {"epochs": 3}, {"mean": 1})
    assert {p.name for p in folder.iterdir()} == {"config.json"}
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "latest.npz").touch()
    assert RunFolder.find(folder, {"epochs": 3}) == opened
    with pytest.raises(ValueError, match="epochs: 3 there, 4 now"):
        RunFolder.open(folder, {"epochs": 4}, {"mean": 1})
    with pytest.raises(ValueError, match="other data .mean: 1 there, 2 now"):
        RunFolder.open(folder, {"epochs": 3}, {"mean": 2})
    (folder / "config.json").unlink()  # as if --overwrite had been killed
    RunFolder.open(folder, {"epochs": 4}, {"mean": 1}, overwrite=True)
    assert not (folder / "checkpoints" / "latest.npz").exists()


def test_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment()["commit"] is None


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
    metrics = json.loads((out / "metrics.json").read_text())
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
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["auroc"] > 0.7
    assert (metrics["dataset"], metrics["trial"]) == ("digits", 1)
    # The preset is that of the data set that was dumped.
    settings = json.loads((out / "config.json").read_text())["settings"]
    assert settings["rotation"] == 15.0
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


def test_dumped_arrays_are_the_same_experiment(tmp_path):
    path = tmp_path / "digits.npz"
    run(
        cac_train,
        "--dataset=digits",
        "--split_family=miller2020",
        "--trial=3",
        "--split_seed=5",
        f"--dump_arrays={path}",
    )
    one = cac_tf.data.load_open_set_dataset(
        "digits", split_family="miller2020", trial=3, split_seed=5
    )
    two = cac_tf.data.load_open_set_dataset(str(path))
    for part in ("train", "validation", "known_test", "unknown_test"):
        for a, b in zip(getattr(one, part), getattr(two, part), strict=True):
            np.testing.assert_array_equal(a, b)
    for name in (
        "name",
        "class_names",
        "class_ids",
        "unknown_class_names",
        "unknown_class_ids",
        "split_family",
        "trial",
        "validation_digest",
    ):
        assert getattr(one, name) == getattr(two, name), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--patience=3"], "--patience has no effect"),
        (["--second_stage_epochs=3"], "--second_stage_epochs has no effect"),
        (
            ["--method=cross_entropy", "--magnitude=5"],
            "--magnitude has no effect with --method=cross_entropy",
        ),
        (
            ["--schedule=two_stage", "--second_stage_learning_rate=1e-4"],
            "--second_stage_learning_rate has no effect",
        ),
        (["--until_converged"], "--until_converged has no effect"),
        (["--scores=gamma,none"], "--scores must be all, or names of"),
        (
            [
                "--method=cross_entropy",
                "--score=openmax",
                "--evaluate_every=1",
            ],
            "--evaluate_every has no effect with --score=openmax",
        ),
        (["--dump_arrays=a.npz", "--seed=1"], "--output_dir has no effect"),
        (["--stream"], "--stream has no effect"),
        (["--trial=9"], "trials go from 0 to 4"),
    ],
)
def test_flags_without_effect(arguments, message, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=message):
        run(cac_train, "--dataset=digits", f"--output_dir={out}", *arguments)
    assert not out.exists()


def test_until_converged(tmp_path):
    run(
        cac_train,
        *("--dataset=digits", "--test_fraction=0.6"),
        *("--schedule=two_stage", "--until_converged", "--patience=1"),
        f"--output_dir={tmp_path / 'out'}",
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["settings"]["epochs"] == 1000
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    values = [logs["val_anchor_loss"] for logs in history]
    assert {logs["stage"] for logs in history} == {1, 2}
    assert values[-1] >= min(values)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["epochs"] == len(history) < 100


def test_evaluate_recentres_and_changes_the_score(finished, tmp_path):
    """What was evaluated is saved, and is what the numbers say."""
    model = f"--model={finished / 'model.keras'}"
    out = tmp_path / "logit"
    run(cac_evaluate, model, f"--output_dir={out}", "--score=max_logit")
    before = json.loads((finished / "metrics.json").read_text())
    after = json.loads((out / "metrics.json").read_text())
    assert after["score"] == "max_logit"
    assert after["auroc"] == pytest.approx(
        before["scores"]["max_logit"]["auroc"], abs=1e-6
    )
    changed = cac_tf.load_model(out / "model.keras")
    assert changed.threshold == pytest.approx(after["threshold"])
    assert changed.score.name == "max_logit"
    again = tmp_path / "recentred"
    run(cac_evaluate, model, f"--output_dir={again}", "--recentre")
    # Centres come from the same images: nothing changes.
    np.testing.assert_allclose(
        cac_tf.load_model(again / "model.keras").centres,
        cac_tf.load_model(finished / "model.keras").centres,
        rtol=1e-5,
    )
    recentred = json.loads((again / "metrics.json").read_text())
    assert recentred["auroc"] == pytest.approx(before["auroc"], abs=1e-5)


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
        assert cac_train._default_folder(values) == folder


def test_unknown_classes_make_a_split_of_their_own(tmp_path):
    load = cac_tf.data.load_open_set_dataset
    dataset = load("digits", unknown_classes=["3", "8"])
    assert dataset.unknown_class_names == ("3", "8")
    assert (dataset.split_family, dataset.trial) == ("custom", None)
    path = tmp_path / "digits.npz"
    run(cac_train, "--dataset=digits", f"--dump_arrays={path}")
    again = load(str(path), unknown_classes=["3"])
    assert again.unknown_class_names == ("3",)
    assert len(again.unknown_class_ids) == 1
    with pytest.raises(ValueError, match="listed twice"):
        load("digits", unknown_classes=["3", "3"])
    with pytest.raises(ValueError, match="--split_seed has no effect"):
        load(str(path), split_seed=1)


def test_recentring_a_cross_entropy_model(tmp_path):
    out = tmp_path / "run"
    run(
        cac_train,
        *("--dataset=digits", "--method=cross_entropy", "--score=openmax"),
        *("--epochs=4", f"--output_dir={out}"),
    )
    metrics = json.loads((out / "metrics.json").read_text())
    assert list(metrics["scores"]) == ["openmax", "max_softmax", "max_logit"]
    assert (metrics["method"], metrics["score"]) == ("cross_entropy", "openmax")
    # Class means are centres that mean something to it: nothing changes.
    again = tmp_path / "again"
    model = f"--model={out / 'model.keras'}"
    run(cac_evaluate, model, f"--output_dir={again}", "--recentre")
    recentred = json.loads((again / "metrics.json").read_text())
    assert recentred["auroc"] == pytest.approx(metrics["auroc"], abs=1e-5)
    assert metrics["bhattacharyya"] is not None


def test_every_score_of_one_model(finished, tmp_path, capsys):
    """In one table, one report, one file."""
    out = tmp_path / "all"
    model = f"--model={finished / 'model.keras'}"
    run(cac_evaluate, model, f"--output_dir={out}", "--scores=all")
    said = capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics["scores"]) == set(cac_tf.scores.names())
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
        assert f"<td>{name}</td><td>{measures['auroc']:.4f}</td>" in page
    assert not (out / "model.keras").exists()
    for wrong in ("--scores=gamma,entropy", "--scores=gamma,all"):
        with pytest.raises(ValueError, match="--scores must be all, or names"):
            run(cac_evaluate, model, f"--output_dir={out}", wrong)


def test_auto_is_a_score_of_known_data(finished, tmp_path, capsys):
    out = tmp_path / "auto"
    model = f"--model={finished / 'model.keras'}"
    run(cac_evaluate, model, f"--output_dir={out}", "--score=auto")
    said = capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert f"--score=auto chose {metrics['score']}" in said
    # The first of the list that was printed has the largest separation.
    (first, *_) = [w for w in said.splitlines() if "from composites" in w]
    assert first.split()[0] == metrics["score"]
    saved = cac_tf.load_model(out / "model.keras")
    assert saved.score.name == metrics["score"]
    assert saved.threshold == pytest.approx(metrics["threshold"])
    assert saved.score.is_fitted


def test_two_views_on_the_command_line(finished, tmp_path):
    """Digits refuse them; of other data they are kept with the model."""
    model = f"--model={finished / 'model.keras'}"
    out = tmp_path / "flip"
    with pytest.raises(ValueError, match="digits is not for mirror images"):
        run(cac_evaluate, model, f"--output_dir={out}", "--views=flip")
    for flag in ("--flip=0.5", "--epochs=1"):
        with pytest.raises(ValueError, match="digits is not for mirror images"):
            run(cac_train, *QUICK, flag, "--views=flip", f"--output_dir={out}")
    assert not out.exists()
    rng = np.random.default_rng(0)
    path = tmp_path / "made.npz"
    labels = np.arange(600) % 3
    images = rng.integers(0, 60, (600, 8, 8, 1))
    images += 90 * labels[:, None, None, None]
    np.savez(path, x_train=images, y_train=labels)
    arguments = [f"--dataset={path}", "--known_classes=0,1", "--epochs=1"]
    with pytest.raises(ValueError, match="with --flip=0 they are not"):
        run(
            cac_train,
            *arguments,
            *("--views=flip", "--flip=0", f"--output_dir={out}"),
        )
    run(cac_train, *arguments, "--views=flip", f"--output_dir={out}")
    assert cac_tf.load_model(out / "model.keras").views == "flip"
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["views"] == "flip"
    again = tmp_path / "one view"
    run(
        cac_evaluate,
        f"--model={out / 'model.keras'}",
        *(f"--output_dir={again}", "--views=one"),
    )
    assert cac_tf.load_model(again / "model.keras").views is None


def test_a_shared_model_is_evaluated_on_the_other_set(tmp_path):
    """CIFAR+50 takes the model of CIFAR+10, with the same data flags."""
    runs = benchmark.plan(
        str(tmp_path), ["cifar+10", "cifar+50"], ["cac"], [2], "neal"
    )
    values = flags.FlagValues()
    cac_train.define_flags(values)
    own = cac_benchmark._train_arguments(runs[0], "--image_size=16 --nostream")
    values(["cac-train", *own])
    *_, settings = cac_train.configure(values)
    RunFolder.open(runs[0].path, settings, {})
    values = flags.FlagValues()
    cac_evaluate.define_flags(values)
    values(
        [
            "cac-evaluate",
            *cac_benchmark._evaluate_arguments(runs[1], runs[1].path),
        ]
    )
    assert values.dataset == "cifar+50"
    assert values.overwrite
    assert values.model == os.path.join(runs[0].path, "model.keras")
    assert values.output_dir == runs[1].path
    assert (values.trial, values.split_family) == (2, "neal")
    assert (values.image_size, values.stream) == (16, False)
    # A run of its own in the place of the evaluation is not overwritten.
    model = runs[0].folder.file("model.keras")
    pathlib.Path(model).touch()
    RunFolder.open(runs[1].path, settings, {})
    (pathlib.Path(runs[1].path) / "metrics.json").touch()
    with pytest.raises(ValueError, match="trained on its own"):
        cac_benchmark._is_finished(runs[1], settings)
    settings["model_sha256"] = hashlib.sha256(b"").hexdigest()
    RunFolder.open(runs[1].path, settings, {}, overwrite=True)
    (pathlib.Path(runs[1].path) / "metrics.json").touch()
    assert cac_benchmark._is_finished(runs[1], settings)
    # The model was trained again since.
    pathlib.Path(model).write_bytes(b"another")
    assert not cac_benchmark._is_finished(runs[1], settings)


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
    (row, *others) = benchmark.read_results(out / "results.csv")
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
    assert len(benchmark.read_results(out / "results.csv")) == 6
    # One row a score, by an evaluation of the runs that are there.
    compared = (*arguments, "--scores=vim,energy")
    run(cac_benchmark, *compared)
    text = capsys.readouterr().out
    assert text.count("finished earlier") == 2
    assert text.count("comparing scores") == 2
    rows = benchmark.read_results(out / "results.csv")
    assert len(rows) == 10
    assert {r["score"] for r in rows} >= {"vim", "energy", "min_distance"}
    run(cac_benchmark, *compared)
    assert "comparing scores" not in capsys.readouterr().out
    with pytest.raises(ValueError, match="--scores must be all"):
        run(cac_benchmark, *arguments, "--scores=entropy")
    with pytest.raises(ValueError, match="--train_flags.*epoch"):
        run(
            cac_benchmark, *arguments[:2], arguments[3], "--train_flags=--epoch"
        )
    for flag in ("--trial=3", "--dataset=mnist", "--overwrite"):
        with pytest.raises(ValueError, match="--train_flags cannot hold"):
            run(
                cac_benchmark,
                *(*arguments[:2], arguments[3]),
                f"--train_flags={flag}",
            )
    (out / "results.csv").write_text("dataset,trial\n")
    with pytest.raises(ValueError, match="not written by this version"):
        run(cac_benchmark, *arguments)


def test_a_run_of_another_version(finished, tmp_path):
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "config.json").write_text('{"settings": {}}')
    with pytest.raises(ValueError, match="format is None, this version's 3"):
        run(cac_train, *QUICK, f"--output_dir={folder}")


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
