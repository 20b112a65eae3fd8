# SPDX-License-Identifier: Apache-2.0
"""Does the runs of a benchmark, one by one, and collects their numbers."""

from __future__ import annotations

import os
import time
import typing
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cac_tf import methods
from cac_tf.annotations import Path
from cac_tf.data import DataOptions
from cac_tf.experiments import own_process
from cac_tf.experiments.config import EvaluationConfig
from cac_tf.experiments.config import compared_scores
from cac_tf.experiments.evaluate_saved import evaluate_saved
from cac_tf.experiments.evaluate_saved import file_sha256
from cac_tf.experiments.released_weights import import_weights
from cac_tf.experiments.results_csv import collect_results
from cac_tf.experiments.results_csv import differences_among_trials
from cac_tf.experiments.results_csv import read_results
from cac_tf.experiments.results_csv import write_results
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import RunFolderError
from cac_tf.experiments.run_folder import read_config
from cac_tf.experiments.train import train

if TYPE_CHECKING:
    from cac_tf.experiments.benchmark_plan import BenchmarkRun
    from cac_tf.experiments.config import ExperimentConfig


class State(typing.NamedTuple):
    """How far the runs of a benchmark are."""

    finished: list  # of `BenchmarkRun`
    waiting: list  # of `BenchmarkRun`
    failed: dict  # from a `BenchmarkRun` to what is wrong, a text


def run_benchmark(
    configs: Mapping[BenchmarkRun, ExperimentConfig],
    output_dir: Path,
    scores: Sequence[str] | None = None,
    tell: Callable[..., None] | None = None,
) -> State:
    """Runs whatever is not finished, and writes `results.csv` after every run.

    Each run uses its own process, so a failing run does not end the others.
    Called again with the same configurations, it continues where it stopped.

    Args:
        configs: dict from `BenchmarkRun` to `ExperimentConfig`, made by `plan`
            and `configurations`.
        output_dir: folder of all runs.
        scores: names of scores to compare on finished runs, without retraining;
            None: those they were run with.
        tell: as in `train`, and also called with "begins" (index of the run,
            its folder) and "ended" (index, seconds or None if it was already
            finished, the error or None). It must be a module-level function,
            because it is sent to other processes.

    Returns:
        `State`; no run is waiting.

    Raises:
        ValueError: `output_dir` holds results of another version.
    """
    say = tell or (lambda kind, *values: None)
    results = os.path.join(output_dir, "results.csv")
    if os.path.exists(results):
        read_results(results)  # Of another version: an error.
    state = state_of(configs)
    for number, (run, config) in enumerate(configs.items(), 1):
        place = f"[{number}/{len(configs)}] {run.name}"
        if run in state.finished:
            say("ended", place, None, None)
        if run not in state.waiting:
            continue
        say("begins", place, run.path)
        started = time.monotonic()
        problem = _problem_of(do, run, config, tell)
        say("ended", place, time.monotonic() - started, problem)
        state.waiting.remove(run)
        if problem:
            state.failed[run] = problem
        else:
            state.finished.append(run)
        _collect(output_dir, results)
    if scores is not None:
        _compare(state, scores, say, tell)
    for problem in _collect(output_dir, results):
        say("note", f"left out of the results: {problem}")
    for difference in differences_among_trials(output_dir):
        say("note", difference)
    return state


def state_of(configs: Mapping[BenchmarkRun, ExperimentConfig]) -> State:
    """The `State` of runs by their `ExperimentConfig`, from their folders."""
    state = State([], [], {})
    for run, config in configs.items():
        shared = run.shares_model_of
        if shared is not None and shared in state.failed:
            state.failed[run] = f"needs the model of {shared.name}"
            continue
        try:
            # The model may become another one.
            done = is_finished(run, config) and shared not in state.waiting
        except RunFolderError as error:
            state.failed[run] = f"{error.problem} Move that folder away."
            continue
        (state.finished if done else state.waiting).append(run)
    return state


def _compare(state, scores, say, tell):
    """Evaluates finished runs with the wanted scores, unless they have them."""
    for run in list(state.finished):
        names = compared_scores(scores, methods.get(run.method))
        if os.path.exists(run.model) and are_compared(run, names):
            continue
        place = f"comparing scores of {run.name}"
        say("begins", place, run.scores_folder.path)
        started = time.monotonic()
        problem = _problem_of(
            evaluate_again, run, run.scores_folder.path, names, tell
        )
        say("ended", place, time.monotonic() - started, problem)
        if problem:
            state.finished.remove(run)
            state.failed[run] = f"comparing scores: {problem}"


def _problem_of(function, *arguments):
    try:
        return function(*arguments)
    except (OSError, RunFolderError) as error:
        return str(error)


def _collect(output_dir, results):
    """Writes the results; returns a text for each run that is left out."""
    rows, problems = collect_results(output_dir)
    if rows:
        write_results(results, rows)
    return problems


def is_finished(run, config):
    """Whether a `BenchmarkRun` is finished, by its `ExperimentConfig`.

    Raises:
        RunFolderError: its folder holds a run with other settings.
    """
    if run.evaluated_model is None:
        earlier = RunFolder.find(run.path, config.settings())
        return bool(earlier and earlier.is_finished)
    if not os.path.exists(run.folder.file("config.json")):
        return False
    # Before anything else: where it is not finished, it is overwritten.
    settings = read_config(run.path)["settings"]
    evaluated = settings.get("model_sha256")
    if evaluated is None:
        here = "the authors' weights are"
        if run.shares_model_of is not None:
            here = f"the model of {run.shares_model_of.name} is"
        raise RunFolderError(
            f"{run.path} contains a run with a model of its own, but here "
            f"{here} evaluated."
        )
    if not (
        run.folder.is_finished
        and os.path.exists(run.model)
        and os.path.exists(run.evaluated_model)
    ):
        return False
    if evaluated != file_sha256(run.evaluated_model):
        return False  # The model was trained or imported again.
    if settings["scores"] != list(config.scores):
        return False
    if run.shares_model_of is not None:
        return True
    imported = read_config(run.imported.path)["settings"]
    return (
        imported["checkpoint_sha256"] == file_sha256(run.checkpoint)
        and settings["tta"] == config.tta
        and settings["true_positive_rate"] == config.true_positive_rate
    )


def are_compared(run, scores):
    """Whether a run's current model was evaluated with these scores."""
    if not run.scores_folder.is_finished:
        return False
    settings = read_config(run.scores_folder.path)["settings"]
    return settings["scores"] == list(scores) and settings[
        "model_sha256"
    ] == file_sha256(run.model)


def do(run, config, tell=None):
    """Trains a run, or evaluates the model that it shares.

    In a process of its own, with a log beside the run's folder. Returns what
    went wrong, as text, or None.
    """
    if run.shares_model_of is None:
        work = _train if run.checkpoint is None else _evaluate_released
        return own_process.call(work, (run, config, tell), f"{run.path}.log")
    if not run.shares_model_of.folder.is_finished:
        return f"needs the model of {run.shares_model_of.name}"
    return evaluate_again(run, run.path, config.scores, tell)


def evaluate_again(run, output_dir, scores, tell=None):
    """Evaluates the model of a run on the run's data, into a folder.

    By `scores`; None: those of the method. Returns as `do` does.
    """
    trained = read_config((run.shares_model_of or run).path)["settings"]
    options = DataOptions.of({**trained["data"], **run.data})
    config = EvaluationConfig(run.model, data=options, scores=scores)
    return own_process.call(
        _evaluate, (config, output_dir, tell), f"{output_dir}.log"
    )


def _train(run, config, tell):
    train(config, run.path, tell=tell)


def _evaluate_released(run, config, tell):
    import_weights(
        run.checkpoint,
        config.data,
        run.imported.path,
        overwrite=True,
        tell=tell,
    )
    evaluation = EvaluationConfig(
        run.evaluated_model,
        recenter=True,
        tta=config.tta or "none",
        scores=config.scores,
        true_positive_rate=config.true_positive_rate,
    )
    _evaluate(evaluation, run.path, tell)


def _evaluate(config, path, tell):
    # The results of an earlier model are not needed.
    evaluate_saved(config, path, overwrite=True, tell=tell)


def arrays_of(
    runs: Sequence[BenchmarkRun],
) -> dict[BenchmarkRun, dict[str, np.ndarray]]:
    """What `scores.npz` holds, of each run that is finished."""
    found = {}
    for run in runs:
        if run.folder.is_finished:
            with np.load(run.folder.file("scores.npz")) as arrays:
                found[run] = dict(arrays)
    return found
