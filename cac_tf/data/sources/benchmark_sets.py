# SPDX-License-Identifier: Apache-2.0
"""The data sets of the paper's benchmark: sources, sizes, expected counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cac_tf.data import tfds_images
from cac_tf.data.authors_split import authors_training_index
from cac_tf.data.channel_statistics import channel_statistics
from cac_tf.data.class_splits import ClassSplit
from cac_tf.data.open_set_dataset import as_negatives
from cac_tf.data.pixel_scale import WHITE
from cac_tf.data.sources.source import DataSource
from cac_tf.data.sources.source import LabelledParts
from cac_tf.data.sources.source import register
from cac_tf.hyperparameters import INTERPOLATIONS

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import Examples


@dataclasses.dataclass(frozen=True)
class Source:
    """A TFDS data set, with the images that each class must have."""

    name: str
    test_split: str
    # One number for all classes, or one per class.
    train_counts: int | tuple
    test_counts: int | tuple


@dataclasses.dataclass(frozen=True)
class BenchmarkSet:
    """Where known and unknown classes come from, and how images are read."""

    known: Source
    unknown: Source | None = None  # None: the other classes of `known`
    image_size: int = 32
    validation_fraction: float = 0.2
    # Names of unknown classes that the experiment leaves out.
    without: tuple = ()
    # Names of the known and the unknown classes; None: all, or the split's.
    known_names: tuple | None = None
    unknown_names: tuple = ()
    # Where negative classes come from; None: other classes of `known`.
    negative: Source | None = None


_MNIST = Source(
    "mnist",
    "test",
    (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
_SVHN = Source(
    "svhn_cropped",
    "test",
    (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
)
_CIFAR10 = Source("cifar10", "test", 5000, 1000)
_CIFAR100 = Source("cifar100", "test", 500, 100)
_TINY_IMAGENET = Source("tiny_imagenet", "validation", 500, 50)

# Classes of CIFAR100 with a counterpart in CIFAR10: road vehicles (automobile,
# truck), big cats (cat), wild dogs (dog). The paper does not say which it left
# out.
_COUNTERPARTS = (
    "bus",
    "pickup_truck",
    "streetcar",
    "tank",
    "tractor",
    "leopard",
    "lion",
    "tiger",
    "fox",
    "wolf",
)

BENCHMARK_SETS = {
    "mnist": BenchmarkSet(_MNIST),
    "svhn": BenchmarkSet(_SVHN),
    "cifar10": BenchmarkSet(_CIFAR10),
    "cifar+10": BenchmarkSet(_CIFAR10, _CIFAR100),
    "cifar+50": BenchmarkSet(_CIFAR10, _CIFAR100),
    "tinyimagenet": BenchmarkSet(
        _TINY_IMAGENET, image_size=64, validation_fraction=0.1
    ),
    "cifar10_vs_svhn": BenchmarkSet(_CIFAR10, _SVHN, negative=_CIFAR100),
    "cifar10_vs_cifar100": BenchmarkSet(
        _CIFAR10, _CIFAR100, without=_COUNTERPARTS, negative=_CIFAR100
    ),
    # The paper's Figure 1. 1,500 images are few: 150 are enough to calibrate.
    "vehicles_animals": BenchmarkSet(
        _CIFAR100,
        validation_fraction=0.1,
        known_names=("train", "bus", "bicycle"),
        unknown_names=("bear", "possum"),
    ),
}


@register
class BenchmarkSets(DataSource):
    """The paper's data sets, read through TFDS and counted."""

    NAME = "benchmark"
    DATASETS = tuple(BENCHMARK_SETS)
    TAKES = f"a data set of the paper's benchmark ({', '.join(BENCHMARK_SETS)})"
    OPTIONS = (
        "data_dir",
        "image_size",
        "interpolation",
        "stream",
        "validation_split",
    )
    DATA_DIR_IS_OF_TFDS = True

    def takes(self, dataset):
        return dataset in BENCHMARK_SETS

    def has_part(self, part, validation_split, **options):
        return part == "test" or validation_split is not None

    def load(self, dataset, classes, data_dir, validation_split, **options):
        images = BenchmarkImages(dataset, data_dir, **options)
        split = images.default_split
        # Read only if it is needed.
        others = images.negative_class_names if classes.negative else None
        ids = classes.ids(
            images.class_names, images.unknown_class_names, split, others
        )
        negatives = None
        if others is None:
            train, test, unknown = images.read(*ids)
        else:
            train, test, unknown = images.read(ids.known, ids.unknown)
            negatives = images.read_negatives(ids.negative)
        validation = None
        if validation_split is not None:
            train, validation = images.authors_split(train)
        return LabelledParts(
            class_names=images.class_names,
            train=train,
            validation=validation,
            test=test,
            unknown=unknown,
            unknown_class_names=images.unknown_class_names,
            negatives=negatives,
            negative_class_names=others,
            split=split,
            validation_fraction=BENCHMARK_SETS[dataset].validation_fraction,
            white=WHITE,
        )


class BenchmarkImages:
    """Reads the classes of a benchmark set that an experiment needs.

    Args:
        name: key of `BENCHMARK_SETS`.
        data_dir: TFDS directory; by default TFDS' own (`TFDS_DATA_DIR`).
        image_size: height and width; None for the benchmark's.
        stream, interpolation: as in `tfds_images.read_split`.

    Raises:
        ValueError: what `tfds_images.prepared_builder` finds wrong.
    """

    def __init__(
        self,
        name: str,
        data_dir: str | None = None,
        image_size: int | None = None,
        stream: bool | None = None,
        interpolation: str = INTERPOLATIONS[0],
    ) -> None:
        self._set = BENCHMARK_SETS[name]
        self._options = {
            "image_size": image_size or self._set.image_size,
            "stream": stream,
            "interpolation": interpolation,
        }
        self._data_dir = data_dir
        self._known = self._builder(self._set.known)
        self._unknown = self._builder(self._set.unknown)

    def _builder(self, source):
        if source is None:
            return None
        return tfds_images.prepared_builder(source.name, self._data_dir)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes that can be known."""
        return tfds_images.class_names(self._known)

    @property
    def unknown_class_names(self) -> tuple[str, ...] | None:
        """Names of the classes of the data set of the unknown classes.

        None if it is the same data set.
        """
        return _names_of(self._unknown)

    @property
    def negative_class_names(self) -> tuple[str, ...] | None:
        """Names of the classes of the data set of negative classes.

        None if it is that of the known classes.
        """
        return _names_of(self._builder(self._set.negative))

    @property
    def default_split(self) -> ClassSplit | None:
        """All of one data set against the other, or the classes by name.

        None if there is only one data set, and no classes are named.
        """
        if self._set.known_names is not None:
            return ClassSplit(
                tuple(map(self.class_names.index, self._set.known_names)),
                tuple(map(self.class_names.index, self._set.unknown_names)),
            )
        if self._unknown is None:
            return None
        return ClassSplit(
            tuple(range(len(self.class_names))),
            tuple(
                i
                for i, name in enumerate(self.unknown_class_names or ())
                if name not in self._set.without
            ),
        )

    def source_statistics(
        self, known: Sequence[int]
    ) -> tuple[list[float], list[float]]:
        """Mean and std of the known training images at their own size.

        The paper's authors computed them in this way. For those of the images
        as used in training see `OpenSetDataset.channel_statistics`.
        """
        examples = tfds_images.read_split(self._known, "train", known)
        return channel_statistics(examples.images)

    def authors_split(self, train: Examples) -> tuple[Examples, Examples]:
        """Splits training images as the paper's authors did.

        Args:
            train: `Examples` of `read`.

        Returns:
            `Examples` for training and for validation.

        Raises:
            ValueError: it is not known which image is which.
        """
        if self._set.known is not _CIFAR10:
            raise ValueError(
                "validation_split='authors' is available only if the known "
                "classes come from CIFAR10: TFDS does not say which image of "
                f"{self._set.known.name} is which."
            )
        numbers, labels = tfds_images.read_numbers(self._known, "train")
        # The labels of all images, in the published order.
        published = np.empty(len(labels), "int64")
        published[numbers] = labels
        is_training = authors_training_index(
            published, [_MNIST.train_counts, _SVHN.train_counts]
        )
        # In the order of the files, as `train` is.
        rows = is_training[numbers[np.isin(labels, np.unique(train.labels))]]
        return (
            train.take(np.flatnonzero(rows)),
            train.take(np.flatnonzero(~rows)),
        )

    def read(
        self,
        known: Sequence[int],
        unknown: Sequence[int] | None,
        negative: Sequence[int] = (),
    ) -> tuple[Examples, Examples, Examples | None]:
        """The images of these class ids.

        Args:
            known: ids to train and to test on.
            unknown: ids to test on; None for all that are neither known nor
                negative.
            negative: ids to train on.

        Returns:
            Training `Examples`, test `Examples`, and those of the unknown
            classes, or None where the test examples hold them; labels are
            class ids.

        Raises:
            ValueError: a class has another number of images than the
                published data set, or what `tfds_images.read_split` finds.
        """
        source, other = self._set.known, self._set.unknown
        trained_on, tested = [*known, *negative], [*known]
        if other is None:
            if unknown is None:
                every = range(len(self.class_names))
                unknown = [i for i in every if i not in trained_on]
            tested += unknown
        train = self._read(self._known, "train", trained_on, source)
        test = self._read(self._known, source.test_split, tested, source)
        if other is None:
            return train, test, None
        if not unknown:
            return train, test, test.take(slice(0, 0))
        images = self._read(self._unknown, other.test_split, unknown, other)
        return train, test, images

    def read_negatives(self, negative: Sequence[int]) -> Examples:
        """The training images of another data set's classes, labelled -1.

        Args:
            negative: ids among `negative_class_names`.

        Raises:
            ValueError: as in `read`.
        """
        source = self._set.negative
        examples = self._read(self._builder(source), "train", negative, source)
        return as_negatives(examples.images)

    def _read(self, builder, split, classes, source):
        examples = tfds_images.read_split(
            builder, split, classes, **self._options
        )
        is_training = split == "train"
        expected = source.train_counts if is_training else source.test_counts
        _check_counts(examples.labels, classes, expected, builder, split)
        return examples


def _names_of(builder):
    return None if builder is None else tfds_images.class_names(builder)


def _check_counts(labels, classes, expected, builder, split):
    names = tfds_images.class_names(builder)
    counts = np.bincount(labels, minlength=len(names))
    wanted = np.broadcast_to(expected, (len(names),))
    wrong = [i for i in classes if counts[i] != wanted[i]]
    if wrong:
        listed = ", ".join(
            f"{names[i]}: {counts[i]} instead of {wanted[i]}" for i in wrong[:5]
        )
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(
            f"The split {split!r} of {builder.name} in {builder.data_dir} "
            "does not have as many images as the published data set "
            f"({listed}{more}). Most likely, this copy was prepared from part "
            "of the data or from another version. Delete that folder and "
            "prepare it again from the complete source."
        )
