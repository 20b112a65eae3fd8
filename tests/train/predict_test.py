# SPDX-License-Identifier: Apache-2.0
"""cac-predict, from photos to answers."""

import contextlib
import csv
import io
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import PIL.Image
import pytest
from absl import flags
from pyarrow import parquet
from scipy import stats

import cac_tf
from cac_tf import batch
from cac_tf.train import cac_predict
from tests.conftest import ROOT
from tests.conftest import class_names
from tests.conftest import small_classifier


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
    assert found[-1]["error"].startswith("not a JPEG")
    unknown = int(expected.is_unknown.sum())
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        f"25 inputs: {24 - unknown} of known classes, {unknown} unknown, "
        "1 unreadable."
    ) in said.err
    assert "text.png: not a JPEG" in said.err
    copies = list((sorted_to / "unknown").iterdir())
    assert len(copies) == unknown
    assert sum(1 for _ in sorted_to.rglob("*.png")) == 24
    # Printed, it is the same table; and screened.
    screened = "--false_discovery_rate=0.4"
    assert run(model, f"{photos}/*.png", screened) == 1
    said = capsys.readouterr()
    called = stats.false_discovery_control(expected.p_value) <= 0.4
    level = expected.p_value[called].max()
    assert 0 < called.sum() < 24
    assert (
        f"{called.sum()} inputs can be called unknown, with a p-value up to "
        f"{level:.4g}."
    ) in said.err
    assert list(csv.DictReader(io.StringIO(said.out))) == found
    # With a threshold that accepts everything.
    (photos / "text.png").unlink()
    assert run(model, photos, "--threshold=1e9", f"--output={output}") == 0
    with open(output, newline="", encoding="utf-8") as file:
        assert {row["is_unknown"] for row in csv.DictReader(file)} == {"False"}


def test_photos_that_cannot_be_copied(model, photos, tmp_path, capsys):
    """Their answers are kept, and the same command copies them."""
    out, sorted_to = tmp_path / "out", tmp_path / "sorted"
    arguments = (f"--output={out}/", f"--copy_to={sorted_to}")
    sorted_to.write_text("in the way")
    for _ in range(2):
        assert run(model, photos, *arguments) == 1
        assert "00.png: " in capsys.readouterr().err
        (part,) = out.glob("part-*.csv")
        assert len(part.read_text().splitlines()) == 25
    sorted_to.unlink()
    for _ in range(2):
        assert run(model, photos, *arguments) == 0
        assert sum(1 for _ in sorted_to.rglob("*.png")) == 24
    assert "1 of 1 part already written" in capsys.readouterr().err
    assert {p.name for p in out.iterdir()} == {part.name, "manifest.json"}


def test_paths_on_standard_input(model, photos, monkeypatch, capsys):
    names = sorted(map(str, photos.iterdir()))[:2]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*names, ""])))
    assert run(model, "-") == 0
    found = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [row["key"] for row in found] == names


def test_names_that_are_no_utf8(model, photos, monkeypatch, tmp_path):
    name = os.fsencode(photos) + b"/\xff.png"
    os.rename(photos / "00.png", name)
    lines = io.TextIOWrapper(io.BytesIO(name + b"\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", lines)
    assert run(model, "-", f"--output={tmp_path / 'x.csv'}") == 0
    _, row = (tmp_path / "x.csv").read_bytes().splitlines()
    assert row.startswith(name + b",")


def test_names_that_move_the_cursor_or_turn_what_follows(
    model, photos, monkeypatch, capsys
):
    """On a terminal as escapes, in a file as they are."""
    name, shown = "\x1b[2Ja\u202egnp.png", r"\x1b[2Ja\u202egnp.png"
    os.rename(photos / "00.png", photos / name)
    (photos / f"{name}.dat").write_text("no image")
    assert run(model, photos / name) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{photos}/{shown}: ")
    for is_terminal in (True, False):
        monkeypatch.setattr(
            "sys.stdout.isatty", lambda there=is_terminal: there
        )
        assert run(model, photos / name, photos / f"{name}.dat") == 1
        said = capsys.readouterr()
        keys = [row["key"] for row in csv.DictReader(io.StringIO(said.out))]
        key = shown if is_terminal else name
        assert keys == [f"{photos}/{key}", f"{photos}/{key}.dat"]
        assert f"{shown}.dat: not a JPEG" in said.err and "\x1b" not in said.err


def test_a_file_that_is_not_there(model, capsys):
    assert run(model, "nowhere.png") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "nowhere.png: No such file or directory" in said.err


def test_an_array_and_a_table(model, trained_pictures, capsys, tmp_path):
    """Beside photos, in the order of the command line."""
    classifier, pictures = trained_pictures
    np.savez(tmp_path / "a.npz", x_test=pictures[:5])
    PIL.Image.fromarray(pictures[5]).save(tmp_path / "b.png")
    (tmp_path / "c.parquet").write_bytes(b"no table")
    paths = [tmp_path / n for n in ("a.npz:x_test", "b.png", "c.parquet")]
    assert run(model, *paths) == 1
    said = capsys.readouterr()
    found = list(csv.DictReader(io.StringIO(said.out)))
    expected = classifier.predict_open_set(pictures[:6]).label.tolist()
    assert [row["label"] for row in found] == [*expected, ""]
    keys = [f"a.npz#{i}" for i in range(5)] + ["b.png", "c.parquet"]
    assert [row["key"] for row in found] == [f"{tmp_path}/{k}" for k in keys]
    assert "c.parquet: " in said.err and "7 inputs: " in said.err


def test_a_model_that_takes_no_images(photos, tmp_path, capsys):
    model = cac_tf.OpenSetClassifier(
        small_classifier(), class_names(3), threshold=1e9
    )
    model.save(tmp_path / "model.keras")
    with pytest.raises(
        ValueError, match=r"00\.png cannot be read by this model"
    ):
        run(tmp_path, photos / "00.png")
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 5)))
    assert run(tmp_path, tmp_path / "a.npz") == 0
    assert "3 inputs: 3 of known classes" in capsys.readouterr().err


def contents(folder):
    """Contents of the parts by their names; nothing else may be there."""
    names = sorted(os.listdir(folder))
    assert names[0] == "manifest.json"
    assert all(name.startswith("part-") for name in names[1:])
    return {name: (folder / name).read_bytes() for name in names[1:]}


def values_of(content):
    """Values of a CSV file, row by row; what is a number as such."""
    for row in csv.reader(content.decode().splitlines()[1:]):
        for text in row:
            try:
                yield float(text)
            except ValueError:
                yield text


def test_parts(model, photos, capsys, tmp_path):
    """In shards, again, and as one file, the same rows."""
    (photos / "text.png").write_text("no image")
    whole = tmp_path / "whole.csv"
    size = "--files_per_part=7"
    assert run(model, photos, f"--output={whole}") == 1
    one = f"--output={tmp_path / 'one'}"
    assert run(model, photos, one, size) == 1
    parts = contents(tmp_path / "one")
    assert len(parts) == 4
    values = [value for part in parts.values() for value in values_of(part)]
    # On some processors, a row's last digits depend on the rest of its batch.
    for value, wanted in zip(
        values, values_of(whole.read_bytes()), strict=True
    ):
        if isinstance(wanted, float):
            wanted = pytest.approx(wanted, rel=1e-5)
        assert value == wanted
    capsys.readouterr()
    two = f"--output={tmp_path / 'two'}/"
    # 1 and 3; 2 and 4, which has the text.
    assert run(model, photos, two, size, "--shard=1/2") == 0
    assert len(contents(tmp_path / "two")) == 2
    assert run(model, photos, two, size, "--shard=2/2") == 1
    assert contents(tmp_path / "two") == parts
    first = capsys.readouterr().err.splitlines()
    assert first[0].startswith("14 inputs: ")
    before = os.stat(tmp_path / "two" / "part-00001-of-00004.csv").st_mtime_ns
    os.unlink(tmp_path / "two" / "part-00002-of-00004.csv")
    assert run(model, photos, two, size) == 1
    said = capsys.readouterr().err
    assert said.startswith("3 of 4 parts already written.")
    assert "25 inputs: " in said and "1 unreadable" in said
    assert contents(tmp_path / "two") == parts
    path = tmp_path / "two" / "part-00001-of-00004.csv"
    assert os.stat(path).st_mtime_ns == before
    # Neither other settings nor other inputs.
    with pytest.raises(ValueError, match="threshold: None there, 0.5 now"):
        run(model, photos, two, size, "--threshold=0.5")
    # Photos of parts that are there would not be copied.
    with pytest.raises(ValueError, match="copy_to: None there, .*sorted now"):
        run(model, photos, two, size, f"--copy_to={tmp_path / 'sorted'}")
    (photos / "more.png").write_text("no image")
    with pytest.raises(ValueError, match="answers from another model, other"):
        run(model, photos, two, size)
    assert contents(tmp_path / "two") == parts


def test_what_another_process_finished_is_not_made_again(
    model, photos, tmp_path, monkeypatch, capsys
):
    command = (photos, f"--output={tmp_path / 'parts'}", "--files_per_part=7")
    writing, made = batch.writing, []

    @contextlib.contextmanager
    def writing_beside_another(path):
        with writing(path) as write:
            made.append(os.path.basename(path))
            if len(made) == 1:
                run(model, *command)
            yield write

    monkeypatch.setattr(batch, "writing", writing_beside_another)
    assert run(model, *command) == 0
    assert made == [f"part-0000{i}-of-00004.csv" for i in (1, 2, 3, 4)]
    assert "17 inputs: " in (said := capsys.readouterr().err)
    assert "24 inputs: " in said


def test_another_kind_of_parts(model, photos, tmp_path):
    folder = tmp_path / "parts"
    options = (f"--output={folder}", "--format=parquet")
    assert run(model, photos, *options) == 0
    (name,) = contents(folder)
    assert name == "part-00001-of-00001.parquet"
    assert len(parquet.read_table(folder / name)) == 24


@pytest.mark.slow
def test_killed_at_any_moment(model, photos, tmp_path):
    """Ten times; then the result is that of a run that was not killed."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    program = (
        *(sys.executable, "-m", "cac_tf.train.cac_predict", str(photos)),
        *(f"--model={model}", "--files_per_part=1"),
    )
    # (This process may have other kernels.)
    subprocess.run([*program, f"--output={whole}"], cwd=ROOT, check=True)
    command = (*program, f"--output={killed}")
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(10):
        process = subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        # Somewhere in the time in which parts appear.
        before = len(os.listdir(killed)) if killed.exists() else 0
        while process.poll() is None:
            there = len(os.listdir(killed)) if killed.exists() else 0
            if there > before + 1:
                break
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        process.communicate()
        seen.add(len(os.listdir(killed)))
    assert len(seen) > 2
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    assert contents(killed) == contents(whole)


def test_bad_command_lines(model, photos, tmp_path):
    with pytest.raises(flags.Error, match="must not be empty"):
        run("", photos)
    with pytest.raises(ValueError, match="Specify the photos"):
        run(model)
    with pytest.raises(ValueError, match=r"must end in \.csv"):
        run(model, photos, f"--output={tmp_path}/x.txt")
    with pytest.raises(ValueError, match="Model not found"):
        run(tmp_path / "nowhere", photos)
    with pytest.raises(flags.Error, match="finite number"):
        run(model, photos, "--threshold=nan")
    assert not pathlib.Path(f"{tmp_path}/x.txt").exists()
    for shard in ("0/2", "3/2", "1", "a/b"):
        with pytest.raises(ValueError, match="shard must be i/n with i from"):
            run(model, photos, f"--output={tmp_path}/p", f"--shard={shard}")
    with pytest.raises(ValueError, match="shard needs a folder as --output"):
        run(model, photos, f"--output={tmp_path}/x.csv", "--shard=1/2")
    for rate, message in (
        ("1.5", r"must be in \(0, 1\)"),
        ("0.1", "needs all answers in one output file"),
    ):
        output = tmp_path / ("p" if rate == "0.1" else "x.csv")
        with pytest.raises(ValueError, match=f"false_discovery_rate {message}"):
            run(
                model,
                photos,
                f"--output={output}",
                f"--false_discovery_rate={rate}",
            )
    assert not (tmp_path / "p").exists()
    # What would overwrite an input, or read what was written before.
    table = tmp_path / "table.csv"
    table.write_text("image\n")
    for one, option in (
        (table, f"--output={tmp_path}/./table.csv"),
        (photos, f"--copy_to={photos}"),
        (photos / "00.png", f"--output={photos}/"),
    ):
        message = f"is an input and belongs to {re.escape(option)}"
        with pytest.raises(ValueError, match=message):
            run(model, one, option)
    assert table.read_text() == "image\n"
    assert len(list(photos.iterdir())) == 24


def test_flags_without_effect(model, photos, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 16, 16, 3), "uint8"))
    for inputs, flag, why in (
        (photos, "--format=jsonl", "unless --output is a folder"),
        (photos, "--files_per_part=7", "unless --output is a folder"),
        (photos, "--image_column=x", "with photos and arrays"),
        (tmp_path / "a.npz", "--key_column=x", "with photos and arrays"),
        (tmp_path / "a.npz", f"--copy_to={tmp_path / 's'}", "if no input"),
    ):
        name = flag[2:].split("=")[0]
        with pytest.raises(ValueError, match=f"^--{name} has no effect {why}"):
            run(model, inputs, flag, f"--output={tmp_path / 'x.csv'}")
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "photos"]


def test_progress_says_how_much_is_left(photos, tmp_path):
    """Also beside files whose number of rows nobody knows."""
    np.savez(tmp_path / "a.npz", x=np.zeros((5, 2)))
    (tmp_path / "b.tfrecord").write_bytes(b"damaged")
    paths = [f"{tmp_path}/{name}" for name in ("a.npz", "b.tfrecord", "c.npz")]
    blocks = batch.blocks_of([*map(str, photos.iterdir()), *paths])
    with cac_predict._progress(blocks) as progress:
        assert progress.total == 24 + 5 + 1 + 1
