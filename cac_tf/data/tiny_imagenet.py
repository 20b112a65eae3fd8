# SPDX-License-Identifier: Apache-2.0
"""TinyImageNet as a TFDS data set: `tfds.builder("tiny_imagenet")`.

Importing this module makes TFDS know the name.
"""

import pathlib
import typing

import tensorflow_datasets as tfds

_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
_FOLDER = "tiny-imagenet-200"
_CITATION = """\
@techreport{le2015tiny,
  author = {Ya Le and Xuan S. Yang},
  title = {Tiny {ImageNet} visual recognition challenge},
  institution = {Stanford University, CS 231N},
  year = {2015}
}
"""


class TinyImagenet(tfds.core.GeneratorBasedBuilder):
    """200 classes of ImageNet at 64x64 pixels.

    500 training and 50 validation images per class (the test images have no
    labels and are left out). Labels follow the alphabetical order of the
    wnids; a class's name is its wnid and the first of its words, e.g.
    "n01443537 goldfish". Files stay as they are, grey ones included; they
    are read as RGB. A class whose folder in `train/` is missing has no
    training images.
    """

    VERSION = tfds.core.Version("1.0.0")
    URLS = (_URL,)
    RELEASE_NOTES: typing.ClassVar = {"1.0.0": "First version."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = f"""\
    With network access, nothing has to be done. Without it, put either
    {_FOLDER}.zip (from {_URL}) or the folder {_FOLDER} that it unpacks to
    into the manual folder, by default <data_dir>/downloads/manual.
    """

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            description=type(self).__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(
                        shape=(None, None, 3), encoding_format="jpeg"
                    ),
                    "label": tfds.features.ClassLabel(num_classes=None),
                    "file_name": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="http://cs231n.stanford.edu",
            citation=_CITATION,
        )

    def _split_generators(self, download_manager):
        root = self._root(download_manager)
        wnids = sorted((root / "wnids.txt").read_text().split())
        self.info.features["label"].names = _class_names(root, wnids)
        return {
            "train": self._generate_examples(_train_files(root, wnids)),
            "validation": self._generate_examples(
                _validation_files(root, wnids)
            ),
        }

    def _generate_examples(self, files):
        for path, label in files:
            yield (
                path.name,
                {"image": str(path), "label": label, "file_name": path.name},
            )

    def _root(self, download_manager):
        """The unpacked folder: put there, unpacked or downloaded."""
        try:
            manual = pathlib.Path(download_manager.manual_dir)
        except (AssertionError, AttributeError):
            # There is no such folder, or nothing in it.
            manual = None
        if manual is not None:
            if (manual / _FOLDER / "wnids.txt").exists():
                return manual / _FOLDER
            if (manual / f"{_FOLDER}.zip").exists():
                unpacked = download_manager.extract(manual / f"{_FOLDER}.zip")
                return pathlib.Path(unpacked) / _FOLDER
        return (
            pathlib.Path(download_manager.download_and_extract(_URL)) / _FOLDER
        )


def _train_files(root, wnids):
    for label, wnid in enumerate(wnids):
        folder = root / "train" / wnid / "images"
        for path in sorted(folder.glob("*.JPEG")):
            yield path, label


def _validation_files(root, wnids):
    annotations = (root / "val" / "val_annotations.txt").read_text()
    for line in annotations.splitlines():
        # Further columns hold the bounding box.
        name, wnid = line.split("\t")[:2]
        yield root / "val" / "images" / name, wnids.index(wnid)


def _class_names(root, wnids):
    """The wnids, with the first of their words where `words.txt` has them."""
    words = {}
    file = root / "words.txt"
    if file.exists():
        for line in file.read_text().splitlines():
            wnid, _, text = line.partition("\t")
            words[wnid] = text.split(",")[0].strip()
    return [f"{wnid} {words.get(wnid, '')}".strip() for wnid in wnids]
