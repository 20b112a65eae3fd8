# SPDX-License-Identifier: Apache-2.0
"""Files are answered by a model as by its export, and as in memory."""

import io
import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import PIL.Image
import pytest

import cac_tf
from cac_tf.batch import Classifier
from cac_tf.data.image_file import read_image
from tests import image_files
from tests.conftest import ROOT
from tests.conftest import small_classifier

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only TensorFlow exports"
)


def png(pixels):
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def places(trained_pictures, served_pictures, tmp_path_factory):
    """One model in every form that can be named."""
    model, _ = trained_pictures
    folder = tmp_path_factory.mktemp("models")
    (folder / "run").mkdir()
    model.save(folder / "run" / "model.keras")
    # The newest of two versions.
    shutil.copytree(served_pictures / "3", folder / "served" / "10")
    (folder / "served" / "2").mkdir()
    (folder / "served" / "2" / "saved_model.pb").touch()
    return {
        "file": folder / "run" / "model.keras",
        "run": folder / "run",
        "served": folder / "served",
        "saved_model": folder / "served" / "10",
    }


@pytest.mark.parametrize("form", ["file", "run", "served", "saved_model"])
def test_every_form_answers_like_the_model_in_memory(
    places, trained_pictures, form
):
    model, pictures = trained_pictures
    expected = model.predict_open_set(pictures)
    classifier = Classifier.load(str(places[form]))
    assert classifier.class_names == model.class_names
    found = classifier.classify([png(picture) for picture in pictures])
    assert [one.class_id for one in found] == expected.class_id.tolist()
    assert [one.label for one in found] == expected.label.tolist()
    assert {one.is_unknown for one in found} == {True, False}
    for one, row in zip(found, range(len(pictures)), strict=True):
        assert one.unknown_score == pytest.approx(
            expected.unknown_score[row], rel=1e-4, abs=1e-5
        )
        assert one.p_value == pytest.approx(expected.p_value[row])
        assert one.threshold == pytest.approx(model.threshold)
        predicted = expected.predicted_class_id[row]
        assert one.predicted_class == model.class_names[predicted]
        # softmin of the distances (equation 6), the likeliest first.
        share = np.exp(-np.float64(expected.distances[row]))
        share /= share.sum()
        nearest = classifier.nearest(one)
        assert [name for name, _ in nearest] == [
            model.class_names[i] for i in np.argsort(-share)
        ]
        np.testing.assert_allclose(
            [value for _, value in nearest], -np.sort(-share), rtol=1e-3
        )


@pytest.mark.parametrize("form", ["file", "saved_model"])
def test_another_threshold(places, trained_pictures, form):
    model, pictures = trained_pictures
    classifier = Classifier.load(str(places[form]))
    files = [png(picture) for picture in pictures]
    scores = [one.unknown_score for one in classifier.classify(files)]
    threshold = float(np.float32(np.median(scores)))
    found = classifier.classify(files, threshold=threshold)
    assert [one.is_unknown for one in found] == [s > threshold for s in scores]
    for one in found:
        assert one.threshold == threshold
        assert one.label == (
            "unknown" if one.is_unknown else one.predicted_class
        )


@pytest.mark.parametrize("form", ["file", "saved_model"])
def test_what_is_no_image_does_not_touch_the_others(
    places, trained_pictures, form, rng
):
    _, pictures = trained_pictures
    good = png(pictures[0])
    classifier = Classifier.load(str(places[form]))
    (alone,) = classifier.classify([good])
    noise = rng.integers(0, 256, (20, 20, 3), "uint8")
    said, bad = zip(*image_files.not_read(noise), strict=True)
    found = classifier.classify([good, *bad, good])
    # Where a row stands in a batch decides how its probabilities are rounded.
    probabilities = found[-1].probabilities
    np.testing.assert_allclose(found[0].probabilities, probabilities, rtol=1e-6)
    assert found[0]._replace(probabilities=probabilities) == found[-1]
    assert found[0].label == alone.label
    # In the words of what is skipped in training.
    assert [one.error for one in found[1:-1]] == list(said)
    for one in found[1:-1]:
        assert one.label == "" and one.class_id is None
        assert not one.probabilities
    assert classifier.classify([]) == []


@pytest.mark.parametrize("form", ["file", "saved_model"])
def test_every_kind_of_file_is_decoded_as_in_training(
    places, trained_pictures, form, rng
):
    _, pictures = trained_pictures
    alpha = rng.integers(0, 256, (*pictures.shape[1:3], 1), "uint8")
    pixels = np.concatenate([pictures[0], alpha], axis=-1)
    _, files, *_ = zip(*image_files.kinds(pixels), strict=True)
    classifier = Classifier.load(str(places[form]))
    found = classifier.classify(list(files))
    trained_on = np.stack([read_image(file)[0] for file in files])
    expected = classifier.classify(trained_on)
    assert [one.label for one in found] == [one.label for one in expected]
    # A single step of 255 in one pixel makes more.
    np.testing.assert_allclose(
        [one.unknown_score for one in found],
        [one.unknown_score for one in expected],
        rtol=1e-6,
    )


# What an export needs beside what TensorFlow itself imports.
ONLY = """
import sys
import tensorflow as tf
tf.saved_model.load  # Some parts come when they are used.
before = {name.split(".")[0] for name in sys.modules}
from cac_tf import batch
path, photo = sys.argv[1:]
classifier = batch.Classifier.load(path)
for block in batch.blocks_of([photo]):
    ((_, answer),) = batch.answers_of(classifier, block)
loaded = {name.split(".")[0] for name in sys.modules} - before
print(answer.label, *sorted(loaded - sys.stdlib_module_names), sep="\\n")
"""


def test_a_saved_model_needs_tensorflow_alone(
    places, trained_pictures, tmp_path
):
    """In a process of its own, where it answers as in memory."""
    model, pictures = trained_pictures
    photo = tmp_path / "photo.png"
    photo.write_bytes(png(pictures[0]))
    result = subprocess.run(
        [sys.executable, "-c", ONLY, str(places["saved_model"]), str(photo)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    small = {"cac_tf", "lazy_loader", "numpy", "PIL", "tqdm"}
    label, *loaded = result.stdout.splitlines()
    assert label == model.predict_open_set(pictures[:1]).label[0]
    assert set(loaded) <= small


def test_the_description_in_a_saved_model(places, trained_pictures):
    model, _ = trained_pictures
    path = places["saved_model"] / "assets" / "model.json"
    described = json.loads(path.read_text("utf-8"))
    assert described["class_names"] == list(model.class_names)
    assert described["threshold"] == pytest.approx(model.threshold)
    assert described["score"] == "gamma"
    assert described["input_shape"] == [12, 10, 3]
    assert described["input_dtype"] == "float32"
    assert described["version"] == 3
    assert described["cac_tf"] == cac_tf.__version__


def test_what_is_no_model(places, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    for name, message in (
        ("nowhere", "Model not found"),
        ("text.txt", "neither a .keras file nor a folder"),
        ("empty", "contains neither saved_model.pb nor model.keras"),
    ):
        with pytest.raises(ValueError, match=message):
            Classifier.load(str(tmp_path / name))
    old = tmp_path / "old"
    old.mkdir()
    (old / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match="not exported by this version"):
        Classifier.load(str(old))


@pytest.mark.parametrize("form", ["file", "saved_model"])
def test_arrays(places, trained_pictures, form):
    """As whole numbers and as floats."""
    model, pictures = trained_pictures
    expected = model.predict_open_set(pictures)
    classifier = Classifier.load(str(places[form]))
    for images in (pictures, pictures.astype("float64")):
        found = classifier.classify(classifier.rows(images, "x"))
        assert [one.class_id for one in found] == expected.class_id.tolist()
    for images, message in (
        (pictures[:, :5], r"x has rows of shape \(5, 10, 3\); the model ex"),
        (pictures[0], r"x has rows of shape \(10, 3\); the model expects"),
        (pictures.astype("complex64"), "array of numbers; got dtype comple"),
        (pictures.astype("U3"), "x must be an array of numbers; got dtype "),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.rows(images, "x")


@pytest.mark.parametrize("form", ["file", "saved_model"])
@pytest.mark.parametrize(
    ("value", "dtype", "held"),
    [
        *((np.nan, "float32", "NaN or infinity"), (1e300, "float64", "NaN or")),
        *((-1, "int16", "-1"), (257 * 200, "uint16", "51400")),
        *((255.5, "float32", "255.5"), (-128, "int8", "-128")),
    ],
)
def test_a_row_is_refused_where_python_refuses_it(
    places, trained_pictures, form, value, dtype, held
):
    """By its own error, in the same words; the others do not notice."""
    model, pictures = trained_pictures
    images = (pictures[:4] // 2).astype(dtype)
    classifier = Classifier.load(str(places[form]))
    expected = classifier.classify(images)
    assert not any(one.error for one in expected)
    images[2, 3, 1, 0] = value
    rule = "finite" if held.startswith("NaN") else "pixels in 0...255"
    with pytest.raises(ValueError, match=f"must be {rule}, but position 2 co"):
        model.predict_open_set(images)
    found = classifier.classify(classifier.rows(images, "x"))
    bad = found.pop(2)
    assert bad.error.startswith(f"it contains {held}")
    assert bad.error.endswith(f"; inputs must be {rule}")
    for one, wanted in zip(found, [*expected[:2], expected[3]], strict=True):
        assert one.label == wanted.label
        assert one.unknown_score == pytest.approx(wanted.unknown_score, 1e-4)


@pytest.mark.parametrize("form", ["file", "saved_model"])
def test_pixels_in_0_to_1_are_warned_about(places, trained_pictures, form):
    classifier = Classifier.load(str(places[form]))
    with pytest.warns(UserWarning, match="Multiply them by 255"):
        classifier.classify(trained_pictures[1][:2] / 255)


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    """Products on five ids below 50, as files: plain, and behind a layer.

    Of the second, nobody knows which ids its table has.
    """
    folder = tmp_path_factory.mktemp("ids")
    x = np.random.default_rng(0).integers(0, 50, (60, 5))
    for name, first in (("plain", []), ("hidden", [keras.layers.Identity()])):
        network = keras.Sequential(
            [
                *(keras.Input([5], dtype="int32"), *first),
                keras.layers.Embedding(50, 8),
                *(keras.layers.Flatten(), keras.layers.Dense(3)),
            ]
        )
        model = cac_tf.OpenSetClassifier(network, list("abc"), threshold=1e6)
        model.save(folder / f"{name}.keras")
        model.export(str(folder / name))
    return folder, x


@pytest.mark.parametrize("form", ["plain.keras", "plain"])
def test_ids_that_are_in_no_table(ids, form):
    """Not those that they become in 32 bits."""
    folder, x = ids
    classifier = Classifier.load(str(folder / form))
    expected = [one.label for one in classifier.classify(x)]
    assert set(expected) <= set("abc")
    for place, value in ((3, 50), (7, -1), (11, x[11, 0] + 2**32)):
        x = x.copy()
        x[place, 0] = value
        expected[place] = ""
        found = classifier.classify(classifier.rows(x, "x"))
        assert [one.label for one in found] == expected
        assert found[place].error == (
            f"it contains {value}; inputs must be whole numbers of 0 to 49 "
            "(int32)"
        )
        with pytest.raises(ValueError, match=r"whole numbers of 0 to 49 \(int"):
            cac_tf.load_model(folder / "plain.keras").predict_open_set(x)


@pytest.mark.parametrize("form", ["hidden.keras", "hidden"])
def test_rows_that_the_network_cannot_compute(ids, form):
    """Found among the others, which are answered."""
    folder, x = ids
    classifier = Classifier.load(str(folder / form))
    expected = [one.label for one in classifier.classify(x)]
    x = x.copy()
    for place in (3, 4, 59):
        x[place, 2], expected[place] = 50, ""
    found = classifier.classify(x)
    assert [one.label for one in found] == expected
    assert {one.error[:20] for one in found} == {"", "the network failed: "}


def test_grey_images_may_lack_their_channel(tmp_path):
    layers = [keras.Input((4, 4, 1)), keras.layers.Flatten()]
    network = keras.Sequential([*layers, keras.layers.Dense(2)])
    model = cac_tf.OpenSetClassifier(network, ["a", "b"])
    model.set_threshold(1.0)
    model.save(tmp_path / "model.keras")
    classifier = Classifier.load(str(tmp_path))
    assert classifier.rows(np.zeros((3, 4, 4)), "x").shape == (3, 4, 4, 1)


def test_the_digest_is_that_of_the_model(places, tmp_path):
    """Of all its files, and not of where it is."""
    digests = {}
    for form in ("file", "saved_model"):
        digests[form] = Classifier.load(str(places[form])).sha256()
        copy = tmp_path / form
        if form == "file":
            copy = copy.with_suffix(".keras")
            shutil.copy(places[form], copy)
        else:
            shutil.copytree(places[form], copy)
        assert Classifier.load(str(copy)).sha256() == digests[form]
    assert digests["file"] != digests["saved_model"]
    described = tmp_path / "saved_model" / "assets" / "labels.txt"
    described.write_text(described.read_text() + " ")
    changed = Classifier.load(str(tmp_path / "saved_model")).sha256()
    assert changed != digests["saved_model"]


def test_models_that_take_no_files(tmp_path):
    model = cac_tf.OpenSetClassifier(small_classifier(), list("abc"))
    path = str(tmp_path / "model.keras")
    model.save(path)
    with pytest.raises(ValueError, match="no threshold"):
        Classifier.load(path)
    model.set_threshold(1.0)
    model.save(path)
    model.export(str(tmp_path / "saved"))
    rows = np.random.default_rng(0).standard_normal((9, 5))
    expected = model.predict_open_set(np.float32(rows))
    for place in (path, str(tmp_path / "saved")):
        classifier = Classifier.load(place)
        assert not classifier.takes_files
        with pytest.raises(ValueError, match="does not accept images"):
            classifier.classify([b"no image"])
        found = classifier.classify(classifier.rows(rows, "x"))
        assert [one.label for one in found] == expected.label.tolist()
