# SPDX-License-Identifier: Apache-2.0
"""cac-enroll: from a run and folders of photos to another model."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from absl import flags

import cac_tf
from cac_tf import batch
from cac_tf.data import DataOptions
from cac_tf.experiments.evaluation import evaluate
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import data_summary
from cac_tf.open_world import changed_decisions
from cac_tf.reporting import write_report
from cac_tf.reporting.model_card import model_card
from cac_tf.train import cac_enroll


def run(*arguments):
    values = flags.FlagValues()
    cac_enroll.define_flags(values)
    values(["binary", *map(str, arguments)])
    cac_enroll.main(values)


@pytest.fixture(scope="module")
def digits():
    return cac_tf.data.load_open_set_dataset("digits")


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    """A run's folder with a model of digits, by least squares."""
    inputs = keras.Input([None, None, 1])
    resized = cac_tf.layers.ImagePreprocessing(8, 8)(inputs)
    flat = keras.layers.Flatten(name="flat")(resized)
    last = keras.layers.Dense(6)
    classifier = keras.Model(inputs, last(flat))
    x, y = digits.train
    x = np.float64(np.reshape(x, (len(x), 64))) / 255.0
    x = np.pad(x, ((0, 0), (0, 1)), constant_values=1.0)
    solved, *_ = np.linalg.lstsq(x, 9 * np.eye(6)[y], rcond=None)
    last.set_weights([solved[:64], solved[64]])
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        tuple(digits.train),
        class_names=digits.class_names,
        score="knn",
        features_layer="flat",
        validation_data=tuple(digits.validation),
    )
    path = tmp_path_factory.mktemp("enroll") / "run"
    settings = {"data": DataOptions("digits").in_force}
    summary = data_summary(digits)
    with RunFolder.open(path, settings, summary) as folder:
        folder.begin(settings, summary)
        model.save(folder.file("model.keras"))
    return path


@pytest.fixture(scope="module")
def unknown(digits, tmp_path_factory):
    """A folder of photos of one unknown class, a file of rows of another."""
    folder = tmp_path_factory.mktemp("unknown")
    of_class = [
        digits.unknown_test.images[digits.unknown_test.labels == k]
        for k in range(2)
    ]
    (folder / "photos").mkdir()
    for i, image in enumerate(of_class[0][:20]):
        path = folder / "photos" / f"{i:02}.png"
        PIL.Image.fromarray(np.uint8(image[..., 0])).save(path)
    np.savez(folder / "rows.npz", x=of_class[1][:20])
    return folder, of_class


def test_versions_of_a_run(trained, unknown, digits, tmp_path, capsys):
    (folder, of_class), new = unknown, tmp_path / "versions" / "2"
    before = (trained / "model.keras").read_bytes()
    add = (
        f"--add=first:{folder / 'photos'}",
        f"--add=second:{folder / 'rows.npz'}",
    )
    run(f"--model={trained}", *add, f"--output_dir={new}")
    said = capsys.readouterr().out.splitlines()

    # What is said is what the models answer.
    old = cac_tf.load_model(trained / "model.keras")
    made = cac_tf.load_model(new / "model.keras")
    assert made.enrolled_classes == {"first": 20, "second": 20}
    entry = made.journal[0]["classes"]["first"]
    assert said[0] == (
        f"first: 20 examples; judged by the others alone, "
        f"{entry['recognized']} would be recognized; threshold "
        f"{old.threshold:.4g}"
    )
    kept = json.loads((new / "enrolled.json").read_text())
    for line, (part, examples) in zip(
        said[2:4],
        {"validation": digits.validation, "test": digits.known_test}.items(),
        strict=True,
    ):
        mine, theirs = (
            one.predict_open_set(examples.images).label for one in (old, made)
        )
        count = (mine != theirs).sum()
        assert line.startswith(
            f"known inputs, {part}: {count} of {len(mine)} decisions change"
        )
        share = kept["changed_decisions"][part]["share"]
        assert share == pytest.approx(count / len(mine))
    assert said[4].startswith("Version 2, 8 classes")
    # Photos and rows are what they were; what looks like them is recognized.
    pixels = np.concatenate([one[:20].reshape(20, 64) for one in of_class])
    lengths = np.linalg.norm(np.float64(pixels), axis=1, keepdims=True)
    np.testing.assert_allclose(
        made.statistics["enrolled"], pixels / lengths, atol=1e-6
    )
    assert (
        made.predict_open_set(of_class[0][20:]).label == "first"
    ).mean() > 0.4
    assert kept["journal"] == made.journal
    assert (trained / "model.keras").read_bytes() == before

    # From the new version the run is found, too.
    run(
        f"--model={new}",
        "--merge=odd:first,second",
        "--rename=odd:strange",
        f"--output_dir={tmp_path / '3'}",
    )
    said = capsys.readouterr().out
    assert "known inputs, test: " in said and "Version 4, 7 classes" in said
    third = cac_tf.load_model(tmp_path / "3" / "model.keras")
    assert third.enrolled_classes == {"strange": 40}

    run(f"--model={new}", "--remove=first", "--dry_run")
    said = capsys.readouterr().out
    images, smaller = digits.known_test[0], made.remove("first")
    found = changed_decisions(made, smaller, images)
    assert f"test: {found.in_words()}" in said
    # The second time, this order would be another one, or there is none.
    shuffled = tf.data.Dataset.from_tensor_slices(images).shuffle(999)
    assert changed_decisions(made, smaller, shuffled.batch(50)) == found
    assert changed_decisions(made, smaller, iter([images])) == found
    with pytest.raises(ValueError, match="no inputs"):
        changed_decisions(made, smaller, iter([]))
    assert said.endswith("Nothing was written.\n")


def test_reports_say_what_is_enrolled(trained, unknown, tmp_path):
    _, of_class = unknown
    model = cac_tf.load_model(trained / "model.keras")
    larger = model.enroll({"3": of_class[0][:20]})
    data = cac_tf.data.load_open_set_dataset(
        "digits", known_classes=list(larger.class_names)
    )
    evaluation = evaluate(larger, data, None, ())
    assert evaluation.metrics["enrolled_classes"] == {"3": 20}
    path = tmp_path / "report.html"
    write_report(str(path), evaluation, data, model=larger)
    text = path.read_text()
    assert "<b>6 trained classes:</b> 0, 1, 2, 4, 5, 9<" in text
    assert "<b>1 enrolled class:</b> 3 (20 examples)<" in text
    config = json.loads((trained / "config.json").read_text())
    assert "examples): 3 (20)." in model_card(evaluation.metrics, config)


def test_columns_of_the_run_are_known_to_a_new_version(tmp_path):
    (tmp_path / "enrolled.json").write_text(
        json.dumps({"data": {"input_columns": ["a", "b"]}})
    )
    classifier = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    model = cac_tf.OpenSetClassifier(classifier, ["left", "right"])
    (tmp_path / "rows.csv").write_text("b,c,a\n1,2,3\n4,5,6\n")
    found = batch.inputs_in(
        [str(tmp_path / "rows.csv")], model, tmp_path / "model.keras"
    )
    np.testing.assert_array_equal(found, [[3, 1], [6, 4]])


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("Specify what to change: --add, --remove", []),
        ("Specify a folder for the new model", ["--add=a:b"]),
        ("--add must be NAME:PATH; got 'lynx'", ["--add=lynx"]),
        ("--rename gives 'a' two names", ["--rename=a:b", "--rename=a:c"]),
        ("no effect without --add", ["--remove=a", "--accept_known"]),
        ("already", ["--add={known}:{rows}"]),
        ("cannot be read; .*bad.png: not a JPEG", ["--add=a:{bad}"]),
        ("File not found|No such file|cannot be read", ["--add=a:{none}"]),
        ("are too few", ["--add=a:{rows}", "--true_positive_rate=0.99"]),
        ("was trained, not enrolled", ["--remove={known}"]),
        ("exists; a version is never", ["--add=a:{rows}", "--output_dir=."]),
    ],
)
def test_what_is_refused(
    trained, unknown, digits, tmp_path, monkeypatch, message, arguments
):
    folder, _ = unknown
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.png").write_bytes(b"no image")
    given = [
        one.format(
            known=digits.class_names[0],
            rows=folder / "rows.npz",
            bad=tmp_path / "bad.png",
            none=tmp_path / "none.png",
        )
        for one in arguments
    ]
    if given and "folder" not in message and "--output_dir=." not in given:
        given.append("--output_dir=out")
    with pytest.raises((ValueError, FileExistsError), match=message):
        run(f"--model={trained}", *given)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.png"]
