# SPDX-License-Identifier: Apache-2.0
"""cac-predict --group_unknown: rejected inputs in groups, of every kind."""

import csv
import re

import keras
import numpy as np
import PIL.Image
import pytest
from absl import flags

import cac_tf
from cac_tf import batch
from cac_tf.train import cac_predict
from tests.texts import SUBJECTS
from tests.texts import sentences

WIDTH = 16


def run(model, *arguments):
    values = flags.FlagValues()
    cac_predict.define_flags(values)
    rest = values(["cac-predict", f"--model={model}", *map(str, arguments)])
    return cac_predict.main(values, rest[1:])


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def written_by(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A model of vectors, and a file with 9 known and 40 unknown ones."""
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((5, WIDTH))

    def some(kind, count):
        noise = 0.1 * rng.standard_normal((count, WIDTH))
        return np.float32(kinds[kind] + noise)

    classifier = keras.Sequential([keras.Input([WIDTH]), keras.layers.Dense(2)])
    keras.utils.set_random_seed(0)
    x = np.concatenate([some(0, 30), some(1, 30)])
    y = np.repeat([0, 1], 30)
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (x, y),
        class_names=["left", "=right"],
        score="knn",
        centers="anchors",
    )
    # 1, less the cosine to the nearest known ones.
    model.set_threshold(0.3)
    folder = tmp_path_factory.mktemp("vectors")
    model.save(folder / "model.keras")
    parts = [some(0, 9), some(2, 20), some(3, 12), some(4, 8)]
    order = rng.permutation(49)
    inputs = np.concatenate(parts)[order]
    np.save(folder / "inputs.npy", inputs)
    kind = np.repeat([-1, 0, 1, 2], [9, 20, 12, 8])[order]
    return folder, inputs, kind


def test_vectors(vectors, tmp_path, capsys):
    folder, inputs, kind = vectors
    out = tmp_path / "groups"
    path = folder / "inputs.npy"
    output = f"--output={tmp_path / 'answers.csv'}"
    arguments = (path, output, f"--group_unknown={out}")
    assert run(folder / "model.keras", *arguments) == 0
    said = capsys.readouterr().err
    assert (
        "40 inputs were rejected: 40 in 3 groups of similar inputs. See "
        f"{out}/groups.html." in said
    )
    answers = {row["key"]: row for row in rows_of(tmp_path / "answers.csv")}
    table = rows_of(out / "groups.csv")
    for row in table:
        place = int(row["input"].rpartition("#")[2])
        assert int(row["group"]) == kind[place]
        answer = answers[row["input"]]
        assert answer["is_unknown"] == "True"
        assert row["predicted_class"] == answer["predicted_class"]
        assert row["unknown_score"] == answer["unknown_score"]
    # The groups one after another, the most typical inputs first.
    groups = [int(row["group"]) for row in table]
    assert groups == sorted(groups) == [0] * 20 + [1] * 12 + [2] * 8
    strength = [float(row["strength"]) for row in table]
    assert strength[:20] == sorted(strength[:20], reverse=True)
    # What cac-enroll would read.
    for k, size in enumerate([20, 12, 8]):
        places = [
            int(row["input"].rpartition("#")[2])
            for row in table
            if row["group"] == str(k)
        ]
        found = np.load(out / "groups" / f"{k}.npy")
        np.testing.assert_array_equal(found, inputs[places])
        assert len(found) == size
    text = (out / "groups.html").read_text()
    assert "Group 2" in text
    assert "... (16 numbers)" in text
    # Printed, with the same groups; a folder that is there is not touched.
    before = written_by(out)
    again = tmp_path / "again"
    assert run(folder / "model.keras", path, f"--group_unknown={again}") == 0
    assert written_by(again) == before
    with pytest.raises(
        ValueError, match="groups already exists. Choose a new folder"
    ):
        run(folder / "model.keras", *arguments)


def test_parts_that_several_processes_write(vectors, tmp_path, capsys):
    folder, inputs, _ = vectors
    for name, rows in (("a", slice(0, 30)), ("b", slice(30, 49))):
        np.save(tmp_path / f"{name}.npy", inputs[rows])
    files = (tmp_path / "a.npy", tmp_path / "b.npy")
    one, out = tmp_path / "one", tmp_path / "out"
    model = folder / "model.keras"
    run(model, *files, f"--group_unknown={one}")
    groups = f"--group_unknown={tmp_path / 'groups'}"
    arguments = (*files, f"--output={out}/", groups)
    capsys.readouterr()
    assert run(model, *arguments, "--shard=2/2") == 0
    assert "1 of 2 parts missing. Once" in capsys.readouterr().err
    assert not (tmp_path / "groups").exists()
    assert run(model, *arguments, "--shard=1/2") == 0
    assert "40 in 3 groups" in capsys.readouterr().err
    assert written_by(tmp_path / "groups") == written_by(one)
    assert run(model, *arguments) == 0
    assert "already exist." in capsys.readouterr().err
    # Parts without what was rejected are other ones.
    with pytest.raises(ValueError, match="group_unknown: True there|settings"):
        run(model, *files, f"--output={out}/", "--format=jsonl")


def test_parts_that_beam_writes(vectors, tmp_path):
    pytest.importorskip("apache_beam")
    folder, _, _ = vectors
    for name, more in {
        "alone": [],
        "beam": ["--runner=BundleBasedDirectRunner"],
    }.items():
        own = tmp_path / name
        groups = f"--group_unknown={own / 'groups'}"
        path = folder / "inputs.npy"
        output = f"--output={own / 'out'}/"
        run(folder / "model.keras", path, output, groups, *more)
    assert written_by(tmp_path / "beam") == written_by(tmp_path / "alone")


def test_photos(trained_pictures, tmp_path, capsys):
    model, pictures = trained_pictures
    model.save(tmp_path / "model.keras")
    photos = tmp_path / "photos"
    photos.mkdir()
    for i, picture in enumerate(pictures):
        PIL.Image.fromarray(picture).save(photos / f"{i:02}.png")
    out = tmp_path / "new" / "groups"
    arguments = (photos, f"--group_unknown={out}")
    assert run(tmp_path / "model.keras", *arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    answers = {row["key"]: row for row in csv.DictReader(printed)}
    unknown = {n for n, row in answers.items() if row["is_unknown"] == "True"}
    table = rows_of(out / "groups.csv")
    assert {row["input"] for row in table} == unknown
    # Nearly all are of one kind: the digit 3.
    first = {row["input"] for row in table if row["group"] == "0"}
    listed = [row["image"] for row in rows_of(out / "groups" / "0.csv")]
    assert set(listed) == first
    assert all(int(name[-6:-4]) >= 24 for name in listed)
    text = (out / "groups.html").read_text()
    assert re.search('<img alt="[^"]*.png" src="data:image/png;base64', text)
    assert "http" not in text


def test_nothing_is_rejected(vectors, tmp_path, capsys):
    folder, _, _ = vectors
    out = tmp_path / "groups"
    run(
        folder / "model.keras",
        folder / "inputs.npy",
        "--threshold=1e9",
        f"--group_unknown={out}",
    )
    assert "No input was rejected, so there are no " in capsys.readouterr().err
    assert rows_of(out / "groups.csv") == []


def test_more_than_is_held(vectors, tmp_path, capsys, monkeypatch):
    """The first ones are looked at."""
    folder, _, _ = vectors
    monkeypatch.setattr("cac_tf.batch.groups.MOST_NUMBERS", 30 * WIDTH)
    out = tmp_path / "groups"
    path = folder / "inputs.npy"
    run(folder / "model.keras", path, f"--group_unknown={out}")
    assert (
        "(10 of these were not examined: there were too many.)"
        in capsys.readouterr().err
    )
    table = rows_of(out / "groups.csv")
    assert len(table) == 40
    assert sum(row["group"] == "unknown" for row in table) == 10


def test_texts(tmp_path):
    texts, labels = map(np.array, sentences(200))
    words = keras.layers.TextVectorization(output_mode="multi_hot")
    words.adapt(texts)
    classifier = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            words,
            keras.layers.Rescaling(1.0),
            keras.layers.Dense(2),
        ]
    )
    known = labels < 2
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (texts[known], labels[known]),
        class_names=SUBJECTS[:2],
        score="knn",
        centers="anchors",
    )
    model.set_threshold(0.0)
    model.save(tmp_path / "model.keras")
    path, out = tmp_path / "asked.txt", tmp_path / "groups"
    asked = texts[~known].tolist()
    path.write_text("\n".join(asked) + "\n")
    run(tmp_path / "model.keras", path, f"--group_unknown={out}")
    table = rows_of(out / "groups.csv")
    listed = [
        row["text"]
        for file in sorted((out / "groups").iterdir())
        for row in rows_of(file)
    ]
    assert listed == [
        asked[int(row["input"].rpartition("#")[2])]
        for row in table
        if row["group"] != "unknown"
    ]
    assert len(listed) > 10
    assert listed[0] in (out / "groups.html").read_text()


def test_a_saved_model_gives_no_features(vectors, tmp_path):
    folder, _, _ = vectors
    cac_tf.load_model(folder / "model.keras").export(tmp_path / "1")
    with pytest.raises(ValueError, match="is a SavedModel, .* no features"):
        batch.Classifier.load(str(tmp_path / "1"), with_features=True)
