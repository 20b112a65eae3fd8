# SPDX-License-Identifier: Apache-2.0
"""Plan, results and tables of the benchmark."""

import io

import numpy as np
import pytest

from cac_tf import benchmark
from cac_tf.reporting import benchmark_table


def row(**changes):
    values = {
        name: {int: 1, float: 0.5, str: "x"}[kind]
        for name, kind in benchmark.COLUMNS.items()
    }
    values.update(
        format=benchmark.FORMAT,
        split_family="neal",
        dataset="cifar10",
        method="cac",
        score="gamma",
    )
    return {**values, **changes}


def test_a_model_is_shared_by_sets_with_the_same_known_classes():
    runs = benchmark.plan(
        "out",
        ["cifar+10", "cifar+50"],
        ["cac", "cross_entropy"],
        [0, 4],
        "miller2020",
    )
    assert len({run.path for run in runs}) == len(runs) == 8
    for run in runs:
        shared = run.shares_model_of
        if run.dataset == "cifar+10":
            assert shared is None
        else:
            assert shared.dataset == "cifar+10"
            assert (shared.method, shared.trial) == (run.method, run.trial)


def test_sharing_does_not_depend_on_how_it_was_asked_for():
    asked = (
        ["cifar+50"],
        ["cifar+10", "cifar+50"],
        ["cifar+50", "cifar+10"],
    )
    plans = [benchmark.plan("o", d, ["cac"], [1], "neal") for d in asked]
    assert plans[0] == plans[1] == plans[2]


def test_a_run_that_cannot_be_read_is_left_out(tmp_path):
    folder = tmp_path / "neal" / "mnist" / "cac" / "trial0"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text('{"auroc": 1.0}')
    rows, problems = benchmark.collect_results(tmp_path)
    assert rows == []
    assert "not written by this version" in problems[0]


def test_a_set_without_splits_has_one_run():
    runs = benchmark.plan("out", ["cifar10_vs_svhn"], ["cac"], [0, 1], "neal")
    (run,) = runs
    assert run.split_family == "custom"
    with pytest.raises(ValueError, match="has trial 0 alone"):
        benchmark.plan("out", ["cifar10_vs_svhn"], ["cac"], [1], "neal")


def test_bad_plans():
    with pytest.raises(ValueError, match="there are: digits, mnist, svhn"):
        benchmark.plan("out", ["imagenet"], ["cac"], [0], "neal")
    with pytest.raises(ValueError, match="trials go from 0 to 4"):
        benchmark.plan("out", ["mnist"], ["cac"], [5], "neal")


@pytest.mark.parametrize(
    ("dataset", "trial", "expected"),
    [
        ("cifar10", 0, 24000),
        ("cifar+50", 2, 16000),
        ("tinyimagenet", 1, 9000),
        ("cifar10_vs_cifar100", 0, 40000),
        ("mnist", 0, 28668),
        ("digits", 0, 605),
    ],
)
def test_training_images_of_the_estimate(dataset, trial, expected):
    found = benchmark.training_images(dataset, "neal", trial)
    assert found == pytest.approx(expected, abs=1)


def test_results_survive_the_file(tmp_path):
    rows = [row(), row(trial=3, auroc=None, commit=None)]
    benchmark.write_results(tmp_path / "results.csv", rows)
    assert benchmark.read_results(tmp_path / "results.csv") == rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("oscr", "area"), "different: area, oscr"),
        (lambda text: text.replace("\n3,", "\n1,"), "format 3.*different: 1"),
        (lambda text: text.replace("0.5", "half"), "damaged row"),
        (lambda text: text[: text.rindex(",")], "damaged row: it is cut off"),
        (lambda text: "nothing", "not written by this version"),
    ],
)
def test_a_results_file_from_another_version(tmp_path, change, message):
    path = tmp_path / "results.csv"
    benchmark.write_results(path, [row()])
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=message):
        benchmark.read_results(path)


def test_tables_show_mean_deviation_and_the_papers_numbers():
    rows = [row(trial=t, auroc=0.7 + 0.1 * t) for t in range(3)]
    rows.append(row(split_family="miller2020", auroc=None))
    stream = io.StringIO()
    benchmark_table.print_benchmark(rows, stream)
    text = stream.getvalue()
    spread = np.std([0.7, 0.8, 0.9], ddof=1)
    assert f"0.800 ± {spread:.3f} (3)" in text
    assert "published: CAC" in text
    assert "0.801 ± 0.030" in text  # Table 1
    assert "0.803" in text  # Table 4, in a table of its own
    assert text.index("splits: miller2020") < text.index("splits: neal")


def test_the_published_numbers():
    assert benchmark_table.published("neal")["CAC"]["tinyimagenet"] == (
        0.76,
        0.015,
    )
    assert "svhn" in benchmark_table.published("neal")["C2AE"]
    assert "mnist" not in benchmark_table.published("neal")["C2AE"]
    assert benchmark_table.published("custom") == {}


def test_table_3_stands_beside_the_resnet_runs():
    stream = io.StringIO()
    own = row(dataset="cifar10_vs_svhn", split_family="custom")
    benchmark_table.print_benchmark([own], stream)
    (line,) = (
        text
        for text in stream.getvalue().splitlines()
        if "published: CAC" in text
    )
    for number in ("0.6830", "0.7850", "0.8260"):
        assert number in line


def test_figure(tmp_path):
    rows = [row(trial=t, auroc=0.7 + 0.1 * t) for t in range(3)]
    benchmark_table.write_figure(tmp_path / "results.png", rows)
    assert (tmp_path / "results.png").read_bytes()[:4] == b"\x89PNG"
