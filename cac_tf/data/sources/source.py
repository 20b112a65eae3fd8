# SPDX-License-Identifier: Apache-2.0
"""The base class of data sources, and which source takes a name."""

import dataclasses
import typing
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from cac_tf.data.class_splits import ClassSplit
from cac_tf.data.class_splits import drawn_classes
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.open_set_dataset import check_disjoint
from cac_tf.data.open_set_dataset import check_known
from cac_tf.data.open_set_dataset import listed
from cac_tf.data.options import SOURCE_OPTIONS
from cac_tf.data.options import DataOptions
from cac_tf.labels import check_class_names
from cac_tf.registry import Registry
from cac_tf.registry import did_you_mean

_SOURCES = Registry(
    "data source", "cac_tf.data.sources", but=("source",), named_by_files=False
)
register = _SOURCES.register
names, find = _SOURCES.names, _SOURCES.get


class LabelledParts(typing.NamedTuple):
    """What a source returns for a data set.

    Labels are positions in `class_names`. A part that is None is split off from
    `train`.
    """

    class_names: tuple
    train: Examples
    validation: Examples | None = None
    test: Examples | None = None
    # Test images of another data set, whose classes are the unknown ones;
    # labels are positions in `unknown_class_names`. None: unknown classes are
    # among `class_names`.
    unknown: Examples | None = None
    unknown_class_names: tuple | None = None
    # Images to train on as unknown, of no class at all or of the negative
    # classes of another data set; labels are -1.
    negatives: Examples | None = None
    # The names of that other data set's classes. None: negative classes are
    # among `class_names`.
    negative_class_names: tuple | None = None
    notes: tuple = ()  # what was converted, skipped or assumed
    # The classes that are known and unknown unless the user names others;
    # `unknown` None: all that are not known.
    split: ClassSplit | None = None
    # Fields that an `OpenSetDataset` of this split has.
    fields: dict | None = None
    validation_fraction: float | None = None
    # The value of a white pixel in arrays; None: found from the values, see
    # `pixel_scale.on_one_scale`.
    white: float | None = None
    # The columns of a table that inputs are made of.
    input_columns: tuple = ()
    # How images were resized before; None: as the options say.
    interpolation: str | None = None


class ClassIds(typing.NamedTuple):
    """Positions of classes among the names of a source."""

    known: Sequence[int]
    unknown: (
        Sequence[int] | None
    )  # None: all that are neither known nor negative
    negative: Sequence[int]


class ClassChoice(typing.NamedTuple):
    """The classes that a user chose, by name; None where nothing was chosen.

    Example:

    >>> choice = ClassChoice("pets", known=["dog", "cat"], negative=["cow"])
    >>> choice.ids(["cat", "cow", "dog", "hen"])
    ClassIds(known=[2, 0], unknown=None, negative=[1])
    """

    dataset: str
    known: typing.Sequence | None = None
    unknown: typing.Sequence | None = None
    negative: typing.Sequence | None = None
    # That of the benchmark, where there is one and `known` is None.
    split: ClassSplit | None = None
    # The share of the classes that is known, drawn by the trial; None where
    # `known` or `split` says which.
    known_share: float | None = None
    trial: int | None = None

    def ids(
        self,
        class_names: Sequence[str],
        unknown_class_names: Sequence[str] | None = None,
        default: ClassSplit | None = None,
        negative_class_names: Sequence[str] | None = None,
    ) -> ClassIds:
        """The ids of these classes.

        A source that knows the names before it reads the images calls this
        first, so that a wrong name is found at once, and may then read only
        these classes. Another need not: `load_open_set_dataset` chooses from
        what the source returns.

        Args:
            class_names: names of the classes that can be known.
            unknown_class_names: names of the classes that can be unknown, if
                they are those of another data set.
            default: `ClassSplit` of the source, for what was not chosen.
            negative_class_names: names of the classes that can be negative, if
                they are those of another data set than the known ones.

        Returns:
            `ClassIds`. A class that was chosen as negative is not unknown by
            default.

        Raises:
            ValueError: a name that is not a class, two classes with one name,
                a class named twice or for two purposes, or fewer than two
                known classes.
        """
        class_names = check_class_names(class_names, self.dataset)
        split = self.split or default
        chosen = self.known
        if self.known_share is not None:
            chosen = drawn_classes(
                class_names, self.known_share, self.trial or 0
            )
        if chosen is not None:
            known = class_ids(chosen, class_names, self.dataset)
        elif split is None:
            raise ValueError(
                f"dataset={self.dataset!r} needs known_classes (or known_share="
                f"..., which draws them). Its classes: {listed(class_names)}."
            )
        else:
            known = list(split.known)
        check_known(known, class_names, self.dataset)
        is_one_source = unknown_class_names is None
        candidates, others = (
            class_names if names is None else check_class_names(names)
            for names in (unknown_class_names, negative_class_names)
        )
        negative = class_ids(self.negative or (), others, self.dataset)
        # As far as they are of one data set.
        negative_known = negative if others is class_names else ()
        negative_unknown = negative if others == candidates else ()
        unknown: Sequence[int] | None = split and split.unknown
        if self.unknown is not None:
            unknown = class_ids(self.unknown, candidates, self.dataset)
        elif is_one_source and chosen is not None:
            unknown = None
        elif unknown is not None:
            unknown = [i for i in unknown if i not in negative_unknown]
        check_disjoint(class_names, known=known, negative=negative_known)
        check_disjoint(
            candidates,
            known=known if is_one_source else (),
            negative=negative_unknown,
            unknown=unknown or (),
        )
        return ClassIds(known, unknown, negative)


class DataSource:
    """Loads the labeled images of some data sets.

    A subclass has a `NAME`, declares which data sets it `takes`, and loads one
    of them. Once registered (`@register`), it is available in
    `load_open_set_dataset` and on the command line, and is included in the
    conformance tests.

    Example:

    >>> import numpy as np
    >>> class Squares(DataSource):
    ...     NAME, TAKES = "squares", "squares, light and dark"
    ...     def load(self, dataset, classes):
    ...         labels = np.arange(60) % 2
    ...         images = np.zeros((60, 8, 8, 1), "uint8")
    ...         images[labels == 0] = 255
    ...         examples = Examples(images, labels)
    ...         return LabelledParts(("light", "dark"), examples)
    >>> Squares().takes("squares"), Squares().takes("circles")
    (True, False)
    """

    NAME: str | None = None
    # For messages and --help: which data sets these are.
    TAKES = ""
    # Names of `DataOptions` that `load` takes; others of `SOURCE_OPTIONS` are
    # refused.
    OPTIONS: tuple[str, ...] = ()
    # Names of data sets that it takes, for "did you mean"; as far as they can
    # be listed.
    DATASETS: tuple[str, ...] = ()
    # Whether `data_dir` is a directory of TFDS, with other TFDS sets in it.
    DATA_DIR_IS_OF_TFDS = False
    # The height and width that images get unless `image_size` says another;
    # None: they have their own.
    IMAGE_SIZE: int | None = None
    # Whether it is asked only about names that no other source takes.
    IS_FALLBACK = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        wrong = [name for name in cls.OPTIONS if name not in SOURCE_OPTIONS]
        if wrong:
            raise ValueError(
                f"{cls.__name__}.OPTIONS may contain "
                f"{', '.join(SOURCE_OPTIONS)}; got "
                f"{', '.join(map(repr, wrong))}."
            )

    def takes(self, dataset: str) -> bool:
        """Whether a data set's name or path belongs to this source."""
        return dataset == self.NAME

    def has_part(self, part: str, **options: Any) -> bool:
        """Whether a data set is known, before reading it, to have a part.

        If so, an option that would hold out this part is an error at once;
        otherwise only after the data are read.

        Args:
            part: "test" or "validation".
            **options: as `load` takes them.
        """
        del part, options
        return False

    def holds_images(self, dataset: str, **options: Any) -> bool:
        """Whether inputs are images, not vectors or texts.

        It is called before the data are read, because recipes depend on it.
        Faults in the data are reported when they are read.

        Args:
            dataset: its name or path, which this source `takes`.
            **options: as `load` takes them.
        """
        del dataset, options
        return True

    def num_inputs(self, dataset: str, **options: Any) -> int:
        """Approximate number of inputs; 0 if it cannot be determined.

        Args:
            dataset: as for `holds_images`.
            **options: as for `holds_images`.
        """
        del dataset, options
        return 0

    def load(
        self, dataset: str, classes: ClassChoice, **options: Any
    ) -> LabelledParts:
        """Reads a data set.

        Args:
            dataset: its name or path, which this source `takes`.
            classes: `ClassChoice`; images of other classes may be left out.
            **options: the fields of `DataOptions` listed in `OPTIONS`.

        Returns:
            `LabelledParts`; images with values 0...255, or on another scale
            that `white` gives or the values show; or texts, (n,), or finite
            numbers of a shape other than (n, H, W, C).

        Raises:
            ValueError: the data are not valid; the message says what is
                allowed.
        """
        raise NotImplementedError


def source_of(dataset: str) -> DataSource:
    """The data source that takes a name.

    Raises:
        ValueError: more than one does, or none.

    Example:

    >>> source_of("digits").NAME, source_of("cifar+10").NAME
    ('digits', 'benchmark')
    """
    taking = [source for source in _sources() if source.takes(dataset)]
    # They are last.
    while len(taking) > 1 and taking[-1].IS_FALLBACK:
        taking.pop()
    if len(taking) != 1:
        who = " and ".join(repr(source.NAME) for source in taking) or "none"
        raise ValueError(
            f"Exactly one data source must accept {dataset!r}; {who} "
            f"{'do' if len(taking) > 1 else 'does'}. Available: "
            f"{what_is_taken()}."
        )
    return taking[0]


def resized_as(
    options: DataOptions,
    image_size: Callable[[], int | None],
    interpolation: str,
) -> DataOptions:
    """The options of images, with the size and resampling that a model takes.

    Args:
        options: what is given there stays, and what the source does not use
            stays left out.
        image_size: gives the height and width, where the source resizes; None:
            as without.
        interpolation: name of the resampling.
    """
    changes: dict[str, Any] = {}
    source = source_of(options.dataset)
    if source.IMAGE_SIZE is not None and options.image_size is None:
        changes["image_size"] = image_size()
    if "interpolation" in source.OPTIONS and options.interpolation is None:
        changes["interpolation"] = interpolation
    return dataclasses.replace(options, **changes)


def what_is_taken() -> str:
    """Which data sets there are, as text for the user.

    Example:

    >>> what_is_taken().split("; ")[1]
    'digits'
    """
    return "; ".join(source.TAKES for source in _sources())


def class_ids(wanted, class_names, dataset):
    """Positions of names among the class names.

    Raises:
        ValueError: a name that is not among them.
    """
    # (Looking each one up in the sequence would take N times as long.)
    positions = {name: i for i, name in enumerate(class_names)}
    missing = [name for name in wanted if name not in positions]
    if missing:
        hint = did_you_mean(missing[0], class_names)
        raise ValueError(
            f"{dataset} has no class {', '.join(map(repr, missing))}{hint} Its "
            f"classes: {listed(class_names)}."
        )
    return [positions[name] for name in wanted]


def names_of_datasets():
    """Names of data sets that can be listed, for messages.

    Example:

    >>> names_of_datasets()[:3]
    ('mnist', 'svhn', 'cifar10')
    """
    return tuple(name for source in _sources() for name in source.DATASETS)


def _sources():
    """All sources, those last that are asked last."""
    found = [source() for source in _SOURCES.values()]
    return sorted(found, key=lambda source: source.IS_FALLBACK)
