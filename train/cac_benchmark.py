# SPDX-License-Identifier: Apache-2.0
"""cac-benchmark: runs any part of the paper's benchmark, beside its numbers.

Example: cac-benchmark --datasets=mnist,cifar10 --methods=cac,cross_entropy
--trials=0,1,2,3,4 --output_dir=runs/benchmark

Each run has a folder of its own; finished ones are skipped, so the same
command goes on after an interruption, and failed ones are named at the end.
Writes results.csv, from which the printed tables and results.png are made.
"""

import os
import shlex
import subprocess
import sys
import time

from absl import flags

from cac_tf import benchmark
from cac_tf import methods
from cac_tf.data import BENCHMARK_SETS
from cac_tf.data import split_families
from cac_tf.methods.speed import images_per_second
from cac_tf.reporting.benchmark_table import print_benchmark
from cac_tf.reporting.benchmark_table import write_figure
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import RunFolderError
from cac_tf.run_folder import read_config
from cac_tf.train import cac_train
from cac_tf.train import command_line


def define_flags(values):
    """Defines the flags of `cac-benchmark`."""
    flags.DEFINE_list(
        "datasets",
        ["mnist", "svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet"],
        f"Of: digits, {', '.join(BENCHMARK_SETS)}.",
        flag_values=values,
    )
    flags.DEFINE_list(
        "methods",
        ["cac"],
        f"Of: {', '.join(methods.names())}.",
        flag_values=values,
    )
    flags.DEFINE_list(
        "trials",
        ["0", "1", "2", "3", "4"],
        "Numbers of the split family's trials.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "split_family",
        "neal",
        split_families(),
        "Family of class splits.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "output_dir", None, "Folder of all runs.", flag_values=values
    )
    flags.DEFINE_string(
        "train_flags",
        "",
        "Flags of cac-train for every run, e.g. '--precision=mixed_bfloat16 "
        "--epochs=3'. Default: each data set's preset.",
        flag_values=values,
    )
    command_line.define_scores_flag(
        values,
        "Finished runs are evaluated again for it, not trained again. Default: "
        "those of each method.",
    )
    flags.DEFINE_bool(
        "dry_run",
        False,
        "Print the plan with an estimate of its time, and run nothing.",
        flag_values=values,
    )
    flags.mark_flag_as_required("output_dir", flag_values=values)


def _trials(values):
    try:
        return [int(text) for text in values.trials]
    except ValueError as error:
        raise ValueError(
            f"--trials must be whole numbers; got {','.join(values.trials)}."
        ) from error


def _train_arguments(run, train_flags):
    arguments = [
        f"--dataset={run.dataset}",
        f"--method={run.method}",
        f"--output_dir={run.path}",
        *shlex.split(train_flags),
    ]
    if run.split_family != "custom":
        arguments += [
            f"--split_family={run.split_family}",
            f"--trial={run.trial}",
        ]
    return arguments


# The plan decides these.
_FLAGS_OF_THE_PLAN = (
    "dataset",
    "method",
    "output_dir",
    "split_family",
    "trial",
    "known_classes",
    "unknown_classes",
    "dump_arrays",
    "overwrite",
)


def _check_train_flags(train_flags):
    values = _parsed(["--dataset=", *shlex.split(train_flags)])
    for name in _FLAGS_OF_THE_PLAN:
        is_given = values[name].present > (name == "dataset")
        if is_given:
            raise ValueError(
                f"--train_flags cannot hold --{name}: the benchmark's own "
                "flags decide it."
            )


def _evaluate_arguments(run, output_dir):
    """How the model of a run is evaluated on the run's data."""
    arguments = [
        # What an evaluation of an earlier model left is no loss.
        "--overwrite",
        f"--model={run.model}",
        f"--output_dir={output_dir}",
    ]
    if run.shares_model_of is None:
        # The data are named in the configuration beside the model.
        return arguments
    # Only the test data are others than those of the model's own run.
    trained = read_config(run.shares_model_of.path)["settings"]
    others = {
        **{name: trained[name] for name in command_line.DATA_FLAGS},
        "dataset": run.dataset,
    }
    return arguments + [
        f"--{name}={','.join(value) if isinstance(value, list) else value}"
        for name, value in others.items()
        if value is not None
    ]


def _parsed(arguments):
    values = flags.FlagValues()
    cac_train.define_flags(values)
    try:
        rest = values(["cac-train", *arguments])
    except flags.Error as error:
        raise ValueError(f"--train_flags: {error}") from error
    if len(rest) > 1:
        raise ValueError(f"--train_flags: unexpected argument {rest[1]!r}.")
    return values


def _is_finished(run, settings):
    """Whether the run is there; raises if it is with other settings."""
    if run.shares_model_of is not None:
        if not (run.folder.is_finished and os.path.exists(run.model)):
            return False
        evaluated = read_config(run.path)["settings"].get("model_sha256")
        if evaluated is None:
            raise RunFolderError(
                f"{run.path} holds a run that was trained on its own; here "
                f"the model of {run.shares_model_of.name} is evaluated. Move "
                "that run away."
            )
        # Trained again, the model is another one.
        return evaluated == command_line.file_sha256(run.model)
    earlier = RunFolder.find(run.path, settings)
    return bool(earlier and earlier.is_finished)


def _seconds(run, configured, rates):
    """Estimated seconds of a run; `rates` keeps what was timed."""
    if run.shares_model_of is not None:
        return 60.0
    _, recipe, settings = configured
    benchmark_set = BENCHMARK_SETS.get(run.dataset)
    size = benchmark_set.image_size if benchmark_set else 8
    key = (recipe.network, size, recipe.batch_size, settings["precision"])
    if key not in rates:
        rates[key] = images_per_second(*key)
    images = benchmark.training_images(run.dataset, run.split_family, run.trial)
    return images * recipe.most_epochs / rates[key]


def _duration(seconds):
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def main(values):
    """Plans, runs, collects and prints."""
    for name in values.methods:
        command_line.scores_to_compare(values, methods.get(name))
    _check_train_flags(values.train_flags)
    runs = benchmark.plan(
        values.output_dir,
        values.datasets,
        values.methods,
        _trials(values),
        values.split_family,
    )
    results = RunFolder(values.output_dir).file("results.csv")
    if os.path.exists(results):
        benchmark.read_results(results)  # Of another version: an error.
    arguments = {run: _train_arguments(run, values.train_flags) for run in runs}
    # What is wrong with the flags is wrong for every run: found first.
    configured = {
        run: cac_train.configure(_parsed(arguments[run])) for run in runs
    }
    finished, failed = [], []
    for run in runs:
        try:
            if _is_finished(run, configured[run][-1]):
                finished.append(run)
        except RunFolderError as error:
            failed.append((run, str(error)))
    waiting = [
        run for run in runs if run not in finished and run not in dict(failed)
    ]
    if values.dry_run:
        _print_plan(runs, waiting, failed, configured)
        return
    for number, run in enumerate(runs, 1):
        place = f"[{number}/{len(runs)}] {run.name}"
        if run in finished:
            print(f"{place}: finished earlier", flush=True)
        if run not in waiting:
            continue
        print(f"{place}: {run.path}", flush=True)
        started = time.monotonic()
        try:
            problem = _run(run, arguments[run])
        except (OSError, RunFolderError) as error:
            problem = str(error)
        took = _duration(time.monotonic() - started)
        if problem:
            failed.append((run, problem))
            print(f"{place}: FAILED after {took}: {problem}", flush=True)
        else:
            print(f"{place}: done in {took}", flush=True)
            finished.append(run)
        rows, _ = benchmark.collect_results(values.output_dir)
        if rows:
            benchmark.write_results(results, rows)
    if values.scores is not None:
        failed += _compare_scores(finished, values)
    rows, problems = benchmark.collect_results(values.output_dir)
    for problem in problems:
        print(f"note: left out of the results: {problem}", file=sys.stderr)
    if rows:
        benchmark.write_results(results, rows)
        rows = benchmark.read_results(results)
        print_benchmark(rows)
        write_figure(RunFolder(values.output_dir).file("results.png"), rows)
        print(f"Results: {results}")
    if failed:
        lines = "\n".join(f"  {run.name}: {problem}" for run, problem in failed)
        raise RuntimeError(
            f"{len(failed)} of {len(runs)} runs failed:\n{lines}\nThe same "
            "command tries them again."
        )


def _compare_scores(runs, values):
    """Evaluates finished runs by the scores asked for, where they are not.

    Returns:
        List of the runs that failed, with what went wrong.
    """
    failed = []
    for run in runs:
        scores = command_line.scores_to_compare(values, methods.get(run.method))
        if os.path.exists(run.model) and _are_compared(run, scores):
            continue
        print(f"{run.name}: comparing scores", flush=True)
        try:
            problem = _call(
                "cac_evaluate",
                [
                    *_evaluate_arguments(run, run.scores_folder.path),
                    f"--scores={','.join(scores)}",
                ],
                run.scores_folder,
                f"{run.path}.scores.log",
            )
        except (OSError, RunFolderError) as error:
            problem = str(error)
        if problem:
            failed.append((run, f"comparing scores: {problem}"))
    return failed


def _are_compared(run, scores):
    """Whether a run's present model was evaluated by these scores."""
    if not run.scores_folder.is_finished:
        return False
    settings = read_config(run.scores_folder.path)["settings"]
    return settings["scores"] == list(scores) and settings[
        "model_sha256"
    ] == command_line.file_sha256(run.model)


def _print_plan(runs, waiting, failed, configured):
    rates, total = {}, 0.0
    for run in runs:
        if run not in waiting:
            print(f"{run.name}: {dict(failed).get(run, 'finished')}")
            continue
        seconds = _seconds(run, configured[run], rates)
        total += seconds
        how = (
            f"evaluates the model of {run.shares_model_of.name}"
            if run.shares_model_of
            else "trains"
        )
        print(f"{run.name}: {how}, about {_duration(seconds)}; {run.path}")
    print(
        f"{len(waiting)} of {len(runs)} runs to do, about {_duration(total)} "
        "if no stage ends early (from a few timed steps on this machine)."
    )


def _run(run, arguments):
    """Runs one in a process of its own; returns what went wrong, or None."""
    binary = "cac_train"
    if run.shares_model_of is not None:
        if not run.shares_model_of.folder.is_finished:
            return f"needs the model of {run.shares_model_of.name}"
        binary = "cac_evaluate"
        arguments = _evaluate_arguments(run, run.path)
    os.makedirs(os.path.dirname(run.path), exist_ok=True)
    return _call(binary, arguments, run.folder, f"{run.path}.log")


def _call(binary, arguments, folder, log_file):
    """Runs a binary with a log; returns what went wrong, or None."""
    with open(log_file, "w", encoding="utf-8") as log:
        code = subprocess.run(
            [sys.executable, "-m", f"cac_tf.train.{binary}", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if code == 0:
        return None if folder.is_finished else "it left no metrics.json"
    with open(log_file, encoding="utf-8") as log:
        lines = [line.strip() for line in log if "error:" in line]
    problem = lines[-1] if lines else f"exit status {code}"
    return f"{problem} (log: {log_file})"


def run():
    """Entry point of the console script."""
    command_line.run(
        define_flags,
        main,
        __doc__,
        when_interrupted="The same command goes on where it was.",
    )


if __name__ == "__main__":
    run()
