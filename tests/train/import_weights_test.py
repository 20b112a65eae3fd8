# SPDX-License-Identifier: Apache-2.0
"""cac-import-weights looks at what is small before what is large."""

import pytest
from absl import flags

from cac_tf import data
from cac_tf import models
from cac_tf.data.sources.npz_arrays import dump_arrays
from cac_tf.experiments.released_weights import import_weights
from cac_tf.train import cac_import_weights


def run(*arguments):
    values = flags.FlagValues()
    cac_import_weights.define_flags(values)
    values(["binary", "--dataset=mnist", *map(str, arguments)])
    cac_import_weights.main(values)


def refuse(*args, **kwargs):
    raise AssertionError("The data were read.")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "File not found"), (b"no weights", r"a\.pth|needs PyTorch")],
)
def test_the_checkpoint_comes_before_the_data(
    tmp_path, monkeypatch, content, message
):
    monkeypatch.setattr(data, "load_open_set_dataset", refuse)
    path = tmp_path / "a.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        run(f"--checkpoint={path}", f"--output_dir={tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mean=0.5"], "Give both --mean and --std"),
        (["--mean=a", "--std=1"], "--mean and --std must be finite numbers"),
    ],
)
def test_so_do_the_flags(tmp_path, monkeypatch, arguments, message):
    monkeypatch.setattr(data, "load_open_set_dataset", refuse)
    monkeypatch.setattr(models, "read_authors_weights", str)
    with pytest.raises(ValueError, match=message):
        run("--checkpoint=a.pth", f"--output_dir={tmp_path}", *arguments)


def test_dumped_digits_are_not_mirrored(tmp_path, monkeypatch):
    """The preset is that of the data set which the arrays were dumped from."""
    path = tmp_path / "dumped.npz"
    dump_arrays(path, data.load_open_set_dataset("digits"))
    augmentations = []

    def imported(*arguments):
        augmentations.append(arguments[5])
        raise InterruptedError

    monkeypatch.setattr(models, "read_authors_weights", str)
    monkeypatch.setattr(models, "import_authors_weights", imported)
    with pytest.raises(InterruptedError):
        import_weights("a.pth", data.DataOptions(str(path)), tmp_path / "out")
    (augmentation,) = augmentations
    assert augmentation.flip == 0.0
