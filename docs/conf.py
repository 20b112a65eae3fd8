# SPDX-License-Identifier: Apache-2.0
"""The documentation site; `make docs` builds it into build/docs."""

import concurrent.futures
import hashlib
import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import cac_tf
from cac_tf import methods
from cac_tf import reporting
from cac_tf import scores

ROOT = pathlib.Path(__file__).parent.parent
# Written at each build, and not kept.
GENERATED = ROOT / "docs" / "generated"


def _kept(name):
    """A folder of results that this version of the library made.

    Those of earlier versions are deleted: what a cell prints, and what a report
    says, may have changed with the library though the cell did not.
    """
    digest = hashlib.sha256()
    for room in ("cac_tf", "ops", "train"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".js", ".css", ".html", ".json"):
                digest.update(path.read_bytes())
    folder = ROOT / "build" / name / digest.hexdigest()[:16]
    if not folder.exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
    return folder


# The runs whose reports the gallery shows. Finished ones are not trained again.
GALLERY = _kept("gallery")

# For the extensions beside this file.
sys.path.append(str(pathlib.Path(__file__).parent))

project = "cac_tf"
author = "The cac_tf contributors"
copyright = author
release = version = cac_tf.__version__

extensions = [
    "docstring_math",
    "mathml",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
html_math_renderer = "mathml"
# What is copied of an example that a docstring shows.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
exclude_patterns = ["README.md"]
templates_path = ["_templates"]
html_theme = "furo"
# There is no address at which a page could be edited.
html_theme_options = {"top_of_page_buttons": []}
html_title = f"cac_tf {release}"
# Pages that are part of the site as they are.
html_extra_path = [str(GALLERY / "pages")]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
# Tutorials are notebooks in text form; a cell that fails stops the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(_kept("docs_cache"))
# Training on a slow machine is one cell.
nb_execution_timeout = 900
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
# Keras' are in Markdown.
autodoc_inherit_docstrings = False
napoleon_google_docstring = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Call arguments", "params_style")]
# The docstrings name what is not part of this site.
nitpicky = False
suppress_warnings = [
    "autosummary",
    "misc.highlighting_failure",  # What programs print is no Python.
]


def _chosen_by_name():
    """The classes behind `score="she"` and `--method=cac`; none is typed."""
    found = [scores.find(name) for name in scores.names()]
    found += [type(methods.get(name)) for name in methods.names()]
    return [
        f"{one.__module__}.{one.__name__}".removeprefix("cac_tf.")
        for one in found
        if one.__name__ not in scores.__all__
    ]


# The public names by what they are for. "layers.*" are those of a package that
# do not stand elsewhere by name.
_PURPOSES = {
    "Make a model that rejects": (
        *("OpenSetClassifier", "load_model", "models.OpenSetPrediction"),
        *("models.pretrained_backbone", "sklearn.OpenSetClassifier"),
    ),
    "Train a classifier with Keras": (
        *("losses.CACLoss", "losses.cac_loss_from_logits", "layers.*"),
        *("losses.*", "models.*", "training.dataset_of_features", "ops.*"),
    ),
    "Choose a score and a threshold": ("scores.*", "decision.*"),
    "Measure": ("experiments.evaluate", "metrics.*", "reporting.*"),
    "Load data": ("data.*",),
    "Train runs, as the command line does": ("experiments.*",),
    "Predict many inputs, export": ("batch.*", "batch.beam.*", "export.*"),
    "After the rejection": ("open_world.*",),
    "Extend": (
        *("scores.Score", "scores.register", "losses.Loss", "losses.register"),
        *("methods.*", "training.*", "models.networks.*", "data.sources.*"),
    ),
    "Scores and methods that are chosen by name": _chosen_by_name(),
}
# Much of a program's time is its start, which takes one core.
_POOL = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
_BINARIES = (
    *("cac-train", "cac-evaluate", "cac-predict", "cac-export", "cac-report"),
    *("cac-enroll", "cac-monitor", "cac-demo", "cac-benchmark"),
    "cac-import-weights",
)

# Runs of the gallery: name, what there is to see, the flags that differ.
_GALLERY = (
    ("cac", "Class Anchor Clustering", ()),
    ("cross_entropy", "cross-entropy", ("--method=cross_entropy",)),
)


def _public(room):
    """The public names of a room, with the module that each stands in."""
    package = importlib.import_module(f"cac_tf.{room}")
    names = {
        name: package.__name__
        for name in package.__all__
        if not inspect.ismodule(getattr(package, name))
    }
    return [f"{module}.{name}" for name, module in sorted(names.items())]


def _write_api():
    lines = ["# API reference", "", "The public names, by purpose.", ""]

    def thing(name):
        module, _, own = name.rpartition(".")
        return id(getattr(importlib.import_module(module), own))

    entries = [entry for listed in _PURPOSES.values() for entry in listed]
    shown = {thing(f"cac_tf.{e}") for e in entries if not e.endswith(".*")}
    pages = set()
    for purpose, listed in _PURPOSES.items():
        lines += [f"## {purpose}", ""]
        lines += ["```{eval-rst}", ".. autosummary::", "   :toctree: api", ""]
        for entry in listed:
            names = [f"cac_tf.{entry}"]
            if entry.endswith(".*"):  # Some packages have names of lower ones.
                every = _public(entry.removesuffix(".*"))
                names = [name for name in every if thing(name) not in shown]
                shown.update(map(thing, names))
            lines += [f"   {name}" for name in names]
            pages.update(f"{name}.rst" for name in names)
        lines += ["```", ""]
    # Sphinx leaves those of names that are no longer there.
    for page in (GENERATED / "api").glob("*.rst"):
        if page.name not in pages:
            page.unlink()
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
    what = "What `--help=all` of each program says."
    lines = ["# Command line", "", what, ""]
    texts = _POOL.map(lambda name: _output_of(name, "--help=all"), _BINARIES)
    for name, text in zip(_BINARIES, texts, strict=True):
        lines += [f"## {name}", "", "```text", text.rstrip(), "```", ""]
    (GENERATED / "command_line.md").write_text("\n".join(lines))


def _write_gallery():
    pages = GALLERY / "pages" / "gallery"
    pages.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Gallery of reports",
        "",
        "The reports with a command were made by it when this site was built.",
        "They are about handwritten digits: 0, 1, 2, 4, 5 and 9 are known, the",
        "others are not. [Reading the report](../report.md) explains what is",
        "there. Drag the threshold: everything follows.",
        "",
    ]

    def trained(entry):
        name, _, flags = entry
        command = ["--dataset=digits", *flags, "--epochs=20", "--scores=all"]
        command += [f"--output_dir={name}"]
        _output_of("cac-train", *command, folder=GALLERY)
        return command

    commands = _POOL.map(trained, _GALLERY)
    for (name, title, _), command in zip(_GALLERY, commands, strict=True):
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
        *_reports_of_the_benchmark(pages),
    ]
    (GENERATED / "gallery.md").write_text("\n".join(lines))


def _reports_of_the_benchmark(pages):
    """Lines about reports that benchmarks/trained_figures.py has kept."""
    kept = ROOT / "benchmarks" / "results" / "training" / "reports"
    lines = [
        *("## The paper's benchmark", ""),
        "The best and the worst trial of Class Anchor Clustering, by the AUROC",
        "on the test data; see [Benchmarks](../benchmarks.md).",
        "",
    ]
    for path in sorted(kept.glob("*.html")):
        shutil.copyfile(path, pages / path.name)
        dataset, _, which = path.stem.rpartition("_")
        link = f"../gallery/{path.name}"
        lines.append(f'- <a href="{link}">{dataset}, the {which} trial</a>')
    return [*lines, ""]


def _without_that_of_the_type(app, what, name, obj, options, lines):
    """A constant has no docstring but that of its type."""
    if what == "data":
        lines.clear()


def _with_signature(app, what, name, obj, options, signature, returned):
    """That of `__init__`; Keras' layers hide it behind a `__new__`."""
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
    return str(inspect.Signature(parameters)), returned


def _with_files(app, docname, source):
    """Links to texts that are no pages of the site lead to the files."""
    folder = (ROOT / "docs" / docname).parent

    def link(match):
        target = (folder / match[1]).resolve()
        is_page = (ROOT / "docs") in target.parents
        return match[0] if is_page else f"](path:{match[1]})"

    source[0] = re.sub(r"\]\(((?:\.\./)+[\w/.]+\.md)\)", link, source[0])


def _not_of_keras(app, what, name, obj, skip, options):
    """Of what a class inherits, only what is written here is documented."""
    module = getattr(getattr(obj, "fget", obj), "__module__", None)
    return True if (module or "").startswith("keras.") else None


def _tutorials_apart(app, env, docnames):
    """Neighbors are read, and executed, by one process, one after another."""
    docnames.sort(key=lambda name: name[::-1])


def setup(app):
    """Called by Sphinx."""
    app.connect("env-before-read-docs", _tutorials_apart)
    app.connect("autodoc-skip-member", _not_of_keras)
    app.connect("source-read", _with_files)
    app.connect("autodoc-process-docstring", _without_that_of_the_type)
    app.connect("autodoc-process-signature", _with_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


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
