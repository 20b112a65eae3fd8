# SPDX-License-Identifier: Apache-2.0
"""Whatever changes in the data of a run is noticed."""

import os

import numpy as np
import PIL.Image
import pytest

from cac_tf import data
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import data_summary


def arrays(rng):
    return {
        name: value
        for part in ("train", "validation", "test")
        for name, value in (
            (f"x_{part}", rng.integers(0, 256, (24, 4, 4)).astype("uint8")),
            (f"y_{part}", np.arange(24) % 3),
        )
    }


def of_npz(folder, entries):
    path = str(folder / "made.npz")
    np.savez(path, **entries)
    return data.load_open_set_dataset(path, known_classes=["0", "2"])


def changed_image(entries, part):
    # An image of a known class, of an unknown one in the test part.
    row = 1 if part == "unknown_test" else 3
    entries[f"x_{part.rpartition('_')[2]}"][row, 2, 2] ^= 1


def changed_labels(entries, part):
    labels = entries[f"y_{part.rpartition('_')[2]}"]
    labels[[0, 2]] = labels[[2, 0]]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        *(
            (changed_image, part)
            for part in ("train", "validation", "known_test", "unknown_test")
        ),
        (changed_labels, "train"),
        (changed_labels, "known_test"),
        (None, "negatives"),
    ],
)
def test_only_the_part_that_changed_differs(rng, tmp_path, change, part):
    entries = arrays(rng)
    entries["x_negatives"] = entries["x_train"][::2].copy()
    before = of_npz(tmp_path, entries).digests
    assert len(set(before.values())) == len(before) == 5
    if change is None:
        entries["x_negatives"] ^= 1
    else:
        change(entries, part)
    after = of_npz(tmp_path, entries).digests
    assert {n for n in before if before[n] != after[n]} == {part}


def test_resuming_says_which_part_has_changed(rng, tmp_path):
    entries, settings = arrays(rng), {"data": "made"}
    run = tmp_path / "run"
    for _ in range(2):
        summary = data_summary(of_npz(tmp_path, entries))
        with RunFolder.open(run, settings, summary):
            pass
    changed_image(entries, "validation")
    summary = data_summary(of_npz(tmp_path, entries))
    message = r"different data \(different inputs or labels in: validation[);]"
    with (
        pytest.raises(ValueError, match=message),
        RunFolder.open(run, settings, summary),
    ):
        pass


def test_streamed_images_are_known_by_their_files(rng, tmp_path):
    """Not by where they lie, nor by when they were written."""

    def load(folder):
        return data.load_open_set_dataset(
            "folder",
            data_dir=str(folder),
            known_classes=["a", "b"],
            image_size=4,
            stream=True,
        )

    for name in "abc":
        (tmp_path / "one" / name).mkdir(parents=True)
        for i in range(8):
            image = rng.integers(0, 256, (4, 4, 3)).astype("uint8")
            path = tmp_path / "one" / name / f"{i}.png"
            PIL.Image.fromarray(image).save(path)
    before = load(tmp_path / "one").digests
    os.utime(tmp_path / "one" / "a" / "0.png", (0, 0))
    (tmp_path / "one").rename(tmp_path / "two")
    dataset = load(tmp_path / "two")
    assert dataset.digests == before
    # Without what was found out while reading, the same comes out.
    streamed = dataset.train.images
    again = StreamedImages(streamed.sources, 4)
    np.testing.assert_array_equal(again.facts.digests, streamed.facts.digests)
    image = np.asarray(PIL.Image.open(tmp_path / "two" / "c" / "5.png")) ^ 1
    PIL.Image.fromarray(image).save(tmp_path / "two" / "c" / "5.png")
    after = load(tmp_path / "two").digests
    assert {n for n in before if before[n] != after[n]} == {"unknown_test"}
