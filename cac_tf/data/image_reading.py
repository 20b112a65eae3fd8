# SPDX-License-Identifier: Apache-2.0
"""Many image files as examples, and what a user should know of them."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from cac_tf.annotations import Path
from cac_tf.data.image_facts import ImageFacts
from cac_tf.data.image_facts import content_of
from cac_tf.data.image_facts import conversion_notes
from cac_tf.data.image_facts import duplicate_notes
from cac_tf.data.image_facts import look_at
from cac_tf.data.image_facts import skipped_notes
from cac_tf.data.image_file import problem_of
from cac_tf.data.kept_beside import kept_beside
from cac_tf.data.kept_beside import listing_of
from cac_tf.data.open_set_dataset import Examples
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.data.streamed_images import exceeds_memory


class ImageReading:
    """Reads the parts of a data set, and counts what it did to the images.

    Args:
        folder: of the files; facts on streamed images are kept in its
            `.cac_tf`.
        image_size: height and width that images are resampled to, as RGB.
        strict: whether a file that is no image that is read is an error;
            otherwise it is skipped, and `notes` names it.
        stream: whether images are decoded each time they are used; None
            decides by the memory that they would need.
        interpolation: as of `read_image`.
        kept_as: the beginning of the names of what is kept.
    """

    def __init__(
        self,
        folder: Path,
        image_size: int,
        strict: bool,
        stream: bool | None,
        interpolation: str,
        kept_as: str = "",
    ) -> None:
        self._folder, self._image_size = os.fspath(folder), image_size
        self._strict, self._stream = strict, stream
        self._interpolation, self._kept_as = interpolation, kept_as
        self._conversions: collections.Counter[str] = collections.Counter()
        self._skipped: dict[str, str] = {}
        self._digests: list[np.ndarray] = []
        self._read: dict[str, Examples] = {}
        self._shown: list[str] = []

    def examples(
        self,
        part: str,
        paths: Sequence[str],
        labels: np.ndarray,
        names: Sequence[str],
        shown: Sequence[str] | None = None,
    ) -> Examples:
        """`Examples` of one part, without files that are skipped.

        Args:
            part: its name.
            paths: n paths.
            labels: (n,) int64.
            names: n texts, those of the examples.
            shown: n texts by which messages name files; None: their names.

        Raises:
            ValueError: a file that the system does not read, or with `strict`
                one that is no image.
        """
        shown = names if shown is None else shown
        stream = self._stream
        if stream is None:
            stream = exceeds_memory(len(paths), self._image_size, 3)
        if stream:
            facts, images = self._streamed(part, paths)
        else:
            size = self._image_size
            images = np.zeros((len(paths), size, size, 3), "uint8")
            facts = self._look_at(paths, part, images)
        is_readable = facts.is_readable
        if not is_readable.all():
            for row in np.flatnonzero(~is_readable).tolist():
                self._skip(paths[row], shown[row])
            facts = facts[is_readable]
            images = Examples(images, labels).take(is_readable).images
        self._conversions += facts.count_conversions()
        self._digests.append(facts.digests)
        read = np.flatnonzero(is_readable)
        self._shown += [shown[row] for row in read.tolist()]
        self._read[part] = Examples(
            images, labels[read], [names[row] for row in read.tolist()]
        )
        return self._read[part]

    def _streamed(self, part, paths):
        size = self._image_size
        facts = ImageFacts(
            **kept_beside(
                self._folder,
                f"{self._kept_as}{part}_{size}",
                [size, self._interpolation, listing_of(self._folder, paths)],
                lambda: self._look_at(paths, part).arrays(),
            )
        )
        images = StreamedImages(
            paths, size, facts=facts, interpolation=self._interpolation
        )
        return facts, images

    def _look_at(self, paths, part, images=None):
        return look_at(
            paths, self._image_size, 3, part, images, self._interpolation
        )

    def _skip(self, path, shown):
        self._skipped[shown] = problem_of(content_of(path))
        if self._strict:
            raise ValueError(
                f"{os.path.join(self._folder, shown)} cannot be read: it is "
                f"{self._skipped[shown]}."
            )

    def notes(self) -> Iterator[str]:
        """What was converted, is there twice, and was skipped, as texts."""
        yield from conversion_notes(self._conversions, self._image_size)
        read = self._read.values()
        yield from duplicate_notes(
            np.concatenate(self._digests),
            np.concatenate([examples.labels for examples in read]),
            np.repeat([*self._read], [examples.size for examples in read]),
            self._shown,
        )
        yield from skipped_notes(self._skipped)
