# SPDX-License-Identifier: Apache-2.0
"""Groups of rejected inputs: a table, a page to look at, a file of each group.

A file of a group holds its inputs as `cac-predict` and `cac-enroll` read them:
of photos a CSV file with the column `image`, their paths; of texts one with the
column `text`; of vectors an .npy array. (Images in arrays and tables are in the
table only, by the file and the number of the row.)
"""

from __future__ import annotations

import collections
import csv
import os
from typing import Any

import numpy as np
import PIL.Image

from cac_tf import atomic_files
from cac_tf import open_world
from cac_tf.annotations import Path
from cac_tf.batch.classifier import Classifier
from cac_tf.batch.columns import IMAGE_COLUMN
from cac_tf.batch.columns import TEXT_COLUMN
from cac_tf.batch.inputs import Photos
from cac_tf.batch.rejected import MOST_NUMBERS
from cac_tf.batch.rejected import Rejected
from cac_tf.data.image_file import read_image
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.plain_text import for_spreadsheet
from cac_tf.reporting import groups_page
from cac_tf.reporting.sheets import as_picture

TABLE, PAGE = "groups.csv", "groups.html"
_COLUMNS = ("input", "group", "strength", "predicted_class", "unknown_score")
_PICTURE_SIZE = 144


class UnknownGroups:
    """Groups of the rejected inputs of many blocks.

    Memory: `MOST_NUMBERS` of features, and the names of all.
    """

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._scores: list[float] = []
        self._predicted: list[str] = []
        # A block, the places of its rows here, and their numbers there.
        self._blocks: list[tuple[Any, range, np.ndarray]] = []
        self._features: list[np.ndarray] = []
        # Rows with features, the first ones, and numbers in these.
        self._held, self._numbers = 0, 0
        self._sum: Any = 0.0
        self._count = 0

    def add(self, block: Any, rejected: Rejected) -> None:
        """Adds the rejected inputs of a block of `blocks_of`."""
        count = len(rejected.rows)
        places = range(len(self._keys), len(self._keys) + count)
        self._blocks.append((block, places, rejected.rows))
        self._keys += rejected.keys.tolist()
        self._scores += rejected.unknown_score.tolist()
        self._predicted += rejected.predicted_class.tolist()
        self._sum = self._sum + rejected.known_sum
        self._count += int(rejected.known_count)
        more = rejected.features
        if len(more) and self._held == places[0]:
            more = more[: (MOST_NUMBERS - self._numbers) // more.shape[1]]
            self._features.append(more)
            self._numbers += more.size
            self._held += len(more)

    def write(self, folder: Path, classifier: Classifier) -> str:
        """Writes a new folder.

        `groups.csv` has a row for each rejected input: those of a group
        together, the most typical first, and those in no group last.
        `groups.html` shows them. `groups/0.csv` and so on hold the inputs of
        each group. Blocks are read again for that.

        Args:
            folder: path; it appears when all is written.
            classifier: `Classifier` that answered.

        Returns:
            What was found, a sentence.

        Raises:
            FileExistsError: the folder exists.
        """
        grouping = self._grouping()
        os.makedirs(os.path.dirname(os.path.abspath(folder)), exist_ok=True)
        with atomic_files.new_folder(folder) as temporary:
            self._write_table(os.path.join(temporary, TABLE), grouping)
            inputs = _write_inputs(
                temporary, self._blocks, grouping, classifier
            )
            groups_page.write_groups_page(
                os.path.join(temporary, PAGE), grouping, self._keys, inputs
            )
        said = groups_page.summary_of(grouping)
        left = len(self._keys) - self._held
        if left:
            said += (
                f" ({left:,} of these were not examined: there were too many.)"
            )
        return said

    def _write_table(self, path, grouping):
        left = np.flatnonzero(grouping.group == UNKNOWN)
        order = [row for one in grouping.groups for row in one.members]
        _write_csv(
            path,
            _COLUMNS,
            (
                (
                    for_spreadsheet(self._keys[row]),
                    _name(grouping.group[row]),
                    f"{grouping.strength[row]:.4f}",
                    for_spreadsheet(self._predicted[row]),
                    self._scores[row],
                )
                for row in (*order, *left)
            ),
        )

    def _grouping(self):
        """`Grouping` of all, those without features in no group."""
        count = len(self._keys)
        groups, strength = np.full(count, UNKNOWN), np.zeros(count, "float32")
        if not self._held:
            return open_world.group(np.zeros((count, 1)), min_size=count + 2)
        features = np.concatenate(self._features)
        looked_at = np.flatnonzero(np.isfinite(features).all(axis=1))
        found = open_world.group(
            features[looked_at],
            predicted_class=[self._predicted[row] for row in looked_at],
            center=self._sum / self._count if self._count else None,
        )
        groups[looked_at] = found.group
        strength[looked_at] = found.strength
        members = tuple(
            one._replace(members=looked_at[one.members]) for one in found.groups
        )
        return found._replace(group=groups, strength=strength, groups=members)


def _name(number):
    return UNKNOWN_NAME if number == UNKNOWN else str(number)


def _write_csv(path, columns, rows):
    # Names of files may hold bytes that are no UTF-8.
    with open(
        path, "w", newline="", encoding="utf-8", errors="surrogateescape"
    ) as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _write_inputs(folder, blocks, grouping, classifier):
    """Writes the file of each group; returns what is shown, by place."""
    own = os.path.join(folder, "groups")
    os.mkdir(own)
    shown, pictures = set(groups_page.rows_shown(grouping).tolist()), {}
    # By the group: places and inputs.
    photos = collections.defaultdict(list)
    others = collections.defaultdict(list)
    are_kept = len(classifier.input_shape) < 2
    for block, places, rows in blocks:
        are_photos = isinstance(block, Photos)
        wanted = {}
        for place, row in zip(places, rows.tolist(), strict=True):
            number = grouping.group[place]
            if number != UNKNOWN and are_photos:
                path = os.path.abspath(block.files[row])
                photos[number].append((place, path))
            is_kept = number != UNKNOWN and not are_photos and are_kept
            if is_kept or place in shown:
                wanted[row] = place
        for row, value in _read(block, wanted, classifier):
            place = wanted[row]
            if place in shown:
                pictures[place] = _shown(value, classifier.takes_texts)
            number = grouping.group[place]
            if number != UNKNOWN and not are_photos and are_kept:
                others[number].append((place, value))
    column = IMAGE_COLUMN
    if classifier.takes_texts:
        column, photos = TEXT_COLUMN, others
    for number, found in photos.items():
        ranked = _ranked(found, grouping)
        rows = ((_text(value), f"{strength:.4f}") for strength, value in ranked)
        path = os.path.join(own, f"{number}.csv")
        _write_csv(path, (column, "strength"), rows)
    if not classifier.takes_texts:
        for number, found in others.items():
            ranked = [value for _, value in _ranked(found, grouping)]
            np.save(os.path.join(own, f"{number}.npy"), np.stack(ranked))
    return pictures


def _ranked(found, grouping):
    """Pairs of strength and input, the most typical first."""
    places = np.array([place for place, _ in found])
    strength = grouping.strength[places]
    order = np.argsort(-strength, kind="stable")
    return [(strength[i], found[i][1]) for i in order]


def _read(block, wanted, classifier):
    """The wanted rows of a block that can be read, and their contents."""
    rows = sorted(wanted)
    if isinstance(block, Photos):
        # Not the others.
        block = Photos(tuple(block.files[row] for row in rows))
        numbers = iter(rows)
    else:
        numbers = iter(range(rows[-1] + 1)) if rows else iter(())
    try:
        for chunk in block.chunks(classifier) if rows else ():
            for place in range(len(chunk.keys)):
                row = next(numbers, None)
                if row is None:
                    return
                if row in wanted and place not in chunk.errors:
                    yield row, chunk.values[place]
    # Files may have gone, or changed; readers raise of any kind.
    except Exception:
        return


def _shown(value, is_text):
    """An input for the page; None where it cannot be shown."""
    if is_text:
        return _text(value)
    if isinstance(value, bytes):
        try:
            picture = PIL.Image.fromarray(read_image(value)[0])
        except (OSError, ValueError):
            return None
    elif value.ndim == 3:
        # Of what is scaled otherwise, the darkest is black.
        if value.dtype.kind == "f" and not 1 < value.max() <= 255:
            value = (value - value.min()) / max(np.ptp(value), 1e-9) * 255
        picture = as_picture(value)
    else:
        return value
    picture.thumbnail((_PICTURE_SIZE, _PICTURE_SIZE))
    return picture


def _text(value):
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)
