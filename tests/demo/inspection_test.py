# SPDX-License-Identifier: Apache-2.0
"""Scores, decisions and neighbours of single images."""

import dataclasses
import io

import numpy as np
import PIL.Image
import pytest

import cac_tf
from cac_tf.demo.inspection import Inspector
from cac_tf.demo.photo import image_of_photo
from cac_tf.demo.score_scale import ScoreScale
from tests.conftest import small_classifier


def test_scores_are_those_of_predict_open_set(inspector, digits):
    model = inspector.model
    images = np.concatenate(
        [digits.known_test.images[:20], digits.unknown_test.images[:20]]
    )
    expected = model.predict_open_set(images)
    for row, image in enumerate(images):
        seen = inspector.inspect(image)
        assert seen.unknown_score == pytest.approx(
            expected.unknown_score[row], rel=1e-4, abs=1e-7
        )
        assert seen.predicted_class_id == expected.predicted_class_id[row]
        decision = inspector.decide(seen, model.threshold)
        assert decision.label[0] == expected.label[row]
        nearest = seen.nearest_classes()
        order = np.argsort(expected.distances[row])[:3]
        assert [i for i, _ in nearest] == order.tolist()
        np.testing.assert_allclose(
            [d for _, d in nearest], expected.distances[row][order], rtol=1e-4
        )


def test_neighbours_are_the_most_similar_features(inspector, digits):
    model, image = inspector.model, digits.unknown_test.images[5]
    ((bank, *_),) = model.iterate_outputs(
        digits.train.images, batch_size=10_000, names=["features"]
    )
    ((own, *_),) = model.iterate_outputs(image[None], names=["features"])
    bank, own = bank["features"], own["features"][0]
    cosine = bank @ own / np.linalg.norm(bank, axis=1) / np.linalg.norm(own)
    order = np.argsort(-cosine)[:6]
    seen = inspector.inspect(image)
    assert seen.neighbours.tolist() == order.tolist()
    np.testing.assert_allclose(seen.similarities, cosine[order], atol=1e-5)


def test_the_threshold_decides_without_the_network(
    inspector, digits, monkeypatch
):
    seen = inspector.inspect(digits.unknown_test.images[0])
    monkeypatch.setattr(inspector.model, "iterate_outputs", None)
    score = np.float32(seen.unknown_score)
    for threshold in (score, np.nextafter(score, np.float32(-1)), 1e-9, 50.0):
        decision = inspector.decide(seen, threshold)
        assert decision.is_unknown[0] == (score > np.float32(threshold))


def test_thresholds_by_class(inspector, digits):
    seen = inspector.inspect(digits.known_test.images[0])
    thresholds = np.full(6, 100.0, "float32")
    assert not inspector.decide(seen, thresholds).is_unknown[0]
    thresholds[seen.predicted_class_id] = seen.unknown_score / 2
    assert inspector.decide(seen, thresholds).is_unknown[0]


def test_scores_of_test_images(inspector, digits):
    predicted = inspector.model.predict_scores(digits.known_test.images)
    np.testing.assert_array_equal(
        np.sort(inspector.known_scores), np.sort(predicted.unknown_score)
    )
    assert len(inspector.unknown_scores) == digits.unknown_test.size
    assert np.median(inspector.unknown_scores) > np.median(
        predicted.gamma.min(1)
    )


def test_without_data(trained_digits, digits):
    inspector = Inspector(trained_digits)
    seen = inspector.inspect(digits.train.images[0])
    assert inspector.training is None and len(seen.neighbours) == 0


def test_what_does_not_fit_is_refused(trained_digits, digits, inspector):
    with pytest.raises(ValueError, match="expects inputs of shape|got"):
        inspector.inspect(np.zeros((9, 8, 3), "uint8"))
    other = dataclasses.replace(digits, class_names=("a", *"bcdef"))
    with pytest.raises(ValueError, match="known classes a, b, .* model has 0"):
        Inspector(trained_digits, other)
    model = cac_tf.OpenSetClassifier(small_classifier(), list("abc"))
    with pytest.raises(ValueError, match="no threshold"):
        Inspector(model)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_photos_are_read_as_a_folder_s(mode):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (30, 40, 3)).astype("uint8")
    file = io.BytesIO()
    picture = PIL.Image.fromarray(pixels).convert(mode)
    picture.save(file, "PNG")
    got = image_of_photo(file.getvalue(), (12, 10, 3))
    expected = picture.convert("RGB").resize((10, 12), PIL.Image.BILINEAR)
    np.testing.assert_array_equal(got, np.asarray(expected))
    grey = image_of_photo(file.getvalue(), (None, None, 1))
    np.testing.assert_array_equal(
        grey[..., 0], np.asarray(picture.convert("L"))
    )


def test_a_scale_by_rank():
    rng = np.random.default_rng(0)
    scores = np.r_[rng.uniform(0, 1e-5, 50), rng.uniform(1, 9, 50)]
    scale = ScoreScale(scores, 0.02)
    order = np.argsort(scores)
    assert (np.diff(scale.place(scores[order])) > 0).all()
    assert scale.place(0.02) == pytest.approx(0.5)
    for place in np.linspace(0, 1, 7):
        assert scale.place(scale.score(place)) == pytest.approx(place)
    assert scale.place([-3, 99]).tolist() == [0, 1]


@pytest.mark.parametrize(
    "thresholds", [0.0, 0.02, -3.0, [1.0, 2.0], [5.0, 5.0]]
)
def test_a_scale_without_other_scores(thresholds):
    scale = ScoreScale([], thresholds)
    low, high = scale.score(0), scale.score(1)
    assert low < np.min(thresholds) and np.max(thresholds) < high
