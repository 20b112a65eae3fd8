# SPDX-License-Identifier: Apache-2.0
"""What is loaded when: nothing heavy before it is needed."""

import importlib
import json
import subprocess
import sys

import keras
import pytest

import cac_tf
from cac_tf.methods import method
from cac_tf.models.networks import registry as network_registry
from cac_tf.scores import registry as score_registry
from tests.conftest import ROOT

BINARIES = (
    "cac_train",
    "cac_evaluate",
    "cac_benchmark",
    "cac_export",
    "cac_demo",
    "cac_predict",
    "cac_monitor",
    "cac_enroll",
    "cac_import_weights",
    "cac_report",
)
STANDARD = sys.stdlib_module_names | {"sitecustomize"}
HEAVY = {"tensorflow", "keras", "sklearn", "scipy", "matplotlib", "jax"}
# Says after the end of a program what it has loaded.
LOADED = """
import atexit, json, runpy, sys
binary, path, *arguments = sys.argv[1:]
@atexit.register
def tell():
    with open(path, "w") as file:
        json.dump(sorted(sys.modules), file)
sys.argv = [binary, *arguments]
runpy.run_module("cac_tf.train." + binary, run_name="__main__", alter_sys=True)
"""


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def started(binary, tmp_path, *arguments):
    """What a binary prints, after a check of what it loaded."""
    path = tmp_path / "modules.json"
    result = python(LOADED, binary, path, *arguments)
    assert "Traceback" not in result.stderr
    loaded = {name.split(".")[0] for name in json.loads(path.read_text())}
    assert not loaded & HEAVY
    return result


@pytest.mark.parametrize(
    ("binary", "flag"),
    [
        *((binary, "--help") for binary in BINARIES),
        *(("cac_train", flag) for flag in ("-h", "--helpfull", "--version")),
    ],
)
def test_help_loads_nothing_heavy(binary, flag, tmp_path):
    result = started(binary, tmp_path, flag)
    assert (result.returncode, result.stderr) == (0, "")
    has_output = binary not in ("cac_demo", "cac_monitor")
    shown = "--output" if has_output else "--model"
    shown = cac_tf.__version__ if flag == "--version" else shown
    assert shown in result.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--learning_rate=inf", "--learning_rate"),
        ("--method=cca", "did you mean 'cac'?"),
        ("--epochs=1e20", "--epochs=1e20: it must be a whole number."),
        (f"--epochs={10**20}", "--epochs"),
        ("--epochs=0", "--epochs must be at least 1; got 0"),
        (f"--seed={2**40}", "--seed"),
        ("--dataset=", "--dataset"),
        ("--epoch=3", "--epoch; did you mean 'epochs'?"),
        ("extra", "unexpected argument 'extra'"),
        ("--true_positive_rate=1", "--true_positive_rate must be below 1; got"),
        (
            "--scores=gamma,hop,vim",
            "--scores=gamma,hop,vim: unknown value 'hop'. Available: all, ",
        ),
        ("--devices=two", "--devices=two: it must be a whole number."),
        ("--learning_rate=x", "--learning_rate=x: it must be a number."),
        ("--scale=2", "--scale must be at most 1; got 2"),
    ],
)
def test_wrong_values_load_nothing_heavy(flags, message, tmp_path):
    """And are answered by one sentence."""
    result = started("cac_train", tmp_path, "--dataset=digits", flags)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 2


def modules_after(code):
    result = python(
        f"{code}; import sys, json; print(json.dumps([*sys.modules]))"
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_import_loads_next_to_nothing():
    new = modules_after("import cac_tf") - modules_after("import lazy_loader")
    new = {name for name in new if name.split(".")[0] not in STANDARD}
    assert new == {"cac_tf", "cac_tf.version"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    backbone = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    model = cac_tf.OpenSetClassifier(backbone, ["left", "right"])
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    return path


@pytest.mark.parametrize(
    "code",
    [
        "import cac_tf; load = cac_tf.load_model",
        "from cac_tf import OpenSetClassifier\n"
        "import keras; load = keras.saving.load_model",
    ],
)
def test_our_models_are_loaded(code, saved):
    result = python(f"{code}\nimport sys; print(load(sys.argv[1]))", saved)
    assert "OpenSetClassifier" in result.stdout, result.stderr


def test_keras_knows_only_what_is_imported(saved):
    result = python(
        "import cac_tf, keras, sys; keras.saving.load_model(sys.argv[1])",
        saved,
    )
    assert "OpenSetClassifier" in result.stderr.splitlines()[-1]


def test_a_package_is_not_hidden_by_its_modules():
    """Functions that are named like the module that they are in."""
    result = python(
        "import cac_tf.experiments.train\n"
        "import cac_tf.experiments.evaluate_saved\n"
        "from cac_tf.experiments import train, evaluate\n"
        "print(*map(callable, (train, evaluate)))"
    )
    assert result.stdout.split() == ["True"] * 2, result.stderr


@pytest.mark.parametrize(
    "registry",
    [
        score_registry._SCORES,
        method._METHODS,
        network_registry._NETWORKS,
    ],
    ids=lambda registry: registry._kind,
)
def test_files_are_named_like_what_they_register(registry):
    for name in registry._files:
        importlib.import_module(f"{registry._package}.{name}")
    own = {
        name
        for name, thing in registry._entries.items()
        if getattr(thing, "__module__", type(thing).__module__).startswith(
            registry._package + "."
        )
    }
    assert own == set(registry._files)


def test_a_name_of_ours_is_taken_before_it_is_imported():
    result = python(
        "from cac_tf.models import networks\n"
        "def resnet18(): pass\n"
        "try: networks.register(resnet18)\n"
        "except ValueError as error: print(error)"
    )
    assert "The network 'resnet18' is already registered" in result.stdout
