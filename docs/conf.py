# SPDX-License-Identifier: Apache-2.0
"""The documentation site; `make docs` builds it into build/docs."""

import importlib
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys

import cac_tf
from cac_tf import reporting
from cac_tf import scores

ROOT = pathlib.Path(__file__).parent.parent
# Written at each build, and not kept.
GENERATED = ROOT / "docs" / "generated"
# The runs whose reports the gallery shows. Finished ones are not trained again.
GALLERY = ROOT / "build" / "gallery"

# For the extension beside this file.
sys.path.append(str(pathlib.Path(__file__).parent))

project = "cac_tf"
author = "The cac_tf contributors"
copyright = author
release = version = cac_tf.__version__

extensions = [
    "docstring_math",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["README.md"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"cac_tf {release}"
# Pages that are part of the site as they are.
html_extra_path = [str(GALLERY / "pages")]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
# Tutorials are notebooks in text form; a cell that fails stops the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "docs_cache")
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_merge_streams = True
# TensorFlow reports there which devices there are not.
nb_output_stderr = "remove"

default_role = "code"
autosummary_generate = True
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    # Of scikit-learn's metadata routing, whose pages are not part of this site.
    "exclude-members": "set_score_request",
}
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_use_rtype = False
# The docstrings name what is not part of this site.
nitpicky = False
suppress_warnings = [
    "autosummary",
    "misc.highlighting_failure",  # What programs print is no Python.
]

_ROOMS = (
    *("layers", "losses", "scores", "metrics", "models", "methods"),
    *("data", "decision", "training", "experiments", "export", "batch"),
    *("demo", "reporting", "sklearn"),
)
_BINARIES = (
    *("cac-train", "cac-evaluate", "cac-predict", "cac-export", "cac-report"),
    *("cac-demo", "cac-benchmark", "cac-import-weights"),
)

# Runs of the gallery: name, what there is to see, the flags that differ.
_GALLERY = (
    ("cac", "Class Anchor Clustering", ()),
    ("cross_entropy", "cross-entropy", ("--method=cross_entropy",)),
)


def _public(room):
    package = importlib.import_module(f"cac_tf.{room}")
    names = list(package.__all__)
    if package is scores:
        names += [scores.find(name).__name__ for name in scores.names()]
    return sorted(dict.fromkeys(names))


def _write_api():
    lines = ["# API reference", "", "One page for each public object.", ""]
    for room in _ROOMS:
        package = importlib.import_module(f"cac_tf.{room}")
        lines += [f"## cac_tf.{room}", "", package.__doc__.splitlines()[0], ""]
        lines += ["```{eval-rst}", ".. autosummary::", "   :toctree: api", ""]
        lines += [f"   cac_tf.{room}.{name}" for name in _public(room)]
        lines += ["```", ""]
    (GENERATED / "api.md").write_text("\n".join(lines))


def _output_of(name, *arguments, folder=ROOT):
    """What one of the programs prints."""
    program = pathlib.Path(sys.executable).parent / name
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, cwd=folder
    )
    if done.returncode:
        raise RuntimeError(f"{name} {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _write_command_line():
    lines = ["# Command line", "", "What `--help` of each program says.", ""]
    for name in _BINARIES:
        text = _output_of(name, "--help")
        lines += [f"## {name}", "", "```text", text.rstrip(), "```", ""]
    (GENERATED / "command_line.md").write_text("\n".join(lines))


def _write_gallery():
    pages = GALLERY / "pages" / "gallery"
    pages.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Gallery of reports",
        "",
        "Made when this site was built, by the commands above each of them.",
        "All are about handwritten digits: 0, 1, 2, 4, 5 and 9 are known, the",
        "others are not. [Reading the report](../report.md) explains what is",
        "there. Drag the threshold: everything follows.",
        "",
    ]
    for name, title, flags in _GALLERY:
        command = ["--dataset=digits", *flags, "--epochs=20", "--scores=all"]
        command += [f"--output_dir={name}"]
        _output_of("cac-train", *command, folder=GALLERY)
        run = GALLERY / name
        shutil.copyfile(run / "report.html", pages / f"{name}.html")
        metrics = json.loads((run / "metrics.json").read_text())
        lines += [
            *(f"## Trained by {title}", ""),
            *("```", f"cac-train {' '.join(command)}", "```", ""),
            *(f"> {sentence}" for sentence in reporting.verdict(metrics)),
            *("", f'<a href="../gallery/{name}.html">The report</a>', ""),
        ]
    names = [name for name, *_ in _GALLERY]
    _output_of("cac-report", "--compare", *names, folder=GALLERY)
    shutil.copyfile(GALLERY / "comparison.html", pages / "comparison.html")
    lines += [
        *("## Both side by side", ""),
        *("```", f"cac-report --compare {' '.join(names)}", "```", ""),
        *('<a href="../gallery/comparison.html">The comparison</a>', ""),
    ]
    (GENERATED / "gallery.md").write_text("\n".join(lines))


def _with_signature(app, what, name, obj, options, signature, returned):
    """That of `__init__`; Keras' layers hide it behind a `__new__`."""
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
    return str(inspect.Signature(parameters)), returned


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", _with_signature)


# The tutorials call the programs by name.
os.environ["PATH"] = os.pathsep.join(
    [str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
)
GENERATED.mkdir(exist_ok=True)
_write_api()
_write_command_line()
_write_gallery()
# JAX sets it. The programs, which are silent by themselves, would take it for
# the user's wish.
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
