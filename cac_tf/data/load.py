# SPDX-License-Identifier: Apache-2.0
"""From a data set's name to an `OpenSetDataset`."""

import dataclasses

from cac_tf.data import class_splits
from cac_tf.data.benchmark_sets import BENCHMARK_SETS
from cac_tf.data.benchmark_sets import BenchmarkImages
from cac_tf.data.digits import load_digits
from cac_tf.data.image_folder import load_image_folder
from cac_tf.data.npz_arrays import load_npz_arrays
from cac_tf.data.open_set_dataset import TEST_FRACTION
from cac_tf.data.open_set_dataset import VALIDATION_FRACTION
from cac_tf.data.open_set_dataset import make_open_set_dataset
from cac_tf.data.tfds_images import load_tfds_images

_FOLDER_IMAGE_SIZE = 32


def load_open_set_dataset(
    dataset,
    data_dir=None,
    known_classes=None,
    unknown_classes=None,
    split_family=None,
    trial=None,
    image_size=None,
    strict=False,
    stream=None,
    split_seed=0,
    test_fraction=None,
    validation_fraction=None,
    validation_split=None,
):
    """Loads a data set and divides its classes into known and unknown.

    Args:
        dataset: "digits"; a set of the paper's benchmark ("mnist", "svhn",
            "cifar10", "cifar+10", "cifar+50", "tinyimagenet",
            "cifar10_vs_svhn", "cifar10_vs_cifar100"), its images resampled to
            32x32 (TinyImageNet 64x64) and counted; "folder"; a path that ends
            in ".npz"; or the name of any other TFDS data set with an `image`
            and a `label`.
        data_dir: the folder of "folder"; the TFDS directory.
        known_classes: names of the known classes, or None for the benchmark's
            split of this data set, or that of the .npz file.
        unknown_classes: names of the unknown classes; None for the split's,
            else all that are not known (of "cifar10_vs_cifar100": those
            without a counterpart in CIFAR10).
        split_family, trial: which benchmark split; "neal" and 0 by default.
        image_size: height and width; by default that of the benchmark, else
            that of the images, and 32 for "folder".
        strict: whether an unreadable file in a folder is an error.
        stream: whether images stay encoded and are decoded when they are
            used; None decides by the memory that they would need.
        split_seed: of the choice of validation (and test) examples.
        test_fraction, validation_fraction: shares set apart where the
            source has no such part; 0.3 and 0.2 (TinyImageNet: 0.1) by
            default.
        validation_split: "authors" sets apart the validation images that the
            paper's authors did, which their released weights have not seen
            (CIFAR10, CIFAR+10, CIFAR+50); None chooses by `split_seed`.

    Returns:
        `OpenSetDataset`.

    Raises:
        ValueError: an option that this source does not use, or whatever the
            source finds wrong; the message says what is allowed.

    Example:

    >>> digits = load_open_set_dataset("digits", trial=0)
    >>> digits.class_names, digits.counts["known_test"]
    (('0', '1', '2', '4', '5', '9'), 324)
    """
    is_npz = dataset.endswith(".npz")
    is_folder = dataset == "folder"
    is_digits = dataset == "digits"
    is_benchmark = dataset in BENCHMARK_SETS
    has_split = class_splits.has_class_split(dataset)
    takes_split = has_split and known_classes is None
    _refuse_unused(
        dataset,
        data_dir=data_dir is not None and (is_npz or is_digits),
        image_size=image_size is not None and (is_npz or is_digits),
        strict=strict and not is_folder,
        stream=stream is not None and (is_npz or is_digits),
        split_family=split_family is not None and not takes_split,
        trial=trial is not None and not takes_split,
    )
    split, origin = None, None
    if takes_split:
        split_family, trial = split_family or "neal", trial or 0
        split = class_splits.class_split(dataset, split_family, trial)
    is_by_authors = validation_split == "authors"
    _refuse_unused(
        dataset,
        validation_split=is_by_authors and not is_benchmark,
        split_seed=is_by_authors and split_seed != 0,
        validation_fraction=is_by_authors and validation_fraction is not None,
    )
    if is_benchmark:
        return _load_benchmark(
            dataset,
            BenchmarkImages(dataset, data_dir, image_size, stream),
            split,
            known_classes,
            unknown_classes,
            split_family="custom"
            if split is None or unknown_classes
            else split_family,
            trial=None if unknown_classes else trial,
            split_seed=split_seed,
            test_fraction=test_fraction,
            validation_fraction=validation_fraction,
            is_by_authors=is_by_authors,
        )
    validation, notes = None, ()
    if is_digits:
        (train, class_names), test = load_digits(), None
    elif is_folder:
        if data_dir is None:
            raise ValueError("--dataset=folder needs --data_dir.")
        class_names, train, validation, test, notes = load_image_folder(
            data_dir, image_size or _FOLDER_IMAGE_SIZE, strict, stream
        )
    elif is_npz:
        arrays = load_npz_arrays(dataset)
        class_names = arrays.class_names
        train, validation, test = arrays.train, arrays.validation, arrays.test
        if known_classes is None and arrays.known_classes:
            known_classes, origin = arrays.known_classes, arrays.origin
    else:
        class_names, train, test, notes = load_tfds_images(
            dataset, data_dir, image_size, stream
        )
    _refuse_unused(
        dataset,
        test_fraction=test_fraction is not None and test is not None,
        validation_fraction=validation_fraction is not None
        and validation is not None,
        split_seed=split_seed != 0
        and test is not None
        and validation is not None,
    )
    if known_classes is not None:
        known = _ids_of(known_classes, class_names, dataset)
        split_family = "custom"
    elif split is None:
        raise ValueError(
            f"--dataset={dataset} needs --known_classes. Its classes: "
            f"{', '.join(class_names)}."
        )
    else:
        known = split.known
    unknown = unknown_classes and _ids_of(unknown_classes, class_names, dataset)
    result = make_open_set_dataset(
        name=dataset,
        train=train,
        class_names=class_names,
        known_classes=known,
        unknown_classes=unknown,
        test=test,
        validation=validation,
        split_seed=split_seed,
        test_fraction=TEST_FRACTION if test_fraction is None else test_fraction,
        validation_fraction=VALIDATION_FRACTION
        if validation_fraction is None
        else validation_fraction,
        split_family=split_family,
        trial=trial,
        notes=notes,
    )
    if unknown is not None:
        # No longer the benchmark's split, nor that of the file.
        result = dataclasses.replace(result, split_family="custom", trial=None)
        origin = origin and {"name": origin["name"]}
    if origin:
        fields = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in origin.items()
        }
        result = dataclasses.replace(result, **fields)
    return _with_closed_set_note(result)


def _with_closed_set_note(dataset):
    if dataset.unknown_class_names:
        return dataset
    note = "no unknown class is left: the evaluation is closed-set"
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))


def _load_benchmark(
    dataset,
    images,
    split,
    known_classes,
    unknown_classes,
    *,
    test_fraction,
    validation_fraction,
    is_by_authors,
    **options,
):
    _refuse_unused(dataset, test_fraction=test_fraction is not None)
    names, unknown_names = images.class_names, images.unknown_class_names
    if known_classes is not None:
        known = _ids_of(known_classes, names, dataset)
    elif split is not None:
        known = list(split.known)
    else:
        # A set with two sources and no split: all classes of one are known.
        known = list(range(len(names)))
    if unknown_classes is not None:
        unknown = _ids_of(unknown_classes, unknown_names, dataset)
    elif split is not None:
        unknown = list(split.unknown)
    else:
        unknown = images.default_unknown(known)
    both = set(known) & set(unknown)
    if both and not images.has_two_sources:
        both = ", ".join(names[i] for i in sorted(both))
        raise ValueError(f"These classes are both known and unknown: {both}.")
    train, test, unknown_test = images.read(known, unknown)
    validation = None
    if is_by_authors:
        train, validation = images.authors_split(train)
    if validation_fraction is None:
        validation_fraction = BENCHMARK_SETS[dataset].validation_fraction
    return _with_closed_set_note(
        make_open_set_dataset(
            name=dataset,
            train=train,
            class_names=names,
            known_classes=known,
            test=test,
            validation=validation,
            validation_fraction=validation_fraction,
            unknown=unknown_test,
            unknown_class_names=unknown_names,
            unknown_classes=unknown,
            **options,
        )
    )


def _refuse_unused(dataset, **unused):
    for option, is_unused in unused.items():
        if is_unused:
            raise ValueError(
                f"--{option} has no effect here (--dataset={dataset}, or "
                "another option that already decides it); leave it out."
            )


def _ids_of(names, class_names, dataset):
    missing = [name for name in names if name not in class_names]
    if missing:
        raise ValueError(
            f"{dataset} has no class {', '.join(map(repr, missing))}. Its "
            f"classes: {', '.join(class_names)}."
        )
    return [class_names.index(name) for name in names]
