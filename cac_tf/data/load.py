# SPDX-License-Identifier: Apache-2.0
"""From a data set's name to an `OpenSetDataset`."""

import dataclasses

from cac_tf.data import class_splits
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
    split_family=None,
    trial=None,
    image_size=None,
    strict=False,
    split_seed=0,
    test_fraction=None,
    validation_fraction=None,
):
    """Loads a data set and divides its classes into known and unknown.

    Args:
        dataset: "digits", "folder", a path that ends in ".npz", or the name
            of a TFDS data set with an `image` and a `label`.
        data_dir: the folder of "folder"; the TFDS directory.
        known_classes: names of the known classes (the rest is unknown), or
            None for the benchmark's split of this data set.
        split_family, trial: which benchmark split; "neal" and 0 by default.
        image_size: height and width; by default that of the images, and 32
            for "folder".
        strict: whether an unreadable file in a folder is an error.
        split_seed: of the choice of validation (and test) examples.
        test_fraction, validation_fraction: shares set apart where the
            source has no such part; 0.3 and 0.2 by default.

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
    _refuse_unused(
        dataset,
        data_dir=data_dir is not None and (is_npz or is_digits),
        image_size=image_size is not None and (is_npz or is_digits),
        strict=strict and not is_folder,
        split_family=split_family is not None and known_classes is not None,
        trial=trial is not None and known_classes is not None,
    )
    validation, notes = None, ()
    if is_digits:
        (train, class_names), test = load_digits(), None
    elif is_folder:
        if data_dir is None:
            raise ValueError("--dataset=folder needs --data_dir.")
        class_names, train, validation, test, notes = load_image_folder(
            data_dir, image_size or _FOLDER_IMAGE_SIZE, strict
        )
    elif is_npz:
        class_names, train, validation, test = load_npz_arrays(dataset)
    else:
        class_names, train, test, notes = load_tfds_images(
            dataset, data_dir, image_size
        )
    _refuse_unused(
        dataset,
        test_fraction=test_fraction is not None and test is not None,
        validation_fraction=validation_fraction is not None
        and validation is not None,
    )
    if known_classes is not None:
        known = _ids_of(known_classes, class_names, dataset)
        split_family = "custom"
    else:
        if not class_splits.has_class_split(dataset):
            raise ValueError(
                f"--dataset={dataset} needs --known_classes. Its classes: "
                f"{', '.join(class_names)}."
            )
        split_family = split_family or "neal"
        trial = trial or 0
        known = class_splits.class_split(dataset, split_family, trial).known
    result = make_open_set_dataset(
        name=dataset,
        train=train,
        class_names=class_names,
        known_classes=known,
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
    if not result.unknown_class_names:
        note = "no unknown class is left: the evaluation is closed-set"
        result = dataclasses.replace(result, notes=(*result.notes, note))
    return result


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
