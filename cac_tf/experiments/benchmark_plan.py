# SPDX-License-Identifier: Apache-2.0
"""The runs of a benchmark: what each one trains or evaluates, and where."""

import dataclasses
import itertools
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from cac_tf import data
from cac_tf.annotations import Path
from cac_tf.data import DataOptions
from cac_tf.experiments.config import ExperimentConfig
from cac_tf.experiments.released_weights import data_of_released_weights
from cac_tf.experiments.released_weights import find_released_weights
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.methods.method import get as find_method


@dataclasses.dataclass(frozen=True)
class BenchmarkRun:
    """One data set, method and trial, in its own folder."""

    dataset: str
    split_family: str
    method: str
    trial: int
    path: str
    # A run whose model has the same known classes: evaluated, not trained.
    shares_model_of: "BenchmarkRun | None" = None
    # The authors' weights, evaluated around class means, not trained.
    checkpoint: str | None = None
    # Values of the recipe in a sweep: pairs of field and value.
    variant: tuple = ()

    @property
    def data(self) -> dict[str, Any]:
        """Fields of `data.DataOptions` that the plan decides."""
        if self.checkpoint is not None:
            return data_of_released_weights(self.dataset, self.trial).in_force
        own: dict[str, Any] = {"dataset": self.dataset}
        if self.split_family.startswith(_SHARE):
            own |= {"trial": self.trial}
        elif self.split_family != "custom":
            own |= {"split_family": self.split_family, "trial": self.trial}
        return own

    @property
    def variant_text(self) -> str:
        """The variant as `results.csv` has it, e.g. "preset=fast,epochs=5"."""
        return ",".join(f"{name}={value}" for name, value in self.variant)

    @property
    def name(self) -> str:
        label = _label(self.method, self.variant)
        if self.split_family not in ("neal", "custom"):
            label = f"{self.split_family} {label}"
        name = os.path.basename(self.dataset)
        return f"{name} {label} trial {self.trial}"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def scores_folder(self) -> RunFolder:
        """Folder of the evaluation that compares more scores of its model."""
        return RunFolder(self.folder.file("scores"))

    @property
    def imported(self) -> RunFolder:
        """Folder of the authors' weights as a model, around its anchors."""
        return RunFolder(f"{self.path}.imported")

    @property
    def evaluated_model(self) -> str | None:
        """Path of the model that is evaluated, not trained; None otherwise."""
        if self.shares_model_of is not None:
            return self.model
        if self.checkpoint is not None:
            return self.imported.file("model.keras")
        return None

    @property
    def model(self) -> str:
        """Path of the model that the run's numbers belong to."""
        return (self.shares_model_of or self).folder.file("model.keras")


def _label(method, variant):
    """E.g. "cac,magnitude=5": as the folder of the runs is called."""
    return ",".join([method, *(f"{name}={value}" for name, value in variant)])


# How the split family begins where a share of the classes is drawn.
_SHARE = "share"

# Data sets whose runs evaluate the model of another set if it has the same
# known classes, instead of training it again.
SHARES_MODEL_OF = {"cifar+50": "cifar+10"}


def plan(
    output_dir: Path,
    datasets: Sequence[str],
    methods: Sequence[str],
    trials: Sequence[int],
    split_family: str | None,
    released_weights: Path | None = None,
    sweep: Any = None,
    known_share: float | None = None,
) -> list[BenchmarkRun]:
    """The runs of a benchmark, in an order in which shared models come first.

    Two runs that would train the same model, as they have the same known
    classes, share it, whether the first was asked for or not: all trials of
    CIFAR+10 and CIFAR+50 evaluate the model of CIFAR+10, trial 0. What varies
    between them are the unknown classes.

    Args:
        output_dir: folder of all runs.
        datasets: names; "digits" or of `data.BENCHMARK_SETS`, or with
            `known_share` any that `data.load_open_set_dataset` takes.
        methods: names of methods.
        trials: numbers of trials; a set with fixed classes has only trial 0.
        split_family: as in `data.class_split`; None with `known_share`.
        released_weights: folder of the weights that the paper's authors
            released; they are evaluated, and nothing is trained. None: every
            model is trained.
        sweep: dict from a field of the recipe to its values; every
            combination is trained, of the fields that a method has. A preset
            that is the same as no preset has the same run. None: the recipe
            as it is.
        known_share: share of the classes that each trial draws, in the place
            of the split family; as of `data.DataOptions`.

    Raises:
        ValueError: a data set that is not part of the benchmark, a trial
            that it does not have, or one without released weights; a field of
            the sweep that none of the methods has; two data sets whose paths
            end alike.

    Example:

    >>> runs = plan("runs", ["cifar+50"], ["cac"], [0, 1], "neal")
    >>> [run.name for run in runs]
    ['cifar+10 cac trial 0', 'cifar+50 cac trial 0', 'cifar+50 cac trial 1']
    """
    known_names = ("digits", *data.BENCHMARK_SETS)
    if released_weights is not None and split_family != "miller2020":
        raise ValueError(
            "The released weights belong to the split family miller2020; got "
            f"{split_family}."
        )
    for dataset in datasets:
        if dataset not in known_names and known_share is None:
            raise ValueError(
                f"{dataset!r} is not a data set of the benchmark; these are: "
                f"{', '.join(known_names)}. Other data sets need "
                "known_share=..., the fraction of their classes that each "
                "trial draws."
            )
    endings = [os.path.basename(dataset) for dataset in datasets]
    if len(set(endings)) < len(endings):
        raise ValueError(
            "datasets must differ in the last part of their paths, which is "
            f"used as the folder name; got {', '.join(datasets)}."
        )
    runs: dict[tuple, BenchmarkRun] = {}

    def first_with_its_classes(source, dataset, trial):
        """The first trial of a data set with the known classes of another."""
        known = data.class_split(dataset, split_family, trial).known
        # Released weights are of a training of each trial.
        earliest = 0 if released_weights is None else trial
        for one in range(earliest, trial + 1):
            if data.class_split(source, split_family, one).known == known:
                return one
        return None

    def add(*key):
        if key in runs:
            return runs[key]
        dataset, method, trial, variant = key
        family, shared = "custom", None
        if known_share is not None:
            family = f"{_SHARE}{known_share:g}"
        elif data.has_class_split(dataset):
            family = split_family
            source = SHARES_MODEL_OF.get(dataset, dataset)
            first = first_with_its_classes(source, dataset, trial)
            if first is not None and (source, first) != (dataset, trial):
                shared = add(source, method, first, variant)
        path = os.path.join(
            output_dir,
            family,
            os.path.basename(dataset),
            _label(method, variant),
            f"trial{trial}",
        )
        checkpoint = None
        if released_weights is not None:
            checkpoint = find_released_weights(
                released_weights, dataset, method, trial
            )
        run = BenchmarkRun(
            dataset, family, method, trial, path, shared, checkpoint, variant
        )
        runs[key] = run
        return run

    variants = _variants(sweep or {}, methods)
    for dataset in datasets:
        own_trials = trials
        if known_share is None and not data.has_class_split(dataset):
            own_trials = [trial for trial in trials if trial == 0]
            if not own_trials:
                raise ValueError(
                    f"{dataset} has only trial 0, because its known and "
                    "unknown classes are fixed."
                )
        for method in methods:
            for variant, trial in itertools.product(
                variants[method], own_trials
            ):
                add(dataset, method, trial, variant)
    return list(runs.values())


def _variants(sweep, methods):
    """Combinations of the values of a sweep, for each method its own."""
    fields = {
        name: [one.name for one in dataclasses.fields(find_method(name).recipe)]
        for name in methods
    }
    for name in sweep:
        if not any(name in own for own in fields.values()):
            raise ValueError(
                f"{name} is not in the recipe of {' or '.join(methods)}; "
                "leave it out of the sweep."
            )
    found = {}
    for method, own in fields.items():
        # In the order of the recipe, whatever that of the sweep: a combination
        # has one folder.
        combinations = itertools.product(
            *(
                [(name, value) for value in sweep[name]]
                for name in own
                if name in sweep
            )
        )
        found[method] = list(
            dict.fromkeys(
                tuple(
                    (name, value)
                    for name, value in combination
                    if _is_another_recipe(method, name, value)
                )
                for combination in combinations
            )
        )
    return found


def _is_another_recipe(method, name, value):
    """False for a preset whose recipe is the one without it."""
    if name != "preset":
        return True
    has_published = bool(find_method(method).recipe.published())
    return value != "fair" and (value != "paper" or has_published)


def configurations(
    runs: Sequence[BenchmarkRun],
    data: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[BenchmarkRun, ExperimentConfig]:
    """The `ExperimentConfig` of each run.

    Of `data` and `recipe` the fields for all of them, and further arguments
    of `ExperimentConfig`.

    Raises:
        ValueError: a value that is not allowed, or has no effect in one of
            the runs.

    Example:

    >>> runs = plan("runs", ["mnist"], ["cac"], [3], "neal")
    >>> (config,) = configurations(runs, recipe={"epochs": 2}).values()
    >>> config.data.in_force, config.recipe_in_force.epochs
    ({'dataset': 'mnist', 'trial': 3}, 2)
    """
    return {
        run: ExperimentConfig(
            DataOptions.of({**(data or {}), **run.data}),
            method=run.method,
            recipe={**(recipe or {}), **dict(run.variant)},
            **settings,
        )
        for run in runs
    }


def training_images(options: DataOptions) -> int:
    """The number of images that a run trains on.

    Those of the benchmark's data sets are not read.
    """
    dataset = options.dataset
    if dataset not in data.BENCHMARK_SETS:
        return data.load_open_set_dataset(options).counts["train"]
    benchmark_set = data.BENCHMARK_SETS[dataset]
    known = benchmark_set.known_names
    if data.has_class_split(dataset):
        family, trial = map(options.value_of, ("split_family", "trial"))
        known = data.class_split(dataset, family, trial).known
    counts = benchmark_set.known.train_counts
    if isinstance(counts, int):
        total = counts * (10 if known is None else len(known))
    else:
        total = sum(counts[i] for i in known or ())
    fraction = options.validation_fraction or benchmark_set.validation_fraction
    return round(total * (1.0 - fraction))
