# SPDX-License-Identifier: Apache-2.0
"""Which data, and which of their classes are known: one object for both."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.options import Options
from cac_tf.options import described
from cac_tf.options import field
from cac_tf.registry import did_you_mean

# If a source has no test part, this share of each known class is set apart
# for it; of the rest, the other share is set apart for validation.
TEST_FRACTION = 0.3
VALIDATION_FRACTION = 0.2
# With fewer training examples of a class, on average, none are set apart; of
# images, some always are, unless they become vectors before the training.
FEW_OF_A_CLASS = 20


@dataclasses.dataclass(frozen=True)
class DataOptions(Options):
    """The data of an experiment, and how their classes and parts are chosen.

    Pass everything except `dataset` by name. `load_open_set_dataset` raises an
    error for options that have no effect with the data set.

    Raises:
        ValueError: a value that is not allowed.

    Example:

    >>> options = DataOptions("mnist", trial=3, stream=False)
    >>> options.split_family, options.value_of("split_family")
    (None, 'neal')
    >>> options.in_force
    {'dataset': 'mnist', 'trial': 3, 'stream': False}
    >>> DataOptions.of(options.in_force) == options
    True
    >>> DataOptions("mnist", trial=5)
    Traceback (most recent call last):
    ValueError: trial must be at most 4; got 5.
    """

    # `of_source`: an option that data sources may take; all others hold for
    # any source. `means`: what it is to leave an option out, where this is the
    # same for all data that it has an effect on.

    dataset: str = field(help="Name or path of the data set.", kind=str)
    _: dataclasses.KW_ONLY
    data_dir: str | None = field(
        None,
        "For folder: the folder, with one subfolder per class, or with "
        "train/, test/ and optionally validation/, each with one subfolder "
        "per class. For records: the folder of TFRecord or Parquet files, "
        "whose names begin with train, validation or test. For TFDS: its "
        "data directory.",
        kind=os.PathLike,
        of_source=True,
    )
    known_classes: tuple[str, ...] | None = field(
        None,
        "Names of the known classes; the others are unknown. Default: those "
        "of the benchmark's split or of the .npz file, if it has any.",
        kind=tuple,
    )
    known_share: float | None = field(
        None,
        "Instead of known_classes: fraction of the classes that are known, "
        "drawn at random for each trial; see "
        "cac_tf.data.class_splits.drawn_classes.",
        kind=float,
        above=0,
        at_most=1,
    )
    unknown_classes: tuple[str, ...] | None = field(
        None,
        "Names of the unknown classes. Default: those of the benchmark's "
        "split, or else all classes that are neither known nor negative "
        "(cifar10_vs_cifar100: those without a counterpart in CIFAR10).",
        kind=tuple,
    )
    negative_classes: tuple[str, ...] | None = field(
        None,
        "Names of classes whose training images serve as negatives: examples "
        "of unknown inputs for methods that train on some. They come from "
        "the same data set as the known classes (cifar10_vs_svhn, "
        "cifar10_vs_cifar100: from CIFAR100) and are not among the unknown "
        "classes. Default: none.",
        kind=tuple,
    )
    split_family: str | None = field(
        None,
        "Family of class splits: neal, miller2020, or random<n>, which draws "
        "n known and n unknown classes. Default: neal.",
        kind=str,
        means="neal",
    )
    trial: int | None = field(
        None,
        "Which of the family's five splits, or which draw of known_share, 0 "
        "to 4. Default: 0.",
        kind=int,
        at_least=0,
        at_most=4,
        means=0,
    )
    labels: str | None = field(
        None,
        "For .npy: the file with the labels, .npy or a table.",
        kind=os.PathLike,
        of_source=True,
    )
    label_column: str | None = field(
        None,
        "For tables: the column with the classes. Default: label. For TFDS: "
        "the feature with the classes. Default: the one in its "
        "supervised_keys, or else label.",
        kind=str,
        of_source=True,
    )
    split_column: str | None = field(
        None,
        "For tables: the column that contains train, validation (or valid, "
        "val, dev) or test. Default: split, if there is such a column.",
        kind=str,
        of_source=True,
    )
    input_columns: tuple[str, ...] | None = field(
        None,
        "For tables: the input columns: columns of numbers, or a single "
        "column of lists of numbers, of texts, or of paths to image files, "
        "relative to the table's folder. Default: the only column of lists, "
        "if there is one, or else a text column named text, or else the "
        "column of paths, or else all other columns. For TFDS: the input "
        "features. Default: the one in its supervised_keys, or else image, "
        "or else as for tables.",
        kind=tuple,
        of_source=True,
    )
    image_size: int | None = field(
        None,
        "Height and width that images are resized to. Default: 32, for "
        "tinyimagenet 64; for TFDS sets outside the benchmark, their own "
        "size. With a pretrained network too, images are read at this size; "
        "for folder, records and tables its default is then the network's "
        "input size, or 224.",
        kind=int,
        at_least=1,
        at_most=2**13,
        of_source=True,
    )
    interpolation: str | None = field(
        None,
        "How images are resized. Default: bilinear; for a pretrained network "
        "bicubic, which it also uses to resize images itself.",
        kind=str,
        choices=INTERPOLATIONS,
        of_source=True,
    )
    stream: bool | None = field(
        None,
        "Decode images when they are used instead of keeping them in memory. "
        "Default: only if they would need more than 1 GiB.",
        kind=bool,
        of_source=True,
    )
    strict: bool = field(
        False,
        "For folder and image paths in a table: stop with an error if a file "
        "cannot be read. Otherwise such files are skipped and listed.",
        of_source=True,
    )
    split_seed: int = field(
        0,
        "Random seed for choosing the validation (and test) examples.",
        at_least=0,
        at_most=2**32 - 1,
    )
    test_fraction: float | None = field(
        None,
        "Fraction of each known class held out for testing if the data have "
        f"no test part. Default: {TEST_FRACTION}.",
        kind=float,
        above=0,
        below=1,
        means=TEST_FRACTION,
    )
    validation_fraction: float | None = field(
        None,
        "Fraction of each known class's training examples set aside for "
        "validation if the data have no validation part. Default: "
        f"{VALIDATION_FRACTION}, for tinyimagenet 0.1; none for vectors or "
        "texts, or for images with a frozen network, if there are fewer than "
        f"{FEW_OF_A_CLASS} examples per class: the threshold then comes from "
        "extra trainings that each leave out a fifth of the examples.",
        kind=float,
        above=0,
        below=1,
    )
    validation_split: str | None = field(
        None,
        "authors: use the same validation images as the paper's authors, "
        "which their released weights were not trained on (cifar10, "
        "cifar+10, cifar+50). Default: chosen at random, using split_seed.",
        kind=str,
        choices=("authors",),
        of_source=True,
    )

    @classmethod
    def of(cls, options: Mapping[str, Any] | DataOptions) -> DataOptions:
        """Makes options from a dict, as stored in `config.json`.

        Args:
            options: dict from field names to values; or an object of this
                class, which is returned.

        Raises:
            ValueError: an unknown option, a value that is not allowed, or no
                `dataset`.
        """
        if isinstance(options, DataOptions):
            return options
        names = [one.name for one in dataclasses.fields(cls)]
        for name in options:
            if name not in names:
                raise ValueError(
                    f"Unknown data option {name!r}{did_you_mean(name, names)} "
                    f"Available: {', '.join(names)}."
                )
        if not options.get("dataset"):
            raise ValueError("dataset must be the name or path of a data set.")
        return cls(**options)

    @property
    def in_force(self) -> dict[str, Any]:
        """The options that have an effect, as `config.json` stores them."""
        return {
            one.name: list(value) if isinstance(value, tuple) else value
            for one in dataclasses.fields(self)
            if (value := getattr(self, one.name)) is not None
            and value not in (one.default, one.metadata.get("means"))
        }

    def value_of(self, name: str) -> Any:
        """An option's value; if it is left out, the value that this means."""
        value = getattr(self, name)
        return _fields()[name].metadata.get("means") if value is None else value

    def is_given(self, name: str) -> bool:
        """Whether an option differs from its value when left out."""
        return getattr(self, name) != _fields()[name].default


DataOptions.__doc__ = described(DataOptions)


def _fields():
    return {one.name: one for one in dataclasses.fields(DataOptions)}


# Those without effect on inputs that are no images.
OPTIONS_OF_IMAGES = ("image_size", "interpolation", "stream", "strict")
# Those that data sources may take.
SOURCE_OPTIONS = tuple(
    name for name, one in _fields().items() if one.metadata.get("of_source")
)
