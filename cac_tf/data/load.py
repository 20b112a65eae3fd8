# SPDX-License-Identifier: Apache-2.0
"""From a data set's name to an `OpenSetDataset`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from typing import Any

from cac_tf.data import class_splits
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.data.options import OPTIONS_OF_IMAGES
from cac_tf.data.options import SOURCE_OPTIONS
from cac_tf.data.options import DataOptions
from cac_tf.data.sources.source import ClassChoice
from cac_tf.data.sources.source import source_of
from cac_tf.hyperparameters import INTERPOLATIONS

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset


def load_open_set_dataset(
    dataset: str | DataOptions, *, as_vectors: bool = False, **options: Any
) -> OpenSetDataset:
    """Loads a data set and divides its classes into known and unknown.

    Args:
        dataset: "digits"; a set of the paper's benchmark ("mnist", "svhn",
            "cifar10", "cifar+10", "cifar+50", "tinyimagenet",
            "cifar10_vs_svhn", "cifar10_vs_cifar100"), its images resampled to
            32x32 (TinyImageNet 64x64) and counted; "folder"; a path that ends
            in ".npz", ".npy", ".csv" or ".parquet" (with numbers, vectors,
            texts or image paths); a name that another package's `DataSource`
            takes; the name of any other labeled TFDS data set of images, texts,
            vectors or numbers; or a `DataOptions`, which contains the name.
        as_vectors: whether a frozen network will turn images into vectors
            before training; if there are few, none are then held out for
            validation.
        **options: fields of `DataOptions`, which describes them.

    Returns:
        `OpenSetDataset`; pixels have values 0...255. Arrays on another scale
        are converted, and `notes` says so. Vectors stay as they are.

    Raises:
        ValueError: an option that is out of range or that this source does not
            use, a class given two roles, values that cannot be pixels, or any
            other fault that the source finds; the message says what is allowed.

    Example:

    >>> digits = load_open_set_dataset("digits", trial=0)
    >>> digits.class_names, digits.counts["known_test"]
    (('0', '1', '2', '4', '5', '9'), 324)
    """
    if isinstance(dataset, DataOptions):
        return _load(dataclasses.replace(dataset, **options), as_vectors)
    return _load(DataOptions(dataset, **options), as_vectors)


def _load(options, as_vectors):
    given, dataset = options, options.dataset
    source = source_of(dataset)
    _refuse_given(
        options, [name for name in SOURCE_OPTIONS if name not in source.OPTIONS]
    )
    # Here, and not where an option is left out: a pretrained network takes that
    # for another way.
    options = dataclasses.replace(
        options, interpolation=options.interpolation or INTERPOLATIONS[0]
    )
    used = {name: getattr(options, name) for name in source.OPTIONS}
    split, split_family, trial = None, "custom", None
    if options.known_share is not None:
        _refuse_given(options, ("known_classes", "split_family"))
        trial = options.value_of("trial")
        split_family = f"share{options.known_share:g}"
    elif options.known_classes is None and class_splits.has_class_split(
        dataset
    ):
        split_family = options.value_of("split_family")
        trial = options.value_of("trial")
        split = class_splits.class_split(dataset, split_family, trial)
    else:
        _refuse_given(options, ("split_family", "trial"))
    # What needs no data is checked before they are read, which may take long.
    _refuse_shares_of_parts(
        options,
        has_test=source.has_part("test", **used),
        has_validation=source.has_part("validation", **used),
    )
    choice = ClassChoice(
        dataset,
        options.known_classes,
        options.unknown_classes,
        options.negative_classes,
        split,
        options.known_share,
        trial,
    )
    parts = source.load(dataset, choice, **used)
    if len(parts.train.images.shape) != 4:
        _refuse_given(given, OPTIONS_OF_IMAGES)
    _refuse_shares_of_parts(
        options,
        has_test=parts.test is not None,
        has_validation=parts.validation is not None,
    )
    has_other_negatives = parts.negative_class_names is not None
    if parts.negatives is not None and not has_other_negatives:
        _refuse_given(options, ("negative_classes",))
    ids = choice.ids(
        parts.class_names,
        parts.unknown_class_names,
        parts.split,
        parts.negative_class_names,
    )
    fields = {"name": dataset, "split_family": split_family, "trial": trial}
    if (options.known_classes, options.known_share, split) == (None,) * 3:
        fields |= parts.fields or {}
    has_other_unknown = options.unknown_classes is not None or (
        options.negative_classes and parts.unknown is None
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
        split_seed=options.split_seed,
        test_fraction=options.value_of("test_fraction"),
        validation_fraction=options.validation_fraction
        or parts.validation_fraction,
        unknown=parts.unknown,
        unknown_class_names=parts.unknown_class_names,
        unknown_classes=ids.unknown,
        negative_classes=() if has_other_negatives else ids.negative,
        notes=parts.notes,
        input_columns=parts.input_columns,
        white=parts.white,
        as_vectors=as_vectors,
        **({} if parts.negatives is None else {"negatives": parts.negatives}),
    )
    interpolation = parts.interpolation or options.interpolation
    return dataclasses.replace(result, interpolation=interpolation, **fields)


def _refuse_shares_of_parts(options, has_test, has_validation):
    """Raises if an option sets apart a part that the source has."""
    is_fixed = {
        "test_fraction": has_test,
        "validation_fraction": has_validation,
        "split_seed": has_test and has_validation,
    }
    _refuse_given(options, [name for name in is_fixed if is_fixed[name]])


def _refuse_given(options, names):
    """Raises if one of these options is given: it has no effect."""
    for name in names:
        if options.is_given(name):
            raise ValueError(
                f"{name} has no effect here (it does not apply to "
                f"dataset={options.dataset!r}, or another option overrides "
                "it); leave it out."
            )
