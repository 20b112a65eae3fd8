# SPDX-License-Identifier: Apache-2.0
"""The data sets of the paper's benchmark: sources, sizes, expected counts."""

import dataclasses

import numpy as np

from cac_tf.data import tfds_images
from cac_tf.data.authors_split import authors_training_index
from cac_tf.layers.image_preprocessing import channel_statistics


@dataclasses.dataclass(frozen=True)
class Source:
    """A TFDS data set, with the images that each class must have."""

    name: str
    test_split: str
    # One number for all classes, or one a class.
    train_counts: int | tuple
    test_counts: int | tuple


@dataclasses.dataclass(frozen=True)
class BenchmarkSet:
    """Where known and unknown classes come from, and how images are taken."""

    known: Source
    unknown: Source | None = None  # None: the other classes of `known`
    image_size: int = 32
    validation_fraction: float = 0.2
    # Names of unknown classes that the experiment leaves out.
    without: tuple = ()


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
# truck), cats of prey (cat), wild dogs (dog). The paper does not say which it
# left out.
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
    "cifar10_vs_svhn": BenchmarkSet(_CIFAR10, _SVHN),
    "cifar10_vs_cifar100": BenchmarkSet(
        _CIFAR10, _CIFAR100, without=_COUNTERPARTS
    ),
}


class BenchmarkImages:
    """Reads the classes of a benchmark set that an experiment needs.

    Args:
        name: key of `BENCHMARK_SETS`.
        data_dir: TFDS directory; by default TFDS' own (`TFDS_DATA_DIR`).
        image_size: height and width; None for the benchmark's.
        stream: as in `tfds_images.read_split`.

    Raises:
        ValueError: what `tfds_images.prepared_builder` finds wrong.
    """

    def __init__(self, name, data_dir=None, image_size=None, stream=None):
        self._set = BENCHMARK_SETS[name]
        self._options = {
            "image_size": image_size or self._set.image_size,
            "stream": stream,
        }
        self._known = tfds_images.prepared_builder(
            self._set.known.name, data_dir
        )
        self._unknown = self._known
        if self._set.unknown is not None:
            self._unknown = tfds_images.prepared_builder(
                self._set.unknown.name, data_dir
            )

    @property
    def class_names(self):
        """Names of the classes that can be known."""
        return tfds_images.class_names(self._known)

    @property
    def unknown_class_names(self):
        """Names of the classes that can be unknown."""
        return tfds_images.class_names(self._unknown)

    @property
    def has_two_sources(self):
        """Whether unknown classes come from another data set."""
        return self._set.unknown is not None

    def default_unknown(self, known):
        """Ids of the unknown classes where no split names them."""
        names = self.unknown_class_names
        return [
            i
            for i, name in enumerate(names)
            if name not in self._set.without
            and (self.has_two_sources or i not in known)
        ]

    def source_statistics(self, known):
        """Mean and std of the known training images at their own size.

        So the paper's authors took them; `OpenSetDataset.channel_statistics`
        are those of the images as they are trained on.
        """
        examples = tfds_images.read_split(self._known, "train", known)
        return channel_statistics(examples.images)

    def authors_split(self, train):
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
                "--validation_split=authors is there for the sets with known "
                "classes of CIFAR10 alone: TFDS does not say which image of "
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

    def read(self, known, unknown):
        """Training, known test and unknown test images of these class ids.

        Returns:
            Three `Examples`, labels are class ids.

        Raises:
            ValueError: a class has another number of images than the
                published data set, or what `tfds_images.read_split` finds.
        """
        source = self._set.known
        train = self._read(self._known, "train", known, source.train_counts)
        test = self._read(
            self._known, source.test_split, known, source.test_counts
        )
        if not unknown:
            return train, test, test.take(slice(0, 0))
        source = self._set.unknown or source
        unknown_test = self._read(
            self._unknown, source.test_split, unknown, source.test_counts
        )
        return train, test, unknown_test

    def _read(self, builder, split, classes, expected):
        examples = tfds_images.read_split(
            builder, split, classes, **self._options
        )
        _check_counts(examples.labels, classes, expected, builder, split)
        return examples


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
            f"The split {split!r} of {builder.name} in {builder.data_dir} has "
            f"other numbers of images than the published data set ({listed}"
            f"{more}). Most likely the copy was prepared from a part of the "
            "data, or from another version of it. Delete that folder and "
            "prepare it from the whole source."
        )
