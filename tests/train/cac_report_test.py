# SPDX-License-Identifier: Apache-2.0
import html
import re

import numpy as np
import pytest
from absl import flags

from cac_tf import experiments
from cac_tf.experiments.compare import compare_runs
from cac_tf.experiments.run_folder import RunFolderError
from cac_tf.experiments.run_folder import read_metrics
from cac_tf.reporting.measures import rows_of
from cac_tf.train import cac_report
from tests.reporting.report_test import in_chromium
from tests.reporting.report_test import needs_chromium


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs on the same data, and one on another split of it."""
    folder = tmp_path_factory.mktemp("runs")
    for name, method, trial, epochs in (
        ("one", "cac", 0, 5),
        ("two", "cross_entropy", 0, 6),
        ("other", "cac", 1, 5),
    ):
        experiments.train(
            experiments.ExperimentConfig(
                {"dataset": "digits", "trial": trial},
                method=method,
                recipe={"epochs": epochs},
            ),
            folder / name,
        )
    return folder


def report(*arguments):
    values = flags.FlagValues()
    cac_report.define_flags(values)
    others = values(["cac-report", *map(str, arguments)])[1:]
    return cac_report.main(values, others)


def cells_of(page, first):
    """Texts of a row of any table, by its name."""
    pattern = rf'<th scope="row">(?:<abbr[^>]*>)?{re.escape(first)}(?:</abbr>)?'
    (row,) = re.findall(pattern + "</th>(.*?)</tr>", page)
    return [html.unescape(cell) for cell in re.findall("<td>(.*?)</td>", row)]


def test_numbers_of_both_runs_are_side_by_side(runs, tmp_path, capsys):
    path = tmp_path / "page.html"
    assert not report(
        "--compare", runs / "one", runs / "two", f"--output={path}"
    )
    assert f"Comparison: {path}" in capsys.readouterr().out
    page = path.read_text()
    one, two = (read_metrics(runs / n) for n in ("one", "two"))
    for (name, value), (_, other) in zip(
        rows_of(one), rows_of(two)[: len(rows_of(one))], strict=False
    ):
        if name.startswith("images") or name == "AUROC":
            assert cells_of(page, name) == [value, other]
    assert cells_of(page, "epochs") == ["5", "6"]
    assert cells_of(page, "method") == ["cac", "cross_entropy"]
    assert cells_of(page, "recipe.epochs") == ["5", "6"]
    # What is the same is not listed.
    assert "data.dataset" not in page and ">seed<" not in page
    assert "evaluated on different test inputs" not in page
    for caption in ("ROC curves", "Training loss", "Validation accuracy"):
        assert f"<figcaption>{caption}</figcaption>" in page


def test_other_test_data_are_told(runs, tmp_path):
    path = tmp_path / "page.html"
    folders = [runs / name for name in ("one", "two", "other")]
    compare_runs(folders, path)
    page = path.read_text()
    assert "evaluated on different test inputs or classes" in page
    assert cells_of(page, "data.trial") == ["–", "–", "1"]


def test_runs_of_one_name_are_told_apart(runs, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run").symlink_to(runs / "one")
    (tmp_path / "b" / "run").unlink()
    (tmp_path / "b" / "one").symlink_to(runs / "two")
    path = tmp_path / "page.html"
    compare_runs([runs / "one", tmp_path / "b" / "one"], path)
    assert "<title>Comparison of runs: one, two</title>" in path.read_text()
    with pytest.raises(ValueError, match="is listed twice"):
        compare_runs([runs / "one", tmp_path / "a" / "run"], path)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--compare", "{runs}/one"], "Name at least two runs"),
        (["--compare={runs}/one", "{runs}/none"], "not contain a finished run"),
        (["--compare={runs}/one", "{runs}"], "metrics.json is missing"),
        (
            ["--compare={runs}/one", "{runs}/one/model.keras"],
            "not contain a finished run",
        ),
        (
            ["--compare={runs}/one", "{runs}/two", "--output={runs}/no/a.html"],
            "The folder for the page does not exist",
        ),
    ],
)
def test_bad_input(arguments, message, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        report(*(argument.format(runs=runs) for argument in arguments))
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_not_finished(runs, tmp_path):
    (tmp_path / "begun").mkdir()
    config = (runs / "one" / "config.json").read_text()
    (tmp_path / "begun" / "config.json").write_text(config)
    with pytest.raises(RunFolderError, match=r"metrics\.json is missing"):
        compare_runs([runs / "one", tmp_path / "begun"], tmp_path / "page.html")


@needs_chromium
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_the_page(width, scheme, runs, tmp_path):
    path = tmp_path / "page.html"
    compare_runs([runs / "one", runs / "two"], path)
    found = in_chromium(path.read_text(), width=width, scheme=scheme)
    assert found["errors"] == []
    assert found["violations"] == []
    assert not found["isTooWide"]


def test_the_curves_are_those_of_the_runs(runs):
    from cac_tf.experiments.compare import _read
    from cac_tf.reporting import figures

    read = [_read(name, runs / name) for name in ("one", "two")]
    (axes,) = figures.roc_curves_figure(read).axes
    for line, run in zip(axes.get_lines(), read, strict=False):
        area = np.trapezoid(line.get_ydata(), line.get_xdata())
        assert area == pytest.approx(run.measures["auroc"], abs=1e-9)
    histories = {run.name: run.history for run in read}
    (axes,) = figures.learning_curves_figure(histories, "loss").axes
    for line, run in zip(axes.get_lines(), read, strict=True):
        assert line.get_ydata().tolist() == [e["loss"] for e in run.history]
