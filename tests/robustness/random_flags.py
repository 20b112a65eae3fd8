# SPDX-License-Identifier: Apache-2.0
"""Random combinations of the flags of all binaries.

A command line either is refused with one message, or comes as far as reading
data, training or writing an export, which are left out here. It never ends in
an error of Python's own kind, such as a TypeError, and writes nothing.
"""

import contextlib
import importlib
import io
import os
import sys
import unittest.mock

from absl import flags

import cac_tf
from tests.robustness import runs

_BINARIES = (
    "cac_train",
    "cac_evaluate",
    "cac_export",
    "cac_benchmark",
    "cac_import_weights",
    "cac_predict",
    "cac_monitor",
    "cac_enroll",
    "cac_report",
)
# What would take long. Where it is reached, the command line was accepted.
_WORK = (
    "load_open_set_dataset",
    "write_model_folder",
    "write_litert",
    "write_onnx",
    "images_per_second",
    "do",
    "evaluate_again",
    "find_model",
    "inputs_in",
    "enroll_saved",
)
_REFUSALS = (flags.Error, ValueError, OSError, RuntimeError)
_LONGEST_MESSAGE = 4000


class _WorkBeginsError(BaseException):
    """Nothing catches it on the way."""


def prepare(folder):
    """The path of a model; the binaries and what they use, imported."""
    for name in _BINARIES:
        importlib.import_module(f"cac_tf.train.{name}")
    # These packages are lazy: what is asked for later would stay replaced.
    for package in (
        cac_tf.batch,
        cac_tf.data,
        cac_tf.export,
        cac_tf.experiments,
    ):
        for name in dir(package):
            getattr(package, name)
    importlib.import_module("cac_tf.experiments.benchmark")
    with contextlib.redirect_stdout(io.StringIO()):
        runs.train(folder / "run")
    return folder / "run" / "model.keras"


def case(rng, folder, prepared):
    name = str(rng.choice(_BINARIES))
    binary = sys.modules[f"cac_tf.train.{name}"]
    values = flags.FlagValues()
    binary.define_flags(values)
    line = _command_line(rng, name, values, prepared)
    result = "accepted"
    said = io.StringIO()
    try:
        with (
            _without_work(),
            contextlib.chdir(folder),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            inputs = values(["binary", *line])[1:]
            takes_inputs = name in (
                *("cac_predict", "cac_monitor", "cac_report"),
            )
            binary.main(*((values, inputs) if takes_inputs else (values,)))
    except _WorkBeginsError:
        pass
    except _REFUSALS as error:
        assert str(error), line
        assert len(str(error)) < _LONGEST_MESSAGE, line
        result = "refused"
    except BaseException as error:
        raise AssertionError(line) from error
    assert not os.listdir(folder), line
    return f"{name}: {result}"


@contextlib.contextmanager
def _without_work():
    def begin(*args, **kwargs):
        raise _WorkBeginsError

    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] != "cac_tf":
                continue
            for attribute in set(_WORK) & set(vars(module)):
                stack.enter_context(
                    unittest.mock.patch.object(module, attribute, begin)
                )
        yield


_USUAL = {
    "cac_train": ("--dataset=digits",),
    "cac_evaluate": ("--model={model}", "--output_dir=out"),
    "cac_export": ("--model={model}", "--output_dir=out"),
    "cac_benchmark": ("--datasets=digits", "--output_dir=out"),
    "cac_predict": ("--model={model}", "photo.jpg"),
    "cac_monitor": ("--model={model}", "--state=state.json", "answers.csv"),
    "cac_enroll": ("--model={model}", "--add=a:photo.jpg", "--output_dir=out"),
    "cac_report": ("--compare={model}", "runs/other"),
    "cac_import_weights": (
        *("--checkpoint=a.pth", "--dataset=mnist", "--output_dir=out"),
    ),
}
_TEXTS = (
    *("", " ", "0", "1", "-1", "3", "0.5", "1e20", "1e-320", "inf", "nan"),
    *("true", "none", "None", "all", "gamma", "knn", "digits"),
    *("mnist", "minst", "folder", "a.npz", "a,b", ",", "0,1", "0,0", "é"),
    *("\udcff", "a\nb", "..", "/", "/dev/null", "x" * 1000, "%s", "{0}"),
    *(str(2**31), str(2**40), str(2**64), "9" * 30, "-0.0", "1_000"),
)


def _command_line(rng, name, values, model):
    line = []
    for text in _USUAL[name]:
        if rng.random() < 0.9:
            line.append(text.format(model=model))
    known = sorted(values)
    for _ in range(rng.integers(0, 6)):
        flag = str(rng.choice(known))
        kind = rng.random()
        if kind < 0.05:
            # Misspelt.
            place = int(rng.integers(len(flag)))
            flag = flag[:place] + flag[place + 1 :]
        if kind > 0.97:
            line.append(str(rng.choice(("extra", "--", "-", "--no", "=x"))))
        elif values[flag].boolean if flag in values else False:
            line.append(f"--{'no' * (rng.random() < 0.3)}{flag}")
        else:
            line.append(f"--{flag}={_value(rng, values, flag)}")
    return line


def _value(rng, values, flag):
    allowed = None
    if flag in values:
        allowed = getattr(values[flag].parser, "enum_values", None)
    if allowed and rng.random() < 0.8:
        return rng.choice(list(allowed))
    if rng.random() < 0.3:
        return rng.integers(-3, 10)
    return rng.choice(_TEXTS)
