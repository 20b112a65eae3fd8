# SPDX-License-Identifier: Apache-2.0
"""From a data set's name to an `OpenSetDataset`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from cac_tf.annotations import Path
from cac_tf.data import class_splits
from cac_tf.data.open_set_dataset import TEST_FRACTION
from cac_tf.data.open_set_dataset import VALIDATION_FRACTION
from cac_tf.data.open_set_dataset import checked_seed
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.data.sources import ClassChoice
from cac_tf.data.sources import source_of

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset


def load_open_set_dataset(
    dataset: str,
    data_dir: Path | None = None,
    known_classes: Sequence[str] | None = None,
    unknown_classes: Sequence[str] | None = None,
    split_family: str | None = None,
    trial: int | None = None,
    image_size: int | None = None,
    strict: bool = False,
    stream: bool | None = None,
    split_seed: int = 0,
    test_fraction: float | None = None,
    validation_fraction: float | None = None,
    validation_split: str | None = None,
    negative_classes: Sequence[str] | None = None,
) -> OpenSetDataset:
    """Loads a data set and divides its classes into known and unknown.

    Args:
        dataset: "digits"; a set of the paper's benchmark ("mnist", "svhn",
            "cifar10", "cifar+10", "cifar+50", "tinyimagenet",
            "cifar10_vs_svhn", "cifar10_vs_cifar100"), its images resampled to
            32x32 (TinyImageNet 64x64) and counted; "folder"; a path that ends
            in ".npz"; what a `DataSource` of another package takes; or the
            name of any other TFDS data set with an `image` and a `label`.
        data_dir: the folder of "folder"; the TFDS directory.
        known_classes: names of the known classes, or None for the benchmark's
            split of this data set, or that of the .npz file.
        unknown_classes: names of the unknown classes; None for the split's,
            else all that are neither known nor negative (for
            "cifar10_vs_cifar100": those without a counterpart in CIFAR10).
        split_family, trial: which benchmark split; "neal" and 0 by default.
        image_size: height and width; by default that of the benchmark, else
            that of the images, and 32 for "folder".
        strict: whether an unreadable file in a folder is an error.
        stream: whether images stay encoded and are decoded when they are
            used; None decides by the memory that they would need.
        split_seed: seed of the choice of validation (and test) examples.
        test_fraction, validation_fraction: shares set apart where the
            source has no such part; 0.3 and 0.2 (TinyImageNet: 0.1) by
            default.
        validation_split: "authors" sets apart the validation images that the
            paper's authors did, which their released weights have not seen
            (CIFAR10, CIFAR+10, CIFAR+50); None chooses by `split_seed`.
        negative_classes: names of further classes of the data set that has
            the known ones ("cifar10_vs_svhn" and "cifar10_vs_cifar100": of
            CIFAR100). Their training images become `negatives`; they are not
            among the unknown classes.

    Returns:
        `OpenSetDataset`; pixels have values 0...255. Arrays of another scale
        are brought to it, and `notes` say so.

    Raises:
        ValueError: an option that this source does not use, a class that
            is used for two purposes, values that cannot be pixels, or
            whatever the source finds wrong; the message says what is allowed.

    Example:

    >>> digits = load_open_set_dataset("digits", trial=0)
    >>> digits.class_names, digits.counts["known_test"]
    (('0', '1', '2', '4', '5', '9'), 324)
    """
    source = source_of(dataset)
    options = {
        "data_dir": data_dir,
        "image_size": image_size,
        "strict": strict,
        "stream": stream,
        "validation_split": validation_split,
    }
    _refuse_given(
        dataset,
        {n: value for n, value in options.items() if n not in source.OPTIONS},
    )
    used = {name: options[name] for name in source.OPTIONS}
    split = None
    if known_classes is None and class_splits.has_class_split(dataset):
        split_family, trial = split_family or "neal", trial or 0
        split = class_splits.class_split(dataset, split_family, trial)
    else:
        _refuse_given(dataset, {"split_family": split_family, "trial": trial})
        split_family = "custom"

    # What needs no data is checked before they are read, which may take long.
    if image_size is not None and not (
        isinstance(image_size, int) and image_size >= 1
    ):
        raise ValueError(
            f"image_size must be a whole number of at least 1; got "
            f"{image_size!r}."
        )
    split_seed = checked_seed(
        split_seed,
        TEST_FRACTION if test_fraction is None else test_fraction,
        VALIDATION_FRACTION
        if validation_fraction is None
        else validation_fraction,
    )
    shares = {
        "test_fraction": test_fraction,
        "validation_fraction": validation_fraction,
        "split_seed": split_seed,
    }
    _refuse_shares_of_parts(
        dataset,
        shares,
        has_test=source.has_part("test", **used),
        has_validation=source.has_part("validation", **used),
    )
    choice = ClassChoice(
        dataset, known_classes, unknown_classes, negative_classes, split
    )
    parts = source.load(dataset, choice, **used)
    _refuse_shares_of_parts(
        dataset,
        shares,
        has_test=parts.test is not None,
        has_validation=parts.validation is not None,
    )
    has_other_negatives = parts.negative_class_names is not None
    if parts.negatives is not None and not has_other_negatives:
        _refuse_given(dataset, {"negative_classes": negative_classes})
    ids = choice.ids(
        parts.class_names,
        parts.unknown_class_names,
        parts.split,
        parts.negative_class_names,
    )
    fields: dict[str, Any] = {
        "name": dataset,
        "split_family": split_family,
        "trial": trial,
    }
    if known_classes is None and split is None:
        fields |= parts.fields or {}
    has_other_unknown = unknown_classes is not None or (
        negative_classes and parts.unknown is None
    )
    if has_other_unknown:
        # No longer the benchmark's split, nor that of the file.
        fields = {"name": fields["name"], "split_family": "custom"}
    result = make_open_set_dataset(
        name=dataset,
        train=parts.train,
        class_names=parts.class_names,
        known_classes=ids.known,
        test=parts.test,
        validation=parts.validation,
        split_seed=split_seed,
        test_fraction=TEST_FRACTION if test_fraction is None else test_fraction,
        validation_fraction=parts.validation_fraction
        if validation_fraction is None
        else validation_fraction,
        unknown=parts.unknown,
        unknown_class_names=parts.unknown_class_names,
        unknown_classes=ids.unknown,
        negative_classes=() if has_other_negatives else ids.negative,
        notes=parts.notes,
        white=parts.white,
        **({} if parts.negatives is None else {"negatives": parts.negatives}),
    )
    return _with_closed_set_note(dataclasses.replace(result, **fields))


def _with_closed_set_note(dataset):
    if dataset.unknown_class_names:
        return dataset
    note = "no unknown class is left: the evaluation is closed-set"
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))


def _refuse_shares_of_parts(dataset, shares, has_test, has_validation):
    """Raises if an option sets apart a part that the source has."""
    is_fixed = {
        "test_fraction": has_test,
        "validation_fraction": has_validation,
        "split_seed": has_test and has_validation,
    }
    _refuse_given(
        dataset, {n: value for n, value in shares.items() if is_fixed[n]}
    )


_PARAMETERS = inspect.signature(load_open_set_dataset).parameters


def _refuse_given(dataset, options):
    """Raises if one of these options is given: it has no effect."""
    for name, value in options.items():
        if value != _PARAMETERS[name].default:
            raise ValueError(
                f"{name} has no effect here (dataset={dataset!r}, or another "
                "option that already decides it); leave it out."
            )
