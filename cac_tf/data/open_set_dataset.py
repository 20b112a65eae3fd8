# SPDX-License-Identifier: Apache-2.0
"""One open-set experiment's data, whatever their source."""

import dataclasses
import functools
import hashlib
import os
import typing

import numpy as np
from sklearn import model_selection

from cac_tf.layers.image_preprocessing import channel_statistics
from cac_tf.metrics.open_set import openness

# Of a source without a test part, this share of each known class is set
# apart; of what is left for training, the other share for validation.
TEST_FRACTION = 0.3
VALIDATION_FRACTION = 0.2


class Examples(typing.NamedTuple):
    """Images with their labels."""

    # (n, H, W, C), values 0...255: an array, or `StreamedImages`.
    images: typing.Any
    labels: np.ndarray  # (n,) int64

    def take(self, rows):
        """The examples of these rows."""
        choose = getattr(self.images, "subset", self.images.__getitem__)
        return Examples(choose(rows), self.labels[rows])

    @property
    def size(self):
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class OpenSetDataset:
    """Training, validation and test data of known and unknown classes.

    Labels of `train`, `validation` and `known_test` are positions in
    `class_names`; labels of `unknown_test` are positions in
    `unknown_class_names`. Unknown classes appear in `unknown_test` alone.
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

    @property
    def image_shape(self):
        """(height, width, channels)."""
        return tuple(self.train.images.shape[1:])

    @property
    def openness(self):
        """Openness of the experiment (equation 10)."""
        return openness(len(self.class_names), len(self.unknown_class_names))

    @property
    def counts(self):
        """Number of examples of each part."""
        return {
            "train": self.train.size,
            "validation": self.validation.size,
            "known_test": self.known_test.size,
            "unknown_test": self.unknown_test.size,
        }

    @property
    def validation_digest(self):
        """SHA-256 of the validation images and labels: which were chosen."""
        digest = hashlib.sha256(self.validation.labels.tobytes())
        images = self.validation.images
        for part in getattr(images, "sources", images):
            if isinstance(part, os.PathLike):
                # An image that is decoded later is known by its file.
                part = part.read_bytes()
            digest.update(part if isinstance(part, bytes) else part.tobytes())
        return digest.hexdigest()

    # Once: it reads all training images.
    @functools.cached_property
    def channel_statistics(self):
        """Mean and std of the training images' channels, scale [0, 1]."""
        return channel_statistics(self.train.images)


def stratified_split(examples, fraction, seed):
    """Two disjoint parts, every class split in the same proportion.

    Args:
        examples: `Examples`.
        fraction: share of the second part, in (0, 1).
        seed: of the choice.

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
    labels, counts = np.unique(examples.labels, return_counts=True)
    if examples.size == 0 or counts.min() < 2:
        raise ValueError(
            "Every class needs at least two examples to be split; these "
            f"labels have one: {labels[counts < 2].tolist()}."
        )
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
    parts = tuple(examples.take(np.sort(part)) for part in rows)
    for part in parts:
        missing = sorted(set(labels.tolist()) - set(part.labels.tolist()))
        if missing:
            raise ValueError(
                f"A split by {fraction} leaves no example of these labels in "
                f"one of its parts: {missing}. Take another fraction, or more "
                "examples."
            )
    return parts


def make_open_set_dataset(
    name,
    train,
    class_names,
    known_classes,
    test=None,
    validation=None,
    split_seed=0,
    test_fraction=TEST_FRACTION,
    validation_fraction=VALIDATION_FRACTION,
    unknown=None,
    unknown_class_names=None,
    unknown_classes=None,
    **fields,
):
    """Divides labelled images into the parts of an open-set experiment.

    Args:
        name: of the data set.
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
        split_seed: of both choices.
        test_fraction, validation_fraction: shares in (0, 1).
        unknown: `Examples` of another source whose classes are the unknown
            ones, or None: then they are the classes of this source that are
            not known.
        unknown_class_names: name of every class of `unknown`.
        unknown_classes: ids of the unknown classes; None for all there are.
        **fields: further fields of `OpenSetDataset`.

    Returns:
        `OpenSetDataset`.

    Raises:
        ValueError: fewer than two known classes, the same one twice, one
            that does not exist or has too few images.

    Example:

    >>> images = np.zeros((60, 2, 2, 1), "uint8")
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
    known = list(known_classes)
    if len(known) < 2:
        raise ValueError(
            f"At least two known classes are needed; got {len(known)}. "
            f"Classes of {name}: {', '.join(class_names)}."
        )
    if len(set(known)) != len(known):
        names = ", ".join(class_names[i] for i in known)
        raise ValueError(f"A known class is listed twice: {names}.")
    for value, option in (
        (test_fraction, "test_fraction"),
        (validation_fraction, "validation_fraction"),
    ):
        if not 0.0 < value < 1.0:
            raise ValueError(f"{option} must be in (0, 1); got {value!r}.")
    known_train = _relabelled(train, known)
    _check_no_class_is_empty(known_train, known, class_names, name)
    if unknown is None:
        unknown = train if test is None else test
        unknown_class_names = class_names
        candidates = _ids_present(unknown.labels, known)
    else:
        candidates = _ids_present(unknown.labels, [])
    unknown_ids = _chosen(unknown_classes, candidates, unknown_class_names)
    unknown_test = _relabelled(unknown, unknown_ids)
    if test is None:
        known_train, known_test = _named_split(
            known_train, test_fraction, split_seed, known, class_names
        )
    else:
        known_test = _relabelled(test, known)
        if known_test.size == 0:
            raise ValueError(
                f"The test part of {name} has no image of a known class."
            )
    if validation is None:
        known_train, validation = _named_split(
            known_train, validation_fraction, split_seed, known, class_names
        )
    else:
        validation = _relabelled(validation, known)
        if validation.size == 0:
            raise ValueError(
                f"The validation part of {name} has no image of a known "
                "class; the threshold is calibrated on these."
            )
    return OpenSetDataset(
        name=name,
        class_names=tuple(class_names[i] for i in known),
        class_ids=tuple(known),
        unknown_class_names=tuple(unknown_class_names[i] for i in unknown_ids),
        unknown_class_ids=tuple(unknown_ids),
        train=known_train,
        validation=validation,
        known_test=known_test,
        unknown_test=unknown_test,
        **fields,
    )


def _relabelled(examples, ids):
    """Examples of the classes `ids`, with positions in `ids` as labels."""
    position = {int(class_id): index for index, class_id in enumerate(ids)}
    rows = np.flatnonzero(np.isin(examples.labels, list(position)))
    labels = [position[int(label)] for label in examples.labels[rows]]
    return Examples(examples.take(rows).images, np.array(labels, "int64"))


def _ids_present(labels, known):
    return [int(i) for i in np.unique(labels) if int(i) not in set(known)]


def _chosen(wanted, candidates, class_names):
    """The unknown classes asked for; all candidates by default."""
    if wanted is None:
        return candidates
    if len(set(wanted)) != len(wanted):
        names = ", ".join(class_names[i] for i in wanted)
        raise ValueError(f"An unknown class is listed twice: {names}.")
    bad = [i for i in wanted if i not in candidates]
    if bad:
        names = ", ".join(class_names[i] for i in bad)
        raise ValueError(
            "These cannot be unknown classes, because they are known ones or "
            f"have no test image: {names}."
        )
    return list(wanted)


def _check_no_class_is_empty(examples, known, class_names, name):
    counts = np.bincount(examples.labels, minlength=len(known))
    empty = [
        class_names[i] for i, c in zip(known, counts, strict=True) if c == 0
    ]
    if empty:
        raise ValueError(
            f"These known classes of {name} have no training image: "
            f"{', '.join(empty)}."
        )


def _named_split(examples, fraction, seed, known, class_names):
    counts = np.bincount(examples.labels, minlength=len(known))
    for class_id, count in zip(known, counts, strict=True):
        if count < 2:
            raise ValueError(
                f"Class {class_names[class_id]!r} has too few training images "
                "to set one apart for validation or test."
            )
    return stratified_split(examples, fraction, seed)
