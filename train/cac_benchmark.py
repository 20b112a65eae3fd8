# SPDX-License-Identifier: Apache-2.0
"""cac-benchmark: runs any part of the paper's benchmark, next to the published
numbers.

Example: cac-benchmark --datasets=mnist,cifar10 --methods=cac,cross_entropy
--trials=0,1,2,3,4 --output_dir=runs/benchmark

Or a table of the paper, from the weights released by its authors:
cac-benchmark --table=2 --released_weights=weights --output_dir=runs/released

Each run has its own folder. Finished runs are skipped, so after an interruption
the same command continues. Failed runs are listed at the end.
Writes results.csv, the source of the printed tables and results.png.
"""

import os
import shlex

from absl import flags

from cac_tf import data
from cac_tf import experiments
from cac_tf import methods
from cac_tf import models
from cac_tf import reporting
from cac_tf.counted import counted
from cac_tf.registry import did_you_mean
from cac_tf.train import cac_train
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet
from cac_tf.train import terminal


def define_flags(values):
    """Defines the flags of `cac-benchmark`."""
    flag_kinds.define_texts(
        values,
        "datasets",
        ["mnist", "svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet"],
        f"Data sets: {', '.join(('digits', *data.BENCHMARK_SETS))}. With "
        "--train_flags=--known_share=0.5, each trial draws its own known "
        "classes, and any --dataset of cac-train can be used.",
    )
    flag_kinds.define_choices(
        values, "methods", ["cac"], methods.names(), "Methods."
    )
    flag_kinds.define_choice(
        values,
        "table",
        None,
        ("1", "2", "3", "4", "5"),
        "A table of the paper, printed next to the published numbers and "
        "written to table_<number>.md. It sets --datasets, --methods and "
        "--split_family unless they are given.",
    )
    flag_kinds.define_choice(
        values,
        "figure",
        None,
        tuple(reporting.FIGURES),
        "A figure of the paper, written to figure_<name>.png: 1, the logit "
        "space of three classes; 2, the distances to the nearest class mean; "
        "3, the accuracy; classes, AUROC against the number of classes; "
        "convergence, the epochs that anchored and learnt centers need "
        "(with --train_flags='--schedule=two_stage --until_converged'). 1 "
        "and 2 show the first trial. It sets --datasets, --methods and "
        "--split_family unless they are given.",
    )
    flag_kinds.define_text(
        values,
        "sweep",
        None,
        "Fields of the recipe and their values; every combination is "
        "trained, and numeric fields are plotted in sweep.png. E.g. "
        "'magnitude=1,5,10,20 anchor_weight=0,0.1'. A field has no effect on "
        "methods that do not have it. With --table, only preset=paper (for "
        "methods with published values of their own) or preset=fast.",
    )
    flag_kinds.define_text(
        values,
        "released_weights",
        None,
        "Folder with the weights released by the paper's authors "
        "(`networks/weights` of github.com/dimitymiller/cac-openset). They "
        "are evaluated with class means as centers, and nothing is trained. "
        "They belong to the split family miller2020. Needs PyTorch.",
    )
    flag_kinds.define_texts(
        values,
        "trials",
        ["0", "1", "2", "3", "4"],
        "Trials of the split family, by number. A trial with the same known "
        "classes as an earlier one shares its model, and the earlier one is "
        "run as well.",
    )
    flag_kinds.define_texts(
        values,
        "split_family",
        ["neal"],
        "Families of class splits: neal, miller2020, or random<n>, which draws "
        "n known and n unknown classes.",
    )
    flag_kinds.define_text(
        values,
        "output_dir",
        None,
        "Folder of all runs.",
        required=True,
    )
    flag_kinds.define_any_text(
        values,
        "train_flags",
        "",
        "Flags for cac-train in every run, e.g. '--precision=mixed_bfloat16 "
        "--epochs=3'. Default: each data set's preset.",
    )
    command_line.define_scores_flag(
        values,
        "Finished runs are evaluated again with these, not retrained. "
        "Default: those of each method.",
    )
    flag_kinds.define_switch(
        values,
        "dry_run",
        False,
        "Print the plan with a time estimate and exit.",
    )


def _paper_decides(values):
    """Sets the flags that a table or figure decides, if they were not given."""
    if values.table is not None and values.figure is not None:
        raise ValueError("Give --table or --figure, not both.")
    if values.table is not None:
        shown = reporting.TABLES[int(values.table)]
    elif values.figure is not None:
        shown = reporting.FIGURES[values.figure]
    else:
        return
    decided = set()
    for name, value in (
        ("datasets", shown.datasets),
        ("methods", shown.methods),
        ("split_family", shown.split_families),
    ):
        if not values[name].present:
            values[name].value = value
            decided.add(name)
    if values.released_weights is not None:
        _leave_out_what_was_not_released(values, decided)


def _leave_out_what_was_not_released(values, decided):
    """Restricts what a table or figure decided to the released weights."""
    folder = values.released_weights
    datasets, methods_found = experiments.parts_with_released_weights(
        folder, values.datasets, values.methods, _trials(values)
    )
    for name, found in (("datasets", datasets), ("methods", methods_found)):
        left_out = [one for one in values[name].value if one not in found]
        # Nothing at all, or what was asked for by name, is an error later.
        if name in decided and found and left_out:
            terminal.say(
                f"Skipped in --{name}, because {folder} has no weights for "
                f"{'it' if len(left_out) == 1 else 'them'}: "
                f"{', '.join(left_out)}."
            )
            values[name].value = found


def _sweep(text, flags_for_all):
    """Dict from the fields that a sweep names to their values."""
    found = {}
    for part in (text or "").split():
        name, _, listed = part.partition("=")
        if name not in command_line.recipe_fields():
            hint = did_you_mean(name, command_line.recipe_fields())
            raise ValueError(
                f"--sweep: {name!r} is not a field of a recipe{hint} Example: "
                "'magnitude=5,10 anchor_weight=0,0.1'."
            )
        if name in found:
            raise ValueError(f"--sweep contains {name} twice.")
        if flags_for_all[name].present:
            raise ValueError(
                f"--sweep and --train_flags both set {name}; choose one."
            )
        try:
            values = tuple(
                map(flags_for_all[name].parser.parse, listed.split(","))
            )
        except ValueError as error:
            message = f"--sweep: {name}={listed}: {error}"
            raise ValueError(command_line.in_words(message)) from error
        if len(set(values)) < len(values):
            raise ValueError(
                f"--sweep: {name}={listed} contains a value twice."
            )
        found[name] = values
    return found


def _trials(values):
    try:
        return [int(text) for text in values.trials]
    except ValueError as error:
        raise ValueError(
            f"--trials must be whole numbers; got {','.join(values.trials)}."
        ) from error


# The plan sets these, or they are not for many runs.
_FLAGS_OF_THE_PLAN = (
    "dataset",
    "method",
    "output_dir",
    "split_family",
    "trial",
    "known_classes",
    "unknown_classes",
    "config",
    "devices",
    "coordinator",
    "num_processes",
    "process_id",
    "dump_arrays",
    "overwrite",
    "tensorboard",
)


# All that has a meaning where nothing is trained.
_FLAGS_OF_EVALUATIONS = ("data_dir", "tta", "true_positive_rate")


def _values_for_all(train_flags, only=None):
    """The parsed flags for cac-train in every run; `only` these if given."""
    values = flags.FlagValues()
    cac_train.define_flags(values)
    try:
        # A ValueError where a quotation does not end.
        rest = values(["cac-train", *shlex.split(train_flags)])
    except (flags.Error, ValueError) as error:
        raise ValueError(f"--train_flags: {error}") from error
    if len(rest) > 1:
        raise ValueError(f"--train_flags: unexpected argument {rest[1]!r}.")
    for name in _FLAGS_OF_THE_PLAN:
        if values[name].present:
            raise ValueError(
                f"--train_flags cannot contain --{name}: the benchmark sets it."
            )
    if values["preset"].present:
        raise ValueError(
            "--train_flags cannot contain --preset: use "
            f"--sweep=preset={values.preset}, which keeps the results "
            "separate."
        )
    present = [name for name in values if values[name].present]
    for name in present if only is not None else ():
        if name not in only:
            raise ValueError(
                f"--train_flags cannot contain --{name}: with "
                "--released_weights, nothing is trained. It may contain: "
                f"--{', --'.join(only)}."
            )
    return values


def main(values):
    """Plans, runs, collects and prints."""
    if values.scores is not None:
        experiments.scores_named(values.scores)
    _paper_decides(values)
    only = None if values.released_weights is None else _FLAGS_OF_EVALUATIONS
    trials = _trials(values)
    for_all = _values_for_all(values.train_flags, only)
    sweep = _sweep(values.sweep, for_all)
    if sweep and (values.figure or values.released_weights):
        raise ValueError(
            "--sweep cannot be combined with --figure or --released_weights."
        )
    if values.table and set(sweep) - {"preset"}:
        raise ValueError(
            "--table allows only --sweep=preset=paper or "
            "--sweep=preset=fast: the table has one row per preset."
        )
    if values.figure == "1" and len(values.datasets) > 1:
        raise ValueError("--figure=1 shows a single data set; name only one.")
    quiet.load("keras")
    runs = [
        run
        for family in _families(values, for_all)
        for run in experiments.plan(
            values.output_dir,
            values.datasets,
            values.methods,
            trials,
            family,
            values.released_weights,
            sweep,
            for_all.known_share,
        )
    ]
    if not runs:
        raise ValueError(
            "Nothing to run: --datasets, --methods, --trials and "
            "--split_family must each name at least one."
        )
    # Errors in the flags concern every run, so they are found first.
    configs = experiments.configurations(runs, **cac_train.settings_of(for_all))
    if values.dry_run:
        _print_plan(configs)
        return
    state = experiments.run_benchmark(
        configs, values.output_dir, values.scores, terminal.tell
    )
    folder = experiments.RunFolder(values.output_dir)
    results = folder.file("results.csv")
    if os.path.exists(results):
        rows = experiments.read_results(results)
        own_rows = _rows_of(values.datasets, runs, rows)
        _show(values, folder, rows, own_rows, state.finished, _axis(sweep))
        terminal.say(f"Results: {results}")
    if state.failed:
        lines = "\n".join(
            f"  {run.name}: {problem}" for run, problem in state.failed.items()
        )
        raise RuntimeError(
            f"{len(state.failed)} of {len(runs)} runs failed:\n{lines}\nThe "
            "same command tries them again."
        )


def _families(values, for_all):
    """The families of class splits; one where each trial draws its classes."""
    if for_all.known_share is None:
        return values.split_family
    if values["split_family"].present:
        raise ValueError(
            "--split_family has no effect with --known_share in "
            "--train_flags, which draws the classes; leave it out."
        )
    return [None]


def _axis(sweep):
    """The field of the recipe that sweep.png is drawn over, or None.

    The first one whose values are numbers.
    """
    for name, found in sweep.items():
        if all(
            isinstance(value, int | float) and not isinstance(value, bool)
            for value in found
        ):
            return name
    return None


def _show(values, folder, rows, own_rows, finished, axis):
    """Prints the tables of the folder, draws the figures of the command."""
    if values.table is not None:
        number = int(values.table)
        reporting.print_paper_table(number, rows)
        path = folder.file(f"table_{number}.md")
        reporting.write_paper_table(path, number, rows)
        terminal.say(f"Table: {path}")
    else:
        reporting.print_benchmark(rows)
    reporting.write_figure(folder.file("results.png"), rows)
    if not finished:  # All runs of this command failed, which `main` says.
        return
    if axis is not None:
        figure = reporting.sweep_figure(own_rows, axis)
        _write_figure(folder.file("sweep.png"), figure)
    if values.figure is not None:
        first = min(run.trial for run in finished)
        trials = [run for run in finished if run.trial == first]
        figure = _figure(values.figure, own_rows, trials)
        _write_figure(folder.file(f"figure_{values.figure}.png"), figure)


def _rows_of(datasets, runs, rows):
    """The rows of some runs, whatever the trial, and of no other data sets.

    A folder may hold the runs of several tables and figures.
    """
    wanted = {
        (
            os.path.basename(run.dataset),
            run.split_family,
            run.method,
            run.variant_text,
        )
        for run in runs
        if run.dataset in datasets
    }
    return [
        row
        for row in rows
        if (
            row["dataset"],
            row["split_family"],
            row["method"],
            row["variant"] or "",
        )
        in wanted
    ]


def _figure(name, rows, first_trials):
    if name == "1":
        shown = {}
        for run, arrays in experiments.arrays_of(first_trials).items():
            model = models.load_model(run.model)
            arrays["class_names"] = model.class_names
            arrays["centers"] = model.centers
            shown[run.method] = arrays
        return reporting.logit_spaces_figure(shown)
    if name == "2":
        shown = {
            (run.dataset, run.method): arrays
            for run, arrays in experiments.arrays_of(first_trials).items()
        }
        return reporting.distances_figure(shown)
    if name == "classes":
        return reporting.class_count_figure(rows)
    measure = "accuracy" if name == "3" else "epochs"
    return reporting.bars_figure(rows, measure)


def _write_figure(path, figure):
    reporting.write_png(path, figure)
    terminal.say(f"Figure: {path}")


def _print_plan(configs):
    state = experiments.state_of(configs)
    waiting = {run: configs[run] for run in state.waiting}
    estimates = experiments.estimated_seconds(waiting)
    for run in configs:
        if run not in waiting:
            terminal.say(f"{run.name}: {state.failed.get(run, 'finished')}")
            continue
        how = "trains"
        if run.shares_model_of is not None:
            how = f"evaluates the model of {run.shares_model_of.name}"
        elif run.checkpoint is not None:
            how = f"evaluates {os.path.basename(run.checkpoint)}"
        takes = "for an unknown time"
        if estimates[run] is not None:
            takes = f"about {terminal.duration(estimates[run])}"
        terminal.say(f"{run.name}: {how}, {takes}; {run.path}")
    total = sum(seconds or 0.0 for seconds in estimates.values())
    terminal.say(
        f"{len(waiting)} of {len(configs)} runs to do, about "
        f"{terminal.duration(total)} if no stage ends early (estimated from a "
        "few timed steps on this machine)."
    )
    if unknown := sum(seconds is None for seconds in estimates.values()):
        terminal.say(
            f"Not included: {counted(unknown, 'run')} of unknown duration."
        )


def run():
    """Entry point of the console script."""
    command_line.run(
        define_flags,
        main,
        __doc__,
        when_interrupted="The same command continues where it stopped.",
    )


if __name__ == "__main__":
    run()
