# SPDX-License-Identifier: Apache-2.0
"""README and docs/: links lead somewhere, and the README's code runs."""

import ast
import importlib.util
import inspect
import itertools
import pkgutil
import re
import shlex

import keras
import numpy as np
import pytest
from absl import flags

from cac_tf import scores
from tests.conftest import ROOT
from tests.conftest import blobs

# index.md is that of the site, whose own links Sphinx checks.
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.name != "index.md" and page.parent.name != "generated"
    ),
]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
# Of the README, code included; of the prose of a page, and of all pages.
MOST_WORDS, MOST_WORDS_A_PAGE, MOST_WORDS_OF_ALL = 600, 1_200, 13_000

_FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose(page):
    """The text of a page without its code blocks."""
    return _FENCED.sub("", page.read_text("utf-8"))


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    found = []
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        anchor = text.replace(" ", "-")
        earlier = found.count(anchor)
        found.append(f"{anchor}-{earlier}" if earlier else anchor)
    return set(found)


def python_blocks():
    text = (ROOT / "README.md").read_text("utf-8")
    return [code for kind, code in _FENCED.findall(text) if kind == "python"]


def test_anchors_are_those_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# The authors' weights, `cac`\n\n```\n# no\n```\n\n## A\n")
    assert anchors(page) == {"the-authors-weights-cac", "a"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files_and_headings(page):
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_can_be_reached():
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / link.partition("#")[0]).resolve()
        for link in _LINK.findall(prose(index))
    }
    missing = {page.resolve() for page in PAGES} - linked - {index}
    assert not missing, f"{index} does not link to {missing}"
    site = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in PAGES[1:]:
        name = page.relative_to(ROOT / "docs").with_suffix("")
        if name.name != "README":
            assert f"\n{name}\n" in site, f"{name} is not in index.md"


def test_every_example_is_listed():
    page = (ROOT / "docs" / "examples.md").read_text("utf-8")
    for path in EXAMPLES:
        assert f"](../{path.relative_to(ROOT)})" in page, path


@pytest.mark.parametrize("name", scores.names())
def test_a_score_says_formula_paper_and_cost(name):
    """Its page of the site is made of this."""
    text = inspect.getdoc(scores.find(name))
    assert text.startswith("Unknown score")
    for part in ("Paper: ", "Differences: ", "Cost: ", "Example:"):
        assert f"\n{part}" in text, part
    assert re.search(r"\\\(.+?\\\)", text, re.DOTALL), "no formula"


def test_every_score_is_on_its_page():
    rows = (ROOT / "docs" / "scores.md").read_text("utf-8").split("\n\n")[2]
    listed = re.findall(r"^\| (.*?) \|", rows, re.MULTILINE)
    missing = set(scores.names()) - set(re.findall(r"`(\w+)`", str(listed)))
    assert not missing


def test_formulas_of_docstrings_become_those_of_the_site():
    """Whatever stands between the signs of a formula: no sign is left."""
    with_math = load_module(ROOT / "docs" / "docstring_math.py").with_math
    for name in scores.names():
        text = scores.find(name).__doc__
        made = with_math(text)
        assert made.count(":math:`") == text.count(r"\(") > 0
        assert not re.search(r"\\[()]", made)


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_compile(page):
    for kind, code in _FENCED.findall(page.read_text("utf-8")):
        if kind == "python":
            compile(code, page.name, "exec")


def names_typed(code):
    """The names of our packages that Python code imports or reads."""
    # (A notebook's own commands are no Python.)
    tree = ast.parse(re.sub(r"^[%:!].*$", "", code, flags=re.MULTILINE))
    packages = {"cac_tf": "cac_tf"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                packages[one.asname or one.name] = f"{node.module}.{one.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            first, _, rest = text.partition(".")
            if first in packages and re.fullmatch(r"[\w.]+", rest):
                packages[text] = f"{packages[first]}.{rest}"
    return {name for name in packages.values() if name.startswith("cac_tf.")}


@pytest.mark.parametrize(
    "page", [*PAGES, *EXAMPLES], ids=lambda page: page.name
)
def test_what_a_user_types_is_public(page):
    blocks = [("python", page.read_text("utf-8"))]
    if page.suffix == ".md":
        blocks = _FENCED.findall(blocks[0][1])
    for kind, code in blocks:
        if "python" not in kind or ":tags: [hide-input]" in code:
            continue
        for name in names_typed(code):
            room, _, own = name.rpartition(".")
            if room != "cac_tf.batch.beam":  # Needs a package.
                room = pkgutil.resolve_name(room)
                # Of an object, anything may be read.
                is_public = own in getattr(room, "__all__", ())
                assert is_public or not inspect.ismodule(room), name


def _is_for_us(word):
    """Whether a word is not one that a shell takes for itself."""
    return word not in ("|", ">", "&", "&&")


def commands(page):
    """The command lines of our programs in the blocks of a page."""
    for kind, code in _FENCED.findall(page.read_text("utf-8")):
        if kind not in ("", "bash", "sh"):
            continue
        for line in code.replace("\\\n", " ").splitlines():
            # After variables of the environment.
            found = re.match(r"(?:[A-Z_]+=\S* )*(cac-[\w-]+ .*)", line)
            if found:
                words = shlex.split(found[1], comments=True)
                yield list(itertools.takewhile(_is_for_us, words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_have_flags_that_there_are(page):
    for words in commands(page):
        name = words[0].replace("-", "_")
        binary = importlib.import_module(f"cac_tf.train.{name}")
        values = flags.FlagValues()
        binary.define_flags(values)
        values(words)


def test_the_readme_is_short():
    words = (ROOT / "README.md").read_text("utf-8").split()
    assert len(words) <= MOST_WORDS


# What stands around a notebook, what says what a table is, and what makes it.
_NO_PROSE = re.compile(
    r"\A---\n.*?\n---\n|<!--.*?-->|^\|.*?$|^\*How measured: .*?$|\$\$.*?\$\$",
    re.MULTILINE | re.DOTALL,
)


def number_of_words(page):
    """Of the prose: no code, equations, tables or how these were measured."""
    return len(_NO_PROSE.sub("", prose(page)).split())


def test_words_are_counted_without_tables_and_code(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "---\na: b\n---\n\n# Three more words\n\n$$\nx = y\n$$\n\n"
        "<!-- table: a -->\n| a | b |\n| c | d |\n\n*How measured: so.*\n\n"
        "```\nno\n```\nTwo `x`\n"
    )
    assert number_of_words(page) == 6


def test_the_pages_are_short():
    """If this fails: cut, do not raise the limit."""
    numbers = {
        page.name: number_of_words(page)
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name != "generated"
    }
    assert max(numbers.values()) <= MOST_WORDS_A_PAGE, numbers
    assert sum(numbers.values()) <= MOST_WORDS_OF_ALL, numbers


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="export needs TensorFlow"
)
def test_the_readme_runs(tmp_path, monkeypatch, rng):
    """A trained classifier learns to reject, is saved and exported."""
    (trained,) = python_blocks()
    monkeypatch.chdir(tmp_path)
    x, y = blobs(rng)
    classifier = keras.Sequential(
        [
            keras.Input([5]),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    classifier.compile(
        keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy"
    )
    classifier.fit(x, y, epochs=5, verbose=0)
    names = {
        "classifier": classifier,
        "class_names": ["one", "two", "three"],
        "x_train": x,
        "y_train": y,
        "x_val": x,
        "x_new": np.concatenate([x[:20], 100 * x[:20]]),
    }
    exec(trained, names)
    known, far = np.split(names["labels"], 2)
    assert set(known) - {"unknown"} <= {"one", "two", "three"}
    assert set(far) == {"unknown"}
    assert (tmp_path / "model.keras").exists()
    assert (tmp_path / "saved_model" / "saved_model.pb").exists()
