# SPDX-License-Identifier: Apache-2.0
"""Plan, results and tables of the benchmark."""

import dataclasses
import hashlib
import io
import json
import os
import pathlib

import numpy as np
import pytest

from cac_tf import experiments
from cac_tf import methods
from cac_tf.data import DataOptions
from cac_tf.experiments import benchmark
from cac_tf.experiments import benchmark_plan
from cac_tf.experiments import own_process
from cac_tf.experiments import results_csv
from cac_tf.experiments.run_folder import FORMAT
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import read_metrics
from cac_tf.reporting import benchmark_table
from cac_tf.reporting import paper
from cac_tf.reporting import paper_figures
from cac_tf.reporting import paper_tables
from cac_tf.reporting.published import published


def row(**changes):
    values = {
        name: {int: 1, float: 0.5, str: "x"}[kind]
        for name, kind in results_csv.COLUMNS.items()
    }
    values.update(
        format=results_csv.FORMAT,
        split_family="neal",
        dataset="cifar10",
        method="cac",
        score="gamma",
        variant=None,
    )
    return {**values, **changes}


@pytest.mark.parametrize("family", ["neal", "miller2020"])
def test_a_model_is_shared_by_runs_with_the_same_known_classes(family):
    runs = benchmark_plan.plan(
        "out",
        ["mnist", "cifar+10", "cifar+50"],
        ["cac", "cross_entropy"],
        [0, 4],
        family,
    )
    assert len({run.path for run in runs}) == len(runs) == 12
    trained = [run for run in runs if run.shares_model_of is None]
    assert [(run.dataset, run.method, run.trial) for run in trained] == [
        *(("mnist", "cac", 0), ("mnist", "cac", 4)),
        *(("mnist", "cross_entropy", 0), ("mnist", "cross_entropy", 4)),
        *(("cifar+10", "cac", 0), ("cifar+10", "cross_entropy", 0)),
    ]
    for run in set(runs) - set(trained):
        shared = run.shares_model_of
        assert shared.method == run.method
        assert runs.index(shared) < runs.index(run)
        assert (shared.dataset, shared.trial) == ("cifar+10", 0)


def plan_of(datasets, methods=("cac",), trials=(0,), sweep=None):
    return benchmark_plan.plan(
        "out", datasets, methods, trials, "neal", sweep=sweep
    )


def finish(path, settings, overwrite=False, **metrics):
    """A finished run."""
    with RunFolder.open(path, settings, {}, overwrite) as folder:
        pathlib.Path(folder.file("metrics.json")).write_text(
            json.dumps({"format": FORMAT, **metrics})
        )


def test_sharing_does_not_depend_on_how_it_was_asked_for():
    asked = (
        (["cifar+50"], [1]),
        (["cifar+10", "cifar+50"], [1]),
        (["cifar+50", "cifar+10"], [1, 0]),
        (["cifar+10"], [0]),
    )
    plans = [plan_of(datasets, trials=trials) for datasets, trials in asked]
    (model,) = {run.model for runs in plans for run in runs}
    assert model == plans[3][0].model
    assert set(plans[1]) < set(plans[2])


def test_results_say_how_a_shared_model_was_trained(tmp_path):
    """Also of a trial whose model is that of another trial."""
    runs = benchmark_plan.plan(
        tmp_path, ["cifar+10", "cifar+50"], ["cac"], [0, 1], "neal"
    )
    trained = runs[0]
    for run in runs:
        metrics = {
            "dataset": run.dataset,
            "trial": run.trial,
            "method": "cac",
            "split_family": "neal",
            "bhattacharyya": None,
            "macro_f1": None,
            "score": "gamma",
            "scores": {"gamma": {"ccr": None}},
        }
        settings = {"model": trained.model, "model_sha256": "0"}
        if run is trained:
            metrics |= {"epochs": 43, "seconds": 9.0}
            settings = {"seed": 5, "precision": "float32"}
        finish(run.path, settings, **metrics)
    rows, problems = results_csv.collect_results(tmp_path)
    assert (len(rows), problems) == (4, [])
    for row in rows:
        assert (row["epochs"], row["seconds"]) == (43, 9.0)
        assert (row["seed"], row["precision"]) == (5, "float32")


def test_trials_of_different_configurations_are_told(tmp_path):
    """The number of epochs is no part of a folder's name."""
    for method, trial, epochs, seed, size in (
        *(("cac", 0, 3, 0, 32), ("cac", 1, 600, 1, 32), ("cac", 2, 3, 2, 32)),
        *(("openmax", 0, 600, 0, 32), ("openmax", 1, 600, 0, 64)),
    ):
        path = tmp_path / "neal" / "mnist" / method / f"trial{trial}"
        data = {"dataset": "mnist", "trial": trial, "image_size": size}
        settings = {"recipe": {"epochs": epochs}, "seed": seed, "data": data}
        finish(path, settings, epochs=epochs)
    found = results_csv.differences_among_trials(tmp_path)
    for difference in found:
        assert "trial0 and" in difference
        assert "trial1, whose" in difference
    assert "(epochs: 3 in the first, 600 in the second)" in found[0]
    assert "(image_size: 32 in the first, 64 in the second)" in found[1]
    assert len(found) == 2


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("released", [False, True])
def test_a_training_in_the_place_of_an_evaluation_is_kept(
    tmp_path, monkeypatch, released, is_done
):
    """Finished or not, and whether or not the other model is there."""
    if released:
        run = benchmark_plan.BenchmarkRun(
            *("mnist", "miller2020", "cac", 0, str(tmp_path / "run")),
            checkpoint=str(tmp_path / "weights.pth"),
        )
        runs = [run]
    else:
        runs = benchmark_plan.plan(
            str(tmp_path), ["cifar+50"], ["cac"], [2], "neal"
        )
        run = runs[-1]
    config = experiments.ExperimentConfig(run.data)
    with RunFolder.open(run.path, config.settings(), {}) as folder:
        if is_done:
            metrics = json.dumps({"format": FORMAT})
            pathlib.Path(folder.file("metrics.json")).write_text(metrics)
    state = benchmark.state_of(dict.fromkeys(runs, config))
    assert run not in state.waiting
    assert "with a model of its own" in state.failed[run]
    assert state.failed[run].endswith("Move that folder away.")
    assert "overwrite" not in state.failed[run]


def test_a_run_that_cannot_be_read_is_left_out(tmp_path):
    folder = tmp_path / "neal" / "mnist" / "cac" / "trial0"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text('{"auroc": 1.0}')
    rows, problems = results_csv.collect_results(tmp_path)
    assert rows == []
    assert "not written by this version" in problems[0]


def test_a_shared_model_is_evaluated_on_the_other_set(tmp_path, monkeypatch):
    """CIFAR+50 takes the model of CIFAR+10, with the same options of data."""
    runs = benchmark_plan.plan(
        str(tmp_path), ["cifar+50"], ["cac"], [2], "neal"
    )
    own, shared = runs
    config = experiments.ExperimentConfig(
        {**own.data, "image_size": 16, "stream": False}
    )
    assert benchmark.do(shared, config) == (
        "needs the model of cifar+10 cac trial 0"
    )

    finish(own.path, config.settings())
    asked = []
    monkeypatch.setattr(
        own_process, "call", lambda *arguments: asked.append(arguments)
    )
    assert benchmark.do(shared, config) is None
    ((_, (evaluation, folder, _), log),) = asked
    assert folder == shared.path
    assert log == f"{shared.path}.log"
    assert evaluation.model == os.path.join(own.path, "model.keras")
    assert evaluation.scores == config.scores
    assert evaluation.data.in_force == {
        "dataset": "cifar+50",
        "trial": 2,
        "image_size": 16,
        "stream": False,
    }
    # A run of its own in the place of the evaluation is not overwritten.
    model = pathlib.Path(own.model)
    model.touch()
    settings = config.settings()
    finish(shared.path, settings)
    with pytest.raises(ValueError, match="with a model of its own"):
        benchmark.is_finished(shared, config)
    settings["model_sha256"] = hashlib.sha256(b"").hexdigest()
    finish(shared.path, settings, overwrite=True)
    assert benchmark.is_finished(shared, config)
    other = dataclasses.replace(config, scores=("gamma", "energy"))
    assert not benchmark.is_finished(shared, other)
    both = {own: config, shared: config}
    assert benchmark.state_of(both).finished == [own, shared]
    # The model was trained again since.
    model.write_bytes(b"another")
    assert not benchmark.is_finished(shared, config)


def test_a_shared_model_that_becomes_another_one(tmp_path):
    """Its evaluation waits for it, or has failed with it."""
    own, shared = benchmark_plan.plan(
        str(tmp_path), ["cifar+50"], ["cac"], [2], "neal"
    )
    config = experiments.ExperimentConfig(own.data)
    for run, settings in (
        (own, config.settings()),
        (shared, {"model_sha256": hashlib.sha256(b"").hexdigest()}),
    ):
        finish(run.path, {"scores": list(config.scores), **settings})
    pathlib.Path(own.model).touch()
    own.folder.delete_files("metrics.json")
    state = benchmark.state_of({own: config, shared: config})
    assert state.waiting == [own, shared]
    other = dataclasses.replace(config, seed=3)
    state = benchmark.state_of({own: other, shared: other})
    assert not state.finished and not state.waiting
    assert "seed: 0 there, 3 now" in state.failed[own]
    assert state.failed[shared] == "needs the model of cifar+10 cac trial 0"


def test_a_comparison_that_fails(tmp_path, monkeypatch):
    (run,) = benchmark_plan.plan(
        str(tmp_path), ["digits"], ["cac"], [0], "neal"
    )
    config = experiments.ExperimentConfig(run.data)
    finish(run.path, config.settings())
    monkeypatch.setattr(own_process, "call", lambda *arguments: "no memory")
    told = []
    state = benchmark.run_benchmark(
        {run: config}, tmp_path, "all", lambda *values: told.append(values)
    )
    assert state.finished == state.waiting == []
    assert state.failed == {run: "comparing scores: no memory"}
    place = "comparing scores of digits cac trial 0"
    ended = [values for values in told if values[:2] == ("ended", place)]
    assert [values[-1] for values in ended] == ["no memory"]


@pytest.mark.slow
def test_class_names_with_commas_in_a_shared_model(tmp_path, rng):
    """Trained in one process, evaluated on other unknowns in another."""
    known = ["cats, dogs", 'a "b", c']
    unknown = ["cows, sheep", "e,f"]
    labels = np.arange(480) % 4
    images = (
        rng.integers(0, 60, (480, 8, 8, 1)) + 60 * labels[:, None, None, None]
    )
    path = tmp_path / "made.npz"
    np.savez(
        path, x_train=images, y_train=labels, class_names=[*known, *unknown]
    )
    data = {"dataset": str(path), "known_classes": known}
    own = benchmark_plan.BenchmarkRun(
        str(path), "custom", "cac", 0, str(tmp_path / "own")
    )
    config = experiments.ExperimentConfig(
        {**data, "unknown_classes": unknown[:1]}, recipe={"epochs": 2}
    )
    assert benchmark.do(own, config) is None
    shared = benchmark_plan.BenchmarkRun(
        str(path), "custom", "cac", 0, str(tmp_path / "shared"), own
    )
    assert benchmark.do(shared, config) is None
    compared = str(tmp_path / "own" / "scores")
    assert benchmark.evaluate_again(own, compared, ("energy",)) is None
    for folder in (own.path, shared.path, compared):
        metrics = read_metrics(folder)
        assert metrics["class_names"] == known
        assert metrics["unknown_class_names"] == unknown[:1]
    assert set(metrics["scores"]) == {"gamma", "energy"}
    assert benchmark.is_finished(own, config)
    assert benchmark.is_finished(shared, config)
    assert benchmark.are_compared(own, ["energy"])
    assert not benchmark.are_compared(own, ["vim"])


def fails(config, path, tell):
    print("said on the way")
    raise ValueError(f"of {config}")


def ends(config, path, tell):
    os._exit(3)


@pytest.mark.parametrize(
    ("function", "message"),
    [(fails, "of x"), (ends, "its process exited with status 3")],
)
def test_what_goes_wrong_in_the_other_process(
    tmp_path, capfd, function, message
):
    log = tmp_path / "a" / "run.log"
    problem = own_process.call(function, ("x", "p", None), str(log))
    assert problem == f"{message} (log: {log})"
    if function is fails:
        # (TensorFlow says something when it is imported.)
        assert log.read_text().endswith("error: of x\n")
        assert 'raise ValueError(f"of {config}")' in log.read_text()
        # The log of the same run again, or of two processes at once.
        assert own_process.call(function, ("y", "p", None), str(log))
        assert log.read_text().count("error: of ") == 2
        assert "\nsaid on the way\n" in "\n" + log.read_text()
        assert "said" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        # A set without splits has one run.
        ((["cifar10_vs_svhn"], ["cac"], [0, 1]), ["cac"]),
        # "fair" is the default, and no others are published for `cac`.
        (
            (["x"], ["cac", "osrci"], [0], {"preset": ("fair", "paper")}),
            ["cac", "osrci", "osrci,preset=paper"],
        ),
        ((["x"], ["cac"], [0], {"preset": ("fast",)}), ["cac,preset=fast"]),
        # A method without the field does not vary.
        (
            (["x"], ["cac", "osrci"], [0], {"gan_epochs": (3,)}),
            ["cac", "osrci,gan_epochs=3"],
        ),
        # In the order of the recipe, whatever that of the sweep.
        (
            (["x"], ["cac"], [0], {"anchor_weight": (0.0,), "magnitude": (5,)}),
            ["cac,magnitude=5,anchor_weight=0.0"],
        ),
    ],
)
def test_a_sweep_trains_every_combination(arguments, names):
    datasets, *others = arguments
    datasets = ["mnist" if name == "x" else name for name in datasets]
    runs = plan_of(datasets, *others)
    assert [run.name for run in runs] == [
        f"{datasets[0]} {name} trial 0" for name in names
    ]
    sweep = {"magnitude": (5.0, 10.0), "anchor_weight": (0.0, 0.1, 1.0)}
    runs = plan_of(["digits"], trials=[0, 1], sweep=sweep)
    assert len({run.path for run in runs}) == len(runs) == 12
    assert runs[2].variant == (("magnitude", 5.0), ("anchor_weight", 0.1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["imagenet"],), "these are: digits, mnist, svhn"),
        ((["mnist"], ["cac"], [5]), "trials are numbered 0 to 4"),
        ((["cifar10_vs_svhn"], ["cac"], [1]), "has only trial 0"),
        (
            (["mnist"], ["cac", "tuplet"], [0], {"gan_epochs": (3,)}),
            "gan_epochs is not in the recipe of cac or",
        ),
        (
            (["mnist"], ["cac"], [0], {"preset": ("best",)}),
            "preset must be one of fair, fast",
        ),
    ],
)
def test_bad_plans(arguments, message):
    with pytest.raises(ValueError, match=message):
        benchmark_plan.configurations(plan_of(*arguments))


def test_released_weights_are_found_by_name(tmp_path):
    folder = tmp_path / "weights" / "CIFAR+10"
    folder.mkdir(parents=True)
    for trial in range(5):
        for kind in ("CACclassifierAnchorLoss", "closedSetClassifier"):
            (folder / f"CIFAR+10_{trial}_{kind}.pth").touch()
            (folder / f"CIFAR+50_{trial}_{kind}.pth").touch()

    def plan(datasets=("cifar+50",), methods=("cac",), family="miller2020"):
        return benchmark_plan.plan(
            "out", datasets, methods, [3], family, str(tmp_path / "weights")
        )

    own, shared = plan(methods=["cross_entropy"])
    assert own.checkpoint == str(folder / "CIFAR+10_3_closedSetClassifier.pth")
    assert shared.shares_model_of is own
    # On the images that they were trained on.
    assert own.data["validation_split"] == "authors"
    with pytest.raises(
        ValueError, match="MNIST_3_CACclassifierAnchorLoss.* not"
    ):
        plan(["mnist"])
    with pytest.raises(ValueError, match="of the methods cac, .*not of tuplet"):
        plan(methods=["tuplet"])
    with pytest.raises(ValueError, match="not of digits"):
        plan(["digits"])
    with pytest.raises(ValueError, match="belong to the split family miller"):
        plan(family="neal")


@pytest.mark.parametrize(
    ("dataset", "trial", "expected"),
    [
        ("cifar10", 0, 24000),
        ("cifar+50", 2, 16000),
        ("tinyimagenet", 1, 9000),
        ("cifar10_vs_cifar100", 0, 40000),
        ("vehicles_animals", 0, 1350),
        ("mnist", 0, 28668),
        ("digits", 0, 605),
    ],
)
def test_training_images_of_the_estimate(dataset, trial, expected):
    options = {"split_family": "neal", "trial": trial} if trial else {}
    found = benchmark_plan.training_images(DataOptions(dataset, **options))
    assert found == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("oscr", "area"), "differences: area, oscr"),
        (lambda text: text.replace("\n4,", "\n1,"), "format 4.*differences: 1"),
        (lambda text: text.replace("0.5", "half"), "damaged row"),
        (lambda text: text[: text.rindex(",")], "damaged row: it is truncated"),
        (lambda text: "nothing", "not written by this version"),
    ],
)
def test_a_results_file_from_another_version(tmp_path, change, message):
    path = tmp_path / "results.csv"
    results_csv.write_results(path, [row()])
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=message):
        results_csv.read_results(path)


def test_tables_show_mean_deviation_and_the_papers_numbers(monkeypatch):
    rows = [row(trial=t, auroc=0.7 + 0.1 * t) for t in range(3)]
    rows.append(row(split_family="miller2020", auroc=None, commit=None))
    rows.append(row(dataset="cifar10_vs_svhn", split_family="custom"))
    monkeypatch.setenv("COLUMNS", "176")
    stream = io.StringIO()
    benchmark_table.print_benchmark(rows, stream)
    text = stream.getvalue()
    spread = np.std([0.7, 0.8, 0.9], ddof=1)
    assert f"0.800 ± {spread:.3f} (3)" in text
    assert "published: CAC" in text
    assert "0.801 ± 0.030" in text  # Table 1
    assert "0.803" in text  # Table 4, in a table of its own
    assert text.index("splits: miller2020") < text.index("splits: neal")
    (line,) = (
        line
        for line in text.splitlines()
        if "cifar10_vs_svhn, published: CAC" in line
    )
    for number in ("0.6830", "0.7850", "0.8260"):  # Table 3
        assert number in line


@pytest.mark.parametrize("number", paper.TABLES)
def test_every_row_of_a_table_is_a_method_and_its_score(number):
    """So a run of the method holds the number that the table shows."""
    table = paper.TABLES[number]
    for method, score in table.rows.values():
        assert score in methods.get(method).scores
    names = set(published(table.split_family))
    if number >= 4:
        assert set(table.rows) <= names


M = {"split_family": "miller2020"}
OSRCI = {"method": "osrci", "score": "unknown_class"}


@pytest.mark.parametrize(
    ("number", "rows", "columns", "expected"),
    [
        (
            1,
            [
                *({"trial": t, "auroc": 0.7 + 0.1 * t} for t in range(3)),
                {"dataset": "mnist", "auroc": 0.99},
                # Of another table.
                *({**M, "auroc": 0.1}, {"score": "vim", "auroc": 0.1}),
                {"variant": "magnitude=5.0", "auroc": 0.1},
                # Presets have lines of their own.
                {**OSRCI, "auroc": 0.9},
                {**OSRCI, "auroc": 0.8, "variant": "preset=paper"},
                {**OSRCI, "auroc": 0.7, "variant": "preset=fast"},
                {**OSRCI, "variant": "gan_epochs=3"},
            ],
            ["cifar10", "mnist"],
            {
                "CAC": ["0.800 ± 0.100 (3)", "0.990 (1)"],
                "OSRCI": ["0.900 (1)", "–"],
                "OSRCI, preset=paper": ["0.800 (1)", "–"],
                "OSRCI, preset=fast": ["0.700 (1)", "–"],
                "published: CAC": ["0.801 ± 0.030", "0.991 ± 0.005"],
                "published: C2AE": ["0.711", "–"],
                "Softmax": None,
            },
        ),
        (
            2,
            [
                {**M, "bhattacharyya": 0.8},
                {
                    **M,
                    "method": "cross_entropy",
                    "score": "max_softmax",
                    "bhattacharyya": 0.9,
                },
            ],
            ["cifar10"],
            {
                "Cross-entropy": ["0.900 (1)"],
                "CAC": ["0.800 (1)"],
                "published: Cross-entropy": ["0.946"],
                "published: CAC": ["0.868"],
            },
        ),
        (
            3,
            [
                {
                    "dataset": "cifar10_vs_svhn",
                    "split_family": "custom",
                    "ccr@1%": 0.6,
                    "ccr@5%": 0.7,
                    "ccr@10%": 0.8,
                }
            ],
            [f"cifar10_vs_svhn, {n} %" for n in (1, 5, 10)],
            {
                "CAC": ["0.600 (1)", "0.700 (1)", "0.800 (1)"],
                "published: CAC": ["0.683", "0.785", "0.826"],
                "published: Softmax": ["0.460", "–", "0.647"],
            },
        ),
        (
            4,
            [{**M, "method": "tuplet", "auroc": 0.75}],
            ["cifar10"],
            {"Tuplet loss": ["0.750 (1)"], "published: Tuplet loss": ["0.739"]},
        ),
    ],
)
def test_tables_of_the_paper(tmp_path, number, rows, columns, expected):
    rows = [row(**one) for one in rows]
    results_csv.write_results(tmp_path / "results.csv", rows)
    assert results_csv.read_results(tmp_path / "results.csv") == rows
    found, lines = paper_tables.paper_table(number, rows)
    assert found == columns
    cells = {texts[0]: texts[1:] for texts, _ in lines}
    for name, texts in expected.items():
        assert cells.get(name) == texts
    paper_tables.write_paper_table(tmp_path / "table.md", number, rows)
    text = (tmp_path / "table.md").read_text("utf-8")
    for name, texts in cells.items():
        assert f"| {name} | {' | '.join(texts)} |" in text
    benchmark_table.write_figure(tmp_path / "results.png", rows)
    assert (tmp_path / "results.png").read_bytes()[:4] == b"\x89PNG"


def test_figure_of_the_accuracy():
    rows = [row(trial=t, accuracy=0.9 + 0.01 * t) for t in range(3)]
    rows.append(row(score="vim", accuracy=0.0))  # Of the same run.
    rows.append(row(method="cross_entropy", accuracy=0.8))
    figure = paper_figures.bars_figure(rows, "accuracy")
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == pytest.approx([0.91, 0.8])
    assert figure.axes[0].get_ylim() == (0.75, 1.0)
    # What one trial deviates by is not known: no bar.
    bars = figure.axes[0].containers[::2]
    drawn = [len(bar[2][0].get_segments()[0]) > 0 for bar in bars]
    assert drawn == [True, False]
    with pytest.raises(ValueError, match="No results contain epochs"):
        paper_figures.bars_figure([row(epochs=None)], "epochs")


def test_figure_of_a_sweep():
    rows = [
        row(
            # A preset has no place on an axis.
            variant=f"preset=fast,magnitude={m},anchor_weight={w}",
            trial=t,
            auroc=m * w + t,
        )
        for m in (5.0, 10.0)
        for w in (0.01, 0.02)
        for t in (0, 1)
    ]
    others = [row(), row(variant="preset=fast", auroc=0.0)]
    figure = paper_figures.sweep_figure([*rows, *others], "magnitude")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "magnitude"
    first, second = axes.containers
    label = "cifar10, cac, preset=fast, anchor_weight=0.01"
    assert first.get_label() == label
    np.testing.assert_allclose(second[0].get_xydata(), [[5, 0.6], [10, 0.7]])
    with pytest.raises(ValueError, match="values are not numbers"):
        paper_figures.sweep_figure([row(variant="network=resnet18")], "network")
    with pytest.raises(
        ValueError, match="no results for a sweep over magnitude"
    ):
        paper_figures.sweep_figure(others, "magnitude")


def test_figure_of_growing_numbers_of_classes():
    rows = [
        row(split_family=f"random{n}", trial=t, auroc=0.1 * n + 0.01 * t)
        for n in (3, 2)
        for t in (0, 1)
    ]
    rows.append(row(split_family="random2", score="vim", auroc=0.0))
    figure = paper_figures.class_count_figure([*rows, row()])
    (line,) = figure.axes[0].containers
    assert line.get_label() == "cifar10, cac"
    np.testing.assert_allclose(line[0].get_xydata(), [[2, 0.205], [3, 0.305]])
    with pytest.raises(ValueError, match="split families random<n>"):
        paper_figures.class_count_figure([row()])


def test_figure_of_logit_spaces(rng):
    arrays = {
        "logits": rng.normal(size=(20, 3)),
        "labels": np.arange(20) % 4 - 1,
        "class_names": ["a", "b", "c"],
        "centers": 10.0 * np.eye(3),
    }
    figure = paper_figures.logit_spaces_figure(
        {"cac": arrays, "cross_entropy": arrays}
    )
    assert [axes.get_title() for axes in figure.axes] == [
        "cac",
        "cross_entropy",
    ]
    shown = {part.get_label(): part for part in figure.axes[0].collections}
    assert set(shown) == {"a", "b", "c", "unknown", "centers"}
    _, _, z = shown["b"]._offsets3d
    np.testing.assert_allclose(z, arrays["logits"][arrays["labels"] == 1, 2])
    for other, sizes in (
        ({"logits": rng.normal(size=(20, 4))}, "3 and 4"),
        # One more was enrolled.
        ({"class_names": ["a", "b", "c", "d"]}, "4 and 3"),
    ):
        with pytest.raises(ValueError, match=f"three logits; cac has {sizes}"):
            paper_figures.logit_spaces_figure({"cac": {**arrays, **other}})
