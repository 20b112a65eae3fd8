# SPDX-License-Identifier: Apache-2.0
"""What one reading tells about each of many encoded images."""

import collections
import dataclasses
import hashlib

import numpy as np
import tqdm

from cac_tf.cores import map_ahead
from cac_tf.counted import counted
from cac_tf.counted import were
from cac_tf.data.image_file import CONVERSIONS
from cac_tf.data.image_file import read_image
from cac_tf.data.regular_file import opened
from cac_tf.hyperparameters import INTERPOLATIONS

# Images that one thread reads at a time.
_AT_ONCE = 64
_NAMES_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class ImageFacts:
    """Facts about n images of C channels, once they have the wanted size.

    Attributes:
        digests: (n, 32) uint8: the SHA-256 of each file's bytes.
        sums, squares: (n, C) float64: sums of each channel's pixels and of
            their squares, whole numbers. All means and variances follow.
        conversions: (n,) uint8: what `read_image` did to each, bit by bit.
        is_readable: (n,) bool: whether it is an image that is read.
    """

    digests: np.ndarray
    sums: np.ndarray
    squares: np.ndarray
    conversions: np.ndarray
    is_readable: np.ndarray

    def __getitem__(self, rows):
        """`ImageFacts` of some of the images."""
        return ImageFacts(*(values[rows] for values in self.arrays().values()))

    def joined(self, other):
        """`ImageFacts` of these images and of others."""
        both = zip(self.arrays().values(), other.arrays().values(), strict=True)
        return ImageFacts(*map(np.concatenate, both))

    def arrays(self):
        """Dict of the arrays, by the names of the attributes."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
        }

    def count_conversions(self):
        """`Counter` of what had to be converted."""
        bits = self.conversions[:, np.newaxis] >> np.arange(len(CONVERSIONS))
        counts = (bits & 1).sum(axis=0).tolist()
        return +collections.Counter(dict(zip(CONVERSIONS, counts, strict=True)))


def conversion_notes(conversions, image_size):
    """What was converted, as texts.

    Example:

    >>> list(conversion_notes({"in grayscale": 3}, 32))
    ['3 images in grayscale were converted to RGB, 32x32']
    """
    for kind, count in sorted(conversions.items()):
        yield (
            f"{counted(count, 'image')} {kind} {were(count)} converted to "
            f"RGB, {image_size}x{image_size}"
        )


def content_of(source):
    """The bytes of an image.

    Args:
        source: path of the file, or its bytes.

    Raises:
        ValueError: the system does not read the file. This is no fact about
            the image, and may be over the next time.

    Example:

    >>> content_of(b"bytes")
    b'bytes'
    >>> content_of("nowhere.png")
    Traceback (most recent call last):
    ValueError: nowhere.png cannot be read: No such file or directory.
    """
    if isinstance(source, bytes):
        return source
    try:
        with opened(source) as file:
            return file.read()
    except OSError as error:
        raise ValueError(
            f"{source} cannot be read: {error.strerror}."
        ) from error


def skipped_notes(problems):
    """Which files are not read and why, as texts.

    Args:
        problems: from the name of a file to what it is.

    Example:

    >>> list(skipped_notes({"a.png": "a damaged PNG image"}))
    ['1 file was skipped (a damaged PNG image): a.png']
    """
    by_problem = collections.defaultdict(list)
    for name, problem in problems.items():
        by_problem[problem].append(name)
    for problem, names in by_problem.items():
        rest = len(names) - _NAMES_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        yield (
            f"{counted(len(names), 'file')} {were(len(names))} skipped "
            f"({problem}): "
            f"{', '.join(names[:_NAMES_SHOWN])}{more}"
        )


def duplicate_notes(digests, labels, parts, names):
    """Which images are there more than once, as texts.

    Args:
        digests: (n, 32) uint8, as of `ImageFacts`.
        labels: (n,) classes of the images.
        parts: (n,) texts, the parts of the data set that they are in.
        names: n texts, by which a user finds them.

    Example:

    >>> digests = np.zeros((3, 32), "uint8")
    >>> for note in duplicate_notes(
    ...     digests, np.array([0, 1, 1]), np.array(["train", "train", "test"]),
    ...     ["cat/1.png", "dog/1.png", "dog/2.png"]):
    ...     print(note)
    1 image is in more than one class, such as cat/1.png and dog/1.png
    1 image is in more than one part, such as dog/1.png and dog/2.png
    """
    _, image = np.unique(digests, axis=0, return_inverse=True)
    order = np.argsort(image, kind="stable")
    one, other = order[:-1], order[1:]
    is_again = image[one] == image[other]
    is_class, is_part = labels[one] == labels[other], parts[one] == parts[other]
    for is_found, where in (
        (~is_class, "in more than one class"),
        (~is_part, "in more than one part"),
        (is_class & is_part, "more than once in one class"),
    ):
        found = np.flatnonzero(is_again & is_found)
        if found.size:
            first = found[np.argmin(one[found])]
            number = len(np.unique(image[one[found]]))
            are = "is" if number == 1 else "are"
            yield (
                f"{counted(number, 'image')} {are} {where}, "
                f"such as {names[one[first]]} and {names[other[first]]}"
            )


def look_at(
    sources,
    image_size,
    channels,
    what,
    images=None,
    interpolation=INTERPOLATIONS[0],
):
    """Reads every image once, by several threads.

    Args:
        sources: sequence of paths or of files' bytes.
        image_size, channels, interpolation: as of `read_image`.
        what: what is read, for the progress on the terminal.
        images: (n, image_size, image_size, channels) uint8 array that gets the
            pixels of those that are read; None to forget them.

    Returns:
        `ImageFacts`.

    Raises:
        ValueError: of `content_of`.

    Example:

    >>> import io, PIL.Image
    >>> file = io.BytesIO()
    >>> PIL.Image.new("L", (2, 2), 3).save(file, "png")
    >>> facts = look_at([file.getvalue(), b"?"], 2, 1, "example")
    >>> facts.sums[0], facts.squares[0]
    (array([12.]), array([36.]))
    >>> facts.is_readable
    array([ True, False])
    """
    shape = (image_size, image_size, channels)

    def look(start):
        rows = range(start, min(start + _AT_ONCE, len(sources)))
        chosen = None if images is None else images[rows.start : rows.stop]
        some = [sources[row] for row in rows]
        return _look(some, shape, interpolation, chosen)

    # At least one part, for the types.
    starts = range(0, max(len(sources), 1), _AT_ONCE)
    parts = []
    with tqdm.tqdm(
        total=len(sources),
        desc=f"reading {what}",
        unit="image",
        leave=False,
        disable=None,
    ) as progress:
        for found in map_ahead(look, starts):
            parts.append(found)
            progress.update(len(found[0]))
    return ImageFacts(*map(np.concatenate, zip(*parts, strict=True)))


def _look(sources, shape, interpolation, images):
    """The arrays of `ImageFacts`, of a few images."""
    count = len(sources)
    digests = np.zeros((count, 32), "uint8")
    sums, squares = np.zeros((2, count, shape[2]))
    conversions = np.zeros(count, "uint8")
    is_readable = np.ones(count, bool)
    for row, source in enumerate(sources):
        content = content_of(source)
        digest = hashlib.sha256(content).digest()
        digests[row] = np.frombuffer(digest, "uint8")
        try:
            pixels, kinds = read_image(
                content, shape[0], shape[2], interpolation
            )
            if images is not None:
                images[row] = pixels
            pixels = pixels.astype("float64")
            sums[row] = pixels.sum(axis=(0, 1))
            squares[row] = np.einsum("hwc,hwc->c", pixels, pixels)
            for kind in kinds:
                conversions[row] |= 1 << CONVERSIONS.index(kind)
        except ValueError:
            is_readable[row] = False
    return digests, sums, squares, conversions, is_readable
