# SPDX-License-Identifier: Apache-2.0
"""The TFDS builder of TinyImageNet, on a made archive and on real images."""

import shutil

import numpy as np
import PIL.Image
import pytest
import tensorflow_datasets as tfds

from cac_tf.data import load_open_set_dataset
from cac_tf.data import tfds_images
from cac_tf.data.tiny_imagenet import TinyImagenet
from tests.conftest import unpack_images

# Not in alphabetical order, as in the real list.
WNIDS = ("n300", "n100", "n200")


@pytest.fixture
def made(tmp_path):
    """A folder like the real one, with a grey image in it."""
    root = tmp_path / "source" / "tiny-imagenet-200"
    (root / "val" / "images").mkdir(parents=True)
    (root / "wnids.txt").write_text("\n".join(WNIDS))
    (root / "words.txt").write_text(
        "n100\tgoldfish, Carassius auratus\nn300\ttailed frog\nn999\tnothing\n"
    )
    lines = []
    for i, wnid in enumerate(WNIDS):
        folder = root / "train" / wnid / "images"
        folder.mkdir(parents=True)
        for k in range(4):
            mode, color = ("L", 90) if k == 0 else ("RGB", (40 * i, 0, 200))
            PIL.Image.new(mode, (64, 64), color).save(
                folder / f"{wnid}_{k}.JPEG", "jpeg", quality=95
            )
        PIL.Image.new("RGB", (64, 64), (40 * i, 99, 0)).save(
            root / "val" / "images" / f"val_{i}.JPEG", "jpeg", quality=95
        )
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t9\t9")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines))
    return root


def prepare(data_dir):
    return tfds_images.prepared_builder("tiny_imagenet", str(data_dir))


def check_made(builder):
    assert tfds_images.class_names(builder) == (
        "n100 goldfish",
        "n200",
        "n300 tailed frog",
    )
    train = tfds_images.read_split(builder, "train")
    assert train.images.shape == (12, 64, 64, 3)
    assert np.bincount(train.labels).tolist() == [4, 4, 4]
    grey = [i for i in train.images if np.abs(i.astype(int) - 90).max() <= 2]
    assert len(grey) == 3
    validation = tfds_images.read_split(builder, "validation")
    # The red channel was 40 times the place in wnids.txt.
    red = np.rint(validation.images[:, 32, 32, 0] / 40.0).astype(int)
    expected = [sorted(WNIDS).index(WNIDS[i]) for i in red]
    np.testing.assert_array_equal(validation.labels, expected)


@pytest.mark.parametrize("is_archive", [False, True])
def test_what_lies_in_the_manual_folder(made, tmp_path, is_archive):
    manual = tmp_path / "data" / "downloads" / "manual"
    manual.mkdir(parents=True)
    if is_archive:
        path = manual / made.name
        shutil.make_archive(path, "zip", made.parent, made.name)
    else:
        made.rename(manual / made.name)
    check_made(prepare(tmp_path / "data"))


def test_the_network(made, tmp_path, monkeypatch):
    """Without anything in the manual folder it is downloaded."""
    asked = []

    def download(self, url):
        asked.append(url)
        return made.parent

    monkeypatch.setattr(tfds_images, "unreachable", lambda urls: [])
    monkeypatch.setattr(
        tfds.download.DownloadManager, "download_and_extract", download
    )
    check_made(prepare(tmp_path / "data"))
    assert asked == ["http://cs231n.stanford.edu/tiny-imagenet-200.zip"]


def test_the_checksum_is_known():
    (info,) = TinyImagenet.url_infos.values()
    assert info.size == 248100043
    assert info.checksum.startswith("6198c8ae015e2b3e")


def test_without_network_or_data(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_images, "unreachable", lambda urls: ["there:80"])
    with pytest.raises(
        ValueError, match=r"put either tiny-imagenet-200.zip .*downloads/manual"
    ):
        prepare(tmp_path / "data")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    manual = folder / "downloads" / "manual"
    manual.mkdir(parents=True)
    unpack_images("tiny-imagenet-200_trial0.tar.xz", manual)
    return str(folder)


@pytest.mark.slow
def test_real_images_of_trial_0(real):
    dataset = load_open_set_dataset("tinyimagenet", data_dir=real, trial=0)
    assert dataset.counts == {
        "train": 9000,
        "validation": 1000,
        "known_test": 1000,
        "unknown_test": 9000,
    }
    assert dataset.image_shape == (64, 64, 3)
    assert len(dataset.class_names) == 20
    assert dataset.openness == pytest.approx(0.5736, abs=1e-4)
    assert set(np.bincount(dataset.validation.labels)) == {50}
    streamed = load_open_set_dataset(
        "tinyimagenet", data_dir=real, trial=0, stream=True
    )
    rows = slice(0, 50)
    np.testing.assert_array_equal(
        streamed.train.images[rows], dataset.train.images[rows]
    )
    np.testing.assert_array_equal(streamed.train.labels, dataset.train.labels)


def test_another_trial_of_the_partial_copy(real):
    """Its classes have no training images there: said, not trained."""
    with pytest.raises(ValueError, match=r"0 instead of 500"):
        load_open_set_dataset("tinyimagenet", data_dir=real, trial=1)
