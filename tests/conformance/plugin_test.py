# SPDX-License-Identifier: Apache-2.0
"""A method of another package goes everywhere that ours do.

`plugin/toy_method.py` is made an installed package with the entry point
`cac_tf.plugins`; no file of ours names it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

import cac_tf
from tests.conftest import ROOT

PLUGIN = ROOT / "tests" / "conformance" / "plugin"
OPTIONS = (
    "--dataset=digits",
    "--method=toy",
    "--negative_classes=8",
    "--test_fraction=0.5",
    "--latent_width=6",
    "--error_kind=absolute",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a process in which the plugin is installed."""
    site = tmp_path_factory.mktemp("site")
    info = site / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[cac_tf.plugins]\ntoy = toy_method\n"
    )
    paths = [str(site), str(PLUGIN), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def command(binary, *arguments):
    return [sys.executable, "-m", f"cac_tf.train.{binary}", *arguments]


def completed(environment, arguments):
    """What a process said, whether it succeeded or not."""
    return subprocess.run(
        arguments,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def run(environment, binary, *arguments):
    result = completed(environment, command(binary, *arguments))
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def finished(environment, tmp_path_factory):
    """The folder of a run that was never interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    run(environment, "cac_train", *OPTIONS, f"--output_dir={folder}")
    return folder


def metrics_of(folder):
    measures = json.loads((folder / "metrics.json").read_text())
    return {
        name: value
        for name, value in measures.items()
        if name not in ("seconds", "microseconds_per_image")
    }


def test_its_flags_and_help(environment):
    result = completed(environment, command("cac_train", "--help=all"))
    text = " ".join(result.stdout.split())
    methods = ", ".join(sorted([*cac_tf.methods.names(), "toy"]))
    assert f"how the model is trained. One of: {methods}." in text
    assert "Width of the toy's latent vectors. Only for the method toy." in text
    assert "One of: squared, absolute." in text
    result = completed(
        environment, command("cac_train", *OPTIONS, "--momentum=0.5")
    )
    assert result.returncode != 0
    assert "--momentum=0.5 has no effect with --method=toy" in result.stderr


def test_a_plan_with_it(environment, tmp_path):
    """How long it takes is not known: its recipe has no network."""
    text = run(
        environment,
        "cac_benchmark",
        "--datasets=digits",
        "--methods=toy",
        "--trials=0",
        "--dry_run",
        f"--output_dir={tmp_path}",
    )
    assert "trains, for an unknown time" in text


@pytest.mark.slow
def test_it_goes_through_the_suites_of_ours(environment):
    result = completed(
        environment,
        [
            *(sys.executable, "-m", "pytest", "-k", "toy"),
            *("-p", "no:cacheprovider"),
            *(
                f"tests/conformance/{kind}_test.py"
                for kind in ("losses", "methods", "scores")
            ),
        ],
    )
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) >= 15


def test_it_leaves_a_whole_run(finished):
    config = json.loads((finished / "config.json").read_text())
    recipe = config["settings"]["recipe"]
    assert recipe["latent_width"] == 6
    assert recipe["error_kind"] == "absolute"
    measures = metrics_of(finished)
    assert measures["score"] == "toy_gamma_and_error"
    assert set(measures["scores"]) == {"toy_gamma_and_error", "gamma"}
    assert measures["counts"]["negatives"] > 0
    assert measures["unknown_class_names"] == ["3", "6", "7"]
    history = json.loads((finished / "history.json").read_text())
    trainings = [logs["training"] for logs in history]
    assert trainings == ["auto_encoder"] * 3 + ["classifier"] * 6
    assert "toy_gamma_and_error" in (finished / "report.html").read_text()


def finished_epochs(folder):
    """How many epochs the checkpoints of a run have."""
    count = 0
    for name in ("auto_encoder", "classifier"):
        path = folder / "checkpoints" / f"{name}.npz"
        if path.exists():
            with np.load(path) as file:
                count += len(json.loads(str(file["record"]))["history"])
    return count


@pytest.mark.slow
def test_killed_in_each_training_it_ends_the_same(
    environment, finished, tmp_path
):
    folder = tmp_path / "toy"
    arguments = command("cac_train", *OPTIONS, f"--output_dir={folder}")
    for wanted in (1, 5):
        process = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while finished_epochs(folder) < wanted and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (folder / "metrics.json").exists()
    run(environment, "cac_train", *OPTIONS, f"--output_dir={folder}")
    assert metrics_of(folder) == metrics_of(finished)
    with (
        np.load(folder / "scores.npz") as resumed,
        np.load(finished / "scores.npz") as whole,
    ):
        for name in whole.files:
            np.testing.assert_array_equal(resumed[name], whole[name])
    again = run(
        environment,
        "cac_train",
        f"--config={folder}/config.json",
        f"--output_dir={folder}",
    )
    assert "finished" in again


def test_it_is_evaluated(environment, finished, tmp_path):
    out = run(
        environment,
        "cac_evaluate",
        f"--model={finished}/model.keras",
        "--scores=max_logit,toy_gamma_and_error",
        f"--output_dir={tmp_path}/again",
    )
    assert "toy_gamma_and_error" in out
    again = metrics_of(tmp_path / "again")
    assert again["auroc"] == pytest.approx(metrics_of(finished)["auroc"])


@pytest.mark.slow
def test_it_is_benchmarked(environment, tmp_path):
    out = run(
        environment,
        "cac_benchmark",
        "--datasets=digits",
        "--methods=toy",
        "--trials=1",
        "--train_flags=--test_fraction=0.5 --epochs=1",
        f"--output_dir={tmp_path}",
    )
    assert "toy_gamma_and_error" in out
    assert (tmp_path / "results.csv").exists()


SERVED = """
import sys
import numpy as np, tensorflow as tf, cac_tf
from cac_tf.data.sources.digits import load_digits
model = cac_tf.load_model(sys.argv[1] + "/model.keras")
images = load_digits()[0].images[:64]
expected = model.predict_open_set(images)
served = tf.saved_model.load(sys.argv[1] + "/serving/1").signatures
out = served["serving_default"](images=tf.constant(images, tf.float32))
np.testing.assert_array_equal(out["class_id"], expected.class_id)
np.testing.assert_allclose(
    out["unknown_score"], expected.unknown_score, rtol=1e-5)
model.save(sys.argv[2])
again = cac_tf.load_model(sys.argv[2]).predict_open_set(images)
np.testing.assert_array_equal(again.unknown_score, expected.unknown_score)
outputs = model.predict(images, verbose=0)
assert outputs["latents"].shape == (64, 6)
usual_error = float(model.statistics["usual_error"])
assert usual_error > 0.01
np.testing.assert_allclose(
    outputs["gamma"].min(axis=1) + outputs["reconstruction_error"],
    expected.unknown_score + usual_error, rtol=1e-5)
# Centers were learnt; the means of the logits around them are the model's.
(learnt,) = (w for w in model.classifier.weights if w.name == "centers")
assert not np.allclose(learnt, 10 * np.eye(6), atol=1e-3)
assert not np.allclose(learnt, model.centers, atol=1e-3)
print("served")
"""


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only TensorFlow exports"
)
def test_it_is_loaded_saved_and_served(environment, finished, tmp_path):
    result = completed(
        environment,
        [
            sys.executable,
            "-c",
            "from cac_tf import registry; registry.load_plugins()\n" + SERVED,
            str(finished),
            str(tmp_path / "model.keras"),
        ],
    )
    assert "served" in result.stdout, result.stderr


def test_no_file_of_ours_names_it():
    for folder in ("cac_tf", "train", "ops"):
        for path in (ROOT / folder).rglob("*.py"):
            assert "toy" not in path.read_text().lower().split(), path


def test_without_it_its_models_say_what_is_missing(finished):
    """Loaded where the plugin is not installed."""
    with pytest.raises((ValueError, TypeError), match="Toy|toy_method"):
        cac_tf.load_model(finished / "model.keras")
