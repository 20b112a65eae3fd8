# SPDX-License-Identifier: Apache-2.0
"""The data of one open-set experiment, from any source."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import typing
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf import metrics
from cac_tf.data.channel_statistics import channel_statistics
from cac_tf.data.fingerprint import fingerprint
from cac_tf.data.number_rows import column_statistics
from cac_tf.data.number_rows import finite_rows
from cac_tf.data.options import FEW_OF_A_CLASS
from cac_tf.data.options import TEST_FRACTION
from cac_tf.data.options import VALIDATION_FRACTION
from cac_tf.data.options import DataOptions
from cac_tf.data.pixel_scale import on_one_scale
from cac_tf.data.text_rows import are_texts
from cac_tf.data.text_rows import text_rows
from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.labels import check_class_names
from cac_tf.labels import check_labels

model_selection = lazy.module("sklearn.model_selection")


class _ImagesAndLabels(typing.NamedTuple):
    # (n, H, W, C), values 0...255: an array, or `StreamedImages`; or inputs
    # that are no images, such as vectors, (n, D), or texts, (n,).
    images: typing.Any
    labels: np.ndarray  # (n,) int64


_NO_VALIDATION = (
    f"fewer than {FEW_OF_A_CLASS} training examples per class: none are set "
    "aside for validation; instead, the threshold comes from extra trainings "
    "that each leave out a fifth of the examples (set validation_fraction to "
    "set some aside)"
)


class Examples(_ImagesAndLabels):
    """Inputs with their labels: a pair, as `fit` takes it.

    Args:
        images: the inputs, of any kind. Images are (n, H, W, C), values
            0...255: an array, or `StreamedImages`. Inputs of any other shape,
            such as vectors, (n, D), are finite numbers; texts are an object
            array, (n,).
        labels: (n,) int64.
        names: (n,) strings by which a user finds each input, such as the path
            of its file in the data set's folder; None if the source has none.

    Example:

    >>> examples = Examples(np.zeros((2, 8, 8, 1)), np.arange(2), ["a", "b"])
    >>> images, labels = examples
    >>> examples.take([1]).names
    array(['b'], dtype=object)
    """

    names: np.ndarray | None

    def __new__(cls, images, labels, names=None):
        self = super().__new__(cls, images, labels)
        self.names = None if names is None else np.asarray(names, object)
        return self

    def take(self, rows: Any) -> Examples:
        """The examples in these rows."""
        choose = getattr(self.images, "subset", self.images.__getitem__)
        names = None if self.names is None else self.names[rows]
        return Examples(choose(rows), self.labels[rows], names)

    def evenly_spaced(self, count: int) -> Examples:
        """At most so many examples, evenly spaced: of all classes, if sorted.

        Streamed images are read into memory.

        Example:

        >>> examples = Examples(np.zeros((9, 8, 8, 1)), np.arange(9))
        >>> examples.evenly_spaced(3).labels
        array([0, 4, 8])
        """
        rows = np.linspace(0, self.size - 1, count).astype(int)
        images, labels = self.take(np.unique(rows))
        return Examples(np.asarray(images), labels)

    def _replace(self, **changes):
        # A named tuple's own would forget the names.
        images, labels = super()._replace(**changes)
        return Examples(images, labels, self.names)

    def joined(self, other: Examples) -> Examples:
        """These examples, followed by others of the same kind.

        Arrays are copied. If these images are streamed, so is the result.
        """
        join = getattr(self.images, "joined", None)
        images = (
            np.concatenate([self.images[:], other.images[:]])
            if join is None
            else join(other.images)
        )
        names = None
        if self.names is not None and other.names is not None:
            names = np.concatenate([self.names, other.names])
        return Examples(images, np.r_[self.labels, other.labels], names)

    @property
    def size(self) -> int:
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class OpenSetDataset:
    """Training, validation and test data of known and unknown classes.

    Labels of `train`, `validation` and `known_test` are positions in
    `class_names`; labels of `unknown_test` are positions in
    `unknown_class_names`. Unknown classes appear only in `unknown_test`.
    `negatives` are images of additional classes, on which a method may train as
    unknown; their label is -1. Most experiments have none.
    """

    name: str
    class_names: tuple
    class_ids: tuple  # the source's own id of each known class
    unknown_class_names: tuple
    unknown_class_ids: tuple
    train: Examples
    validation: Examples
    known_test: Examples
    unknown_test: Examples
    split_family: str | None = None
    trial: int | None = None
    notes: tuple = ()  # what was converted, skipped or assumed
    input_columns: tuple = ()  # of a table, those that inputs are made of
    interpolation: str = INTERPOLATIONS[0]  # by which images were resampled
    # None becomes empty ones.
    negatives: Examples = None  # type: ignore[assignment]

    def __post_init__(self):
        counts = np.bincount(self.train.labels, minlength=len(self.class_names))
        if np.any(counts == 0) or len(counts) > len(self.class_names):
            raise ValueError(
                "Every known class needs training examples, and every label "
                f"needs a class. Examples by label: {counts.tolist()}; "
                f"classes: {listed(self.class_names)}."
            )
        if self.negatives is None:
            none = self.train.take(slice(0, 0))
            # The class is frozen.
            object.__setattr__(self, "negatives", none)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one input; for images, (height, width, channels)."""
        return tuple(self.train.images.shape[1:])

    @property
    def holds_images(self) -> bool:
        """Whether inputs are images, which have three axes."""
        return len(self.image_shape) == 3

    @property
    def kind_of_inputs(self) -> str:
        """What inputs are: "images", "texts" or "vectors"."""
        if self.holds_images:
            return "images"
        return "texts" if are_texts(self.train.images) else "vectors"

    def with_inputs(self, function: Callable[[Any], Any]) -> OpenSetDataset:
        """The same examples, with a function applied to their inputs.

        Args:
            function: from the inputs of one part to an equal number of new
                inputs.
        """
        changed = {
            one.name: part._replace(images=function(part.images))
            for one in dataclasses.fields(self)
            if isinstance(part := getattr(self, one.name), Examples)
        }
        return dataclasses.replace(self, **changed)

    @property
    def openness(self) -> float:
        """Openness of the experiment (equation 10)."""
        return metrics.openness(
            len(self.class_names), len(self.unknown_class_names)
        )

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples of each part; "negatives" if there are any."""
        counts = {
            "train": self.train.size,
            "validation": self.validation.size,
            "known_test": self.known_test.size,
            "unknown_test": self.unknown_test.size,
        }
        if self.negatives.size:
            counts["negatives"] = self.negatives.size
        return counts

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the images and labels of each part in `counts`."""
        return {part: fingerprint(getattr(self, part)) for part in self.counts}

    def without_classes(self, left_out: ArrayLike) -> OpenSetDataset:
        """A smaller experiment in which some known classes are unknown.

        It uses only training and validation data: its `known_test` is the
        validation data, its `unknown_test` all examples of the classes left
        out.

        Args:
            left_out: labels of the classes to leave out; at least two must
                stay.

        Raises:
            ValueError: fewer than two classes stay.

        Example:

        >>> from cac_tf.data import load_open_set_dataset
        >>> digits = load_open_set_dataset("digits")
        >>> fewer = digits.without_classes([1, 4])
        >>> fewer.class_names, fewer.unknown_class_names
        (('0', '2', '4', '9'), ('1', '5'))
        """
        kept = np.setdiff1d(np.arange(len(self.class_names)), left_out)
        check_known(kept, self.class_names, self.name)

        def rows_of(examples, classes):
            is_there = np.isin(examples.labels, classes)
            chosen = examples.take(np.flatnonzero(is_there))
            return chosen._replace(labels=classes.searchsorted(chosen.labels))

        out = np.unique(left_out)
        train, validation = (
            rows_of(part, kept) for part in (self.train, self.validation)
        )
        return dataclasses.replace(
            self,
            class_names=tuple(self.class_names[i] for i in kept),
            class_ids=tuple(self.class_ids[i] for i in kept),
            unknown_class_names=tuple(self.class_names[i] for i in out),
            unknown_class_ids=tuple(self.class_ids[i] for i in out),
            train=train,
            validation=validation,
            known_test=validation,
            unknown_test=rows_of(self.train, out).joined(
                rows_of(self.validation, out)
            ),
        )

    # Computed once, because it reads all training images.
    @functools.cached_property
    def channel_statistics(self) -> tuple[list[float], list[float]]:
        """Mean and std of the training images' channels, scale [0, 1].

        Of inputs that are no images: see `column_statistics`; of texts, none.
        """
        if self.kind_of_inputs == "texts":
            return [], []
        if self.holds_images:
            return channel_statistics(self.train.images)
        return column_statistics(
            self.train.images, are_columns=len(self.input_columns) > 1
        )


def stratified_split(
    examples: Examples,
    fraction: float,
    seed: int,
    class_names: Sequence[str] | None = None,
) -> tuple[Examples, Examples]:
    """Two disjoint parts, every class split in the same proportion.

    Args:
        examples: `Examples`.
        fraction: share of the second part, in (0, 1).
        seed: seed of the choice.
        class_names: names of the labels in messages; None: the labels.

    Returns:
        `Examples` of 1 - fraction and of fraction.

    Raises:
        ValueError: a class with fewer than two examples, or fewer examples
            in a part than there are classes.

    Example:

    >>> labels = np.repeat([0, 1], [60, 20])
    >>> examples = Examples(np.zeros((80, 2, 2, 1), "uint8"), labels)
    >>> train, validation = stratified_split(examples, 0.25, seed=0)
    >>> np.bincount(train.labels), np.bincount(validation.labels)
    (array([45, 15]), array([15,  5]))
    """
    labels = _check_several_of_each(examples, class_names)
    second = min(
        max(round(fraction * examples.size), len(labels)),
        examples.size - len(labels),
    )
    rows = model_selection.train_test_split(
        np.arange(examples.size),
        test_size=second,
        random_state=seed,
        stratify=examples.labels,
    )
    first, last = (examples.take(np.sort(part)) for part in rows)
    for part in (first, last):
        missing = np.setdiff1d(labels, part.labels)
        if missing.size:
            raise ValueError(
                f"Splitting by {fraction} leaves one part without examples of "
                f"these classes: {_named(missing, class_names)}. Choose "
                "another fraction, or add examples."
            )
    return first, last


def _check_several_of_each(examples, class_names, parts=2):
    """The labels; ValueError where each part cannot have one of each."""
    labels, counts = np.unique(examples.labels, return_counts=True)
    if examples.size == 0:
        raise ValueError("There are no examples to split.")
    if counts.min() < parts:
        raise ValueError(
            f"Every class needs at least {parts} examples so that "
            f"{parts - 1} can be held out; these have fewer: "
            f"{_named(labels[counts < parts], class_names)}."
        )
    return labels


def _named(labels, class_names):
    if class_names is None:
        return listed([str(label) for label in labels])
    return listed([repr(class_names[label]) for label in labels])


def make_open_set_dataset(
    name: str,
    train: Examples,
    class_names: Sequence[str],
    known_classes: Sequence[int],
    test: Examples | None = None,
    validation: Examples | None = None,
    split_seed: int = 0,
    test_fraction: float = TEST_FRACTION,
    validation_fraction: float | None = None,
    unknown: Examples | None = None,
    unknown_class_names: Sequence[str] | None = None,
    unknown_classes: Sequence[int] | None = None,
    negative_classes: Sequence[int] = (),
    white: float | None = None,
    as_vectors: bool = False,
    **fields: Any,
) -> OpenSetDataset:
    """Divides labelled inputs into the parts of an open-set experiment.

    Those of shape (n, H, W, C) are images; others are texts, or numbers, which
    become float32 and keep their scale.

    Args:
        name: name of the data set.
        train: `Examples` with the source's class ids, positions in
            `class_names`.
        class_names: name of every class of the source, known and unknown.
        known_classes: ids of the known classes, at least two; the label of
            a class is its position in this list.
        test: `Examples`, or None: then `test_fraction` of each known class
            is set apart, and all images of unknown classes are test data.
        validation: `Examples`, or None: then `validation_fraction` of each
            known class's training images is set apart. Unknown classes in
            it are left out.
        split_seed: seed of both choices.
        test_fraction, validation_fraction: shares in (0, 1). No
            validation_fraction: 0.2, but nothing of fewer than 20 vectors or
            texts a class on average.
        unknown: `Examples` of another source whose classes are the unknown
            ones, or None: then they are the classes of this source that are
            not known.
        unknown_class_names: name of every class of `unknown`.
        unknown_classes: ids of the unknown classes; None for all there are
            (of the same source: that are neither known nor negative).
        negative_classes: ids of the classes whose images in `train` become
            `negatives`; those in other parts are left out.
        white: the value of a white pixel in arrays; None: found from the
            values, see `pixel_scale.on_one_scale`. All images get values
            0...255, and `notes` say so.
        as_vectors: whether a frozen network makes vectors of the images, which
            are then trained on: few are treated as few vectors.
        **fields: further fields of `OpenSetDataset`.

    Returns:
        `OpenSetDataset`.

    Raises:
        ValueError: fewer than two known classes, a class listed twice or for
            two purposes, one that does not exist or has too few images, two
            classes with one name, labels that are no ids of classes or not as
            many as images, values that cannot be pixels.

    Example:

    >>> images = np.full((60, 2, 2, 1), 255, "uint8")
    >>> dataset = make_open_set_dataset(
    ...     "made",
    ...     Examples(images, np.arange(60) % 3),
    ...     class_names=["cat", "dog", "cow"],
    ...     known_classes=[2, 0],
    ... )
    >>> dataset.class_names, dataset.unknown_class_names
    (('cow', 'cat'), ('dog',))
    >>> dataset.counts
    {'train': 22, 'validation': 6, 'known_test': 12, 'unknown_test': 20}
    """
    known, negative = _whole(known_classes), _whole(negative_classes)
    if unknown_classes is not None:
        unknown_classes = _whole(unknown_classes)
    class_names = check_class_names(class_names, name)
    check_known(known, class_names, name)
    check_ids(negative, class_names, name)
    if len(set(negative)) != len(negative):
        names = listed(class_names[i] for i in negative)
        raise ValueError(f"A negative class is listed twice: {names}.")
    check_disjoint(
        class_names,
        known=known,
        negative=negative,
        unknown=unknown_classes or () if unknown is None else (),
    )
    # Refuses what sets no part apart.
    DataOptions(
        name,
        split_seed=split_seed,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
    )
    sources = {"train": train, "validation": validation, "test": test}
    sources = {
        part: _checked(examples, class_names, f"{part} part of {name}")
        for part, examples in sources.items()
    }
    if unknown_class_names is None:
        unknown_class_names = ()
    sources["unknown"] = _checked(
        unknown, unknown_class_names, f"unknown part of {name}"
    )
    sources["negatives"] = fields.get("negatives")
    sources, notes = _on_one_scale(sources, white)
    train, validation, test, unknown, negatives = sources.values()
    if negatives is not None:
        fields["negatives"] = negatives
    fields["notes"] = (*fields.get("notes", ()), *notes)
    # Their rows: images are copied once, into the part that they end in.
    rows = _relabelled(train._replace(images=np.arange(train.size)), known)
    whose, notes = f"known classes of {name}", fields["notes"]
    _check_no_class_is_empty(rows, known, class_names, whose, notes)
    if negative:
        negatives = _relabelled(train, negative)
        whose = f"negative classes of {name}"
        _check_no_class_is_empty(negatives, negative, class_names, whose, notes)
        fields["negatives"] = as_negatives(negatives.images)
    if unknown is None:
        unknown = train if test is None else test
        unknown_class_names = class_names
        candidates = _ids_present(unknown.labels, [*known, *negative])
    else:
        unknown_class_names = check_class_names(
            unknown_class_names, f"the unknown part of {name}"
        )
        candidates = _ids_present(unknown.labels, [])
    unknown_ids = _chosen(unknown_classes, candidates, unknown_class_names)
    if not unknown_ids:
        note = "no unknown classes are left, so this is a closed-set evaluation"
        fields["notes"] = (*fields["notes"], note)
    both = {class_names[i] for i in known} & {
        unknown_class_names[i] for i in unknown_ids
    }
    if both:
        raise ValueError(
            f"These classes are both known and unknown: {listed(sorted(both))}."
        )
    unknown_test = _relabelled(unknown, unknown_ids)
    known_names = tuple(class_names[i] for i in known)
    parts = 1 + (test is None) + (validation is None)
    _check_several_of_each(rows, known_names, parts)
    if test is None:
        rows, test_rows = stratified_split(
            rows, test_fraction, split_seed, known_names
        )
        known_test = _of_rows(train, test_rows)
    else:
        known_test = _relabelled(test, known)
        if known_test.size == 0:
            raise ValueError(
                f"The test part of {name} has no examples of a known class."
            )
    is_few = rows.size < FEW_OF_A_CLASS * len(known)
    are_vectors = as_vectors or len(train.images.shape) != 4
    if (
        validation is None
        and validation_fraction is None
        and (is_few and are_vectors)
    ):
        _check_several_of_each(rows, known_names)
        fields["notes"] = (*fields["notes"], _NO_VALIDATION)
        validation = _of_rows(train, rows.take(np.arange(0)))
    elif validation is None:
        rows, validation_rows = stratified_split(
            rows,
            validation_fraction or VALIDATION_FRACTION,
            split_seed,
            known_names,
        )
        validation = _of_rows(train, validation_rows)
    else:
        validation = _relabelled(validation, known)
        if validation.size == 0:
            raise ValueError(
                f"The validation part of {name} has no examples of a known "
                "class, which are needed to calibrate the threshold."
            )
    return OpenSetDataset(
        name=name,
        class_names=known_names,
        class_ids=tuple(known),
        unknown_class_names=tuple(unknown_class_names[i] for i in unknown_ids),
        unknown_class_ids=tuple(unknown_ids),
        train=_of_rows(train, rows),
        validation=validation,
        known_test=known_test,
        unknown_test=unknown_test,
        **fields,
    )


def _whole(ids):
    """The ids of classes as a list of Python's whole numbers."""
    return np.asarray(list(ids)).tolist()


def _checked(examples, class_names, what):
    """The examples with labels as int64, (n,)."""
    if examples is None:
        return None
    try:
        labels = check_labels(examples.labels, len(class_names))
    except ValueError as error:
        raise ValueError(f"The {what}: {error}") from error
    if len(labels) != len(examples.images):
        raise ValueError(
            f"The {what} has {len(labels)} labels for {len(examples.images)} "
            "examples."
        )
    return examples._replace(labels=labels)


def _on_one_scale(parts, white):
    """`Examples` of all parts with values 0...255, and notes.

    Inputs that are no images keep their values.
    """
    images = {name: part and part.images for name, part in parts.items()}
    shapes = {x.shape[1:] for x in images.values() if x is not None}
    if len(shapes) > 1:
        raise ValueError(
            "The parts have inputs of different shapes: "
            f"{', '.join(map(str, sorted(shapes)))}."
        )
    notes: tuple = ()
    if all(len(shape) == 3 for shape in shapes):
        images, notes = on_one_scale(images, white)
    elif white is not None:
        raise ValueError(
            f"white={white} has no effect on inputs that are not images; "
            "leave it out."
        )
    else:
        images = {
            name: x if x is None else _rows(x, f"The {name} part")
            for name, x in images.items()
        }
    scaled = {
        name: part and part._replace(images=images[name])
        for name, part in parts.items()
    }
    return scaled, notes


def _rows(values, what):
    return (text_rows if are_texts(values) else finite_rows)(values, what)


_MOST_LISTED = 20


def listed(names):
    """Names as a text, not more of them than a person reads.

    Example:

    >>> listed(str(i) for i in range(1000))[-21:]
    '18, 19 and 980 others'
    """
    names = list(names)
    text = ", ".join(names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"{text} and {more} others" if more > 0 else text


def check_known(known, class_names, name):
    """Refuses ids of known classes that no model can be trained on.

    Example:

    >>> check_known([1], ["cat", "dog"], "pets")
    Traceback (most recent call last):
    ValueError: At least two known classes are needed; got 1. Classes of \
pets: cat, dog.
    """
    check_ids(known, class_names, name)
    if len(known) < 2:
        raise ValueError(
            f"At least two known classes are needed; got {len(known)}. "
            f"Classes of {name}: {listed(class_names)}."
        )
    if len(set(known)) != len(known):
        names = listed(class_names[i] for i in known)
        raise ValueError(f"A known class is listed twice: {names}.")
    if UNKNOWN_NAME in (class_names[i] for i in known):
        raise ValueError(
            f"A known class cannot be named {UNKNOWN_NAME!r}: that is the "
            "answer for inputs that belong to no known class."
        )


def check_ids(ids, class_names, name):
    """Refuses ids of classes that do not exist.

    Example:

    >>> check_ids([0, 9], ["cat", "dog"], "pets")
    Traceback (most recent call last):
    ValueError: pets has no class 9; its classes are 0 to 1: cat, dog.
    """
    wrong = [i for i in ids if not 0 <= i < len(class_names)]
    if wrong:
        raise ValueError(
            f"{name} has no class {wrong[0]}; its classes are 0 to "
            f"{len(class_names) - 1}: {listed(class_names)}."
        )


def check_disjoint(class_names, **ids):
    """Refuses classes listed for two purposes, e.g. known and unknown.

    Example:

    >>> check_disjoint(["cat", "dog"], known=[0, 1], unknown=[1])
    Traceback (most recent call last):
    ValueError: These classes are both known and unknown: dog.
    """
    for (one, ids_of_one), (other, ids_of_other) in itertools.combinations(
        ids.items(), 2
    ):
        both = sorted(set(ids_of_one) & set(ids_of_other))
        if both:
            names = listed(class_names[i] for i in both)
            raise ValueError(
                f"These classes are both {one} and {other}: {names}."
            )


def as_negatives(images):
    """`Examples` of images that belong to no class, with labels -1."""
    return Examples(images, np.full(len(images), UNKNOWN, "int64"))


def _relabelled(examples, ids):
    """Examples of the classes `ids`, with positions in `ids` as labels."""
    ids = np.array(ids, "int64")
    rows = np.flatnonzero(np.isin(examples.labels, ids))
    order = np.argsort(ids)
    labels = order[np.searchsorted(ids, examples.labels[rows], sorter=order)]
    return examples.take(rows)._replace(labels=labels)


def _of_rows(examples, rows):
    """Examples with row numbers in place of images, with the images."""
    return rows._replace(images=examples.take(rows.images).images)


def _ids_present(labels, known):
    return np.setdiff1d(labels, np.array(known, "int64")).tolist()


def _chosen(wanted, candidates, class_names):
    """The wanted unknown classes; all candidates by default."""
    if wanted is None:
        return candidates
    if len(set(wanted)) != len(wanted):
        names = ", ".join(class_names[i] for i in wanted)
        raise ValueError(f"An unknown class is listed twice: {names}.")
    possible = set(candidates)
    bad = [i for i in wanted if i not in possible]
    if bad:
        names = ", ".join(class_names[i] for i in bad)
        raise ValueError(
            "These cannot be unknown classes, because they are known classes "
            f"or have no test examples: {names}."
        )
    return list(wanted)


def _check_no_class_is_empty(examples, ids, class_names, whose, notes):
    counts = np.bincount(examples.labels, minlength=len(ids))
    empty = [class_names[i] for i, c in zip(ids, counts, strict=True) if c == 0]
    if empty:
        raise ValueError(
            f"These {whose} have no training examples: {listed(empty)}."
            + "".join(f" Note: {note}." for note in notes)
        )
