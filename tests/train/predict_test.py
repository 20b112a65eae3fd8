# SPDX-License-Identifier: Apache-2.0
"""cac-predict, from photos to answers."""

import csv
import io
import pathlib

import PIL.Image
import pytest
from absl import flags

from cac_tf.train import cac_predict


@pytest.fixture(scope="module")
def model(trained_pictures, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    trained_pictures[0].save(path)
    return path


@pytest.fixture
def photos(trained_pictures, tmp_path):
    """Twelve known and twelve unknown pictures, and what is none."""
    _, pictures = trained_pictures
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in (*range(12), *range(24, 36)):
        PIL.Image.fromarray(pictures[i]).save(folder / f"{i:02}.png")
    return folder


def run(model, *arguments):
    values = flags.FlagValues()
    cac_predict.define_flags(values)
    rest = values(["cac-predict", f"--model={model}", *map(str, arguments)])
    return cac_predict.main(values, rest[1:])


def test_one_photo_in_words(model, photos, trained_pictures, capsys):
    classifier, pictures = trained_pictures
    expected = classifier.predict_open_set(pictures[:36])
    for row in (0, 30):
        assert run(model, photos / f"{row:02}.png") == 0
        first, second, third = capsys.readouterr().out.splitlines()
        assert first == f"{photos}/{row:02}.png: {expected.label[row]}"
        done = "rejected" if expected.is_unknown[row] else "accepted"
        assert second.strip().startswith(f"{done}: score ")
        predicted = expected.predicted_class_id[row]
        name = classifier.class_names[predicted]
        assert third.strip().startswith(f"nearest classes: {name} ")


def test_many_photos(model, photos, trained_pictures, capsys, tmp_path):
    classifier, pictures = trained_pictures
    rows = [*range(12), *range(24, 36)]
    expected = classifier.predict_open_set(pictures[rows])
    (photos / "text.png").write_text("no image")
    output, sorted_to = tmp_path / "out.csv", tmp_path / "sorted"
    status = run(model, photos, f"--output={output}", f"--copy_to={sorted_to}")
    assert status == 1
    with open(output, newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["label"] for row in found] == [*expected.label, ""]
    assert found[-1]["error"].startswith("no JPEG")
    unknown = int(expected.is_unknown.sum())
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        f"25 files: {24 - unknown} of known classes, {unknown} unknown, "
        "1 not read."
    ) in said.err
    assert "text.png: no JPEG" in said.err
    copies = list((sorted_to / "unknown").iterdir())
    assert len(copies) == unknown
    assert sum(1 for _ in sorted_to.rglob("*.png")) == 24
    # Printed, it is the same table.
    assert run(model, f"{photos}/*.png") == 1
    said = capsys.readouterr()
    assert list(csv.DictReader(io.StringIO(said.out))) == found
    # With a threshold that accepts everything.
    (photos / "text.png").unlink()
    assert run(model, photos, "--threshold=1e9", f"--output={output}") == 0
    with open(output, newline="", encoding="utf-8") as file:
        assert {row["is_unknown"] for row in csv.DictReader(file)} == {"False"}


def test_paths_on_standard_input(model, photos, monkeypatch, capsys):
    names = sorted(map(str, photos.iterdir()))[:2]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*names, ""])))
    assert run(model, "-") == 0
    found = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [row["key"] for row in found] == names


def test_a_file_that_is_not_there(model, capsys):
    assert run(model, "nowhere.png") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "nowhere.png: No such file or directory" in said.err


def test_bad_command_lines(model, photos, tmp_path):
    with pytest.raises(flags.Error, match="must not be empty"):
        run("", photos)
    with pytest.raises(ValueError, match="Name the photos"):
        run(model)
    with pytest.raises(ValueError, match=r"must end in \.csv"):
        run(model, photos, f"--output={tmp_path}/x.txt")
    with pytest.raises(ValueError, match="There is no model"):
        run(tmp_path / "nowhere", photos)
    with pytest.raises(flags.Error, match="finite number"):
        run(model, photos, "--threshold=nan")
    assert not pathlib.Path(f"{tmp_path}/x.txt").exists()
