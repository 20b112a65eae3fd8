# SPDX-License-Identifier: Apache-2.0
"""Classes made of rejected inputs, without a page."""

import numpy as np
import pytest

from cac_tf.demo import session as session_module
from cac_tf.demo.inspection import Inspector
from cac_tf.demo.session import Session


@pytest.fixture(scope="module")
def three(inspector, digits):
    """A session with 30 threes, unknown to the model, and 20 known digits."""
    labels = digits.unknown_test.labels
    number = digits.unknown_class_names.index("3")
    rows = np.flatnonzero(labels == number)[:30]
    images = {("3", row): digits.unknown_test.images[row] for row in rows}
    known = {("known", i): digits.known_test.images[i] for i in range(20)}
    return Session.of(inspector).with_inputs({**known, **images})


def labels_of(session):
    model = session.inspector.model
    images = np.stack([one.image for one in session.kept.values()])
    return model.predict_open_set(images).label


def test_what_is_rejected_is_grouped(three, digits):
    is_unknown = labels_of(three) == "unknown"
    rejected = three.rejected()
    assert [*rejected] == [
        key for key, row in zip(three.kept, is_unknown, strict=True) if row
    ]
    grouped = three.grouped()
    sizes = [len(one.inputs) for one in grouped.groups]
    assert sum(sizes) + len(grouped.ungrouped) == len(rejected)
    largest = grouped.groups[0]
    assert sizes[0] == max(sizes) >= 5
    nearest = [
        digits.class_names[one.predicted_class_id] for one in largest.inputs
    ]
    share = nearest.count(largest.nearest_class) / sizes[0]
    assert largest.nearest_share == pytest.approx(share)


def test_enroll_and_undo(three, digits):
    before = three.grouped()
    after = before.enrolled(" three ", 0)
    size = len(before.groups[0].inputs)
    assert after.inspector.model.enrolled_classes == {"three": size}
    # What is kept has the answers of the new model, and so have test images.
    expected = after.inspector.model.predict_open_set(
        np.stack([one.image for one in after.kept.values()])
    )
    np.testing.assert_allclose(
        [one.unknown_score for one in after.kept.values()],
        expected.unknown_score,
        rtol=1e-4,
        atol=1e-6,
    )
    assert (expected.label == "three").sum() >= size / 2
    assert len(after.rejected()) < len(before.rejected())
    np.testing.assert_allclose(
        after.inspector.unknown_scores,
        after.inspector.model.predict_scores(
            digits.unknown_test.images
        ).unknown_score,
        rtol=1e-4,
        atol=1e-6,
    )

    undone = after.undone()
    assert undone.versions == before.versions
    assert [*undone.rejected()] == [*before.rejected()]
    assert len(undone.groups) == len(before.groups)
    with pytest.raises(ValueError, match="there is nothing to undo"):
        undone.undone()


def test_what_cannot_be_enrolled(three):
    grouped = three.grouped()
    with pytest.raises(ValueError, match="already has a class '0'"):
        grouped.enrolled("0", 0)
    with pytest.raises(ValueError, match="Class names"):
        grouped.enrolled("", 0)
    for number in (None, len(grouped.groups)):
        with pytest.raises(ValueError, match="Choose a group first"):
            grouped.enrolled("three", number)


def test_thresholds_by_class(three, trained_digits):
    model = trained_digits.with_score("gamma")
    model.set_threshold(np.full(6, trained_digits.threshold) + np.arange(6))
    session = Session.of(Inspector(model)).with_inputs(
        {key: one.image for key, one in three.kept.items()}
    )
    is_unknown = labels_of(session) == "unknown"
    assert 0 < len(session.rejected()) == is_unknown.sum()


def test_only_so_many_are_kept(inspector, digits, monkeypatch):
    monkeypatch.setattr(session_module, "MOST_KEPT", 3)
    images = dict(enumerate(digits.known_test.images[:4]))
    session = Session.of(inspector)
    with pytest.raises(ValueError, match="4 images at once are too many"):
        session.with_inputs(images)
    for key, image in images.items():
        session = session.with_inputs({key: image})
    assert [*session.kept] == [1, 2, 3]
    session = session.with_inputs({1: images[0]})
    assert [*session.kept] == [2, 3, 1] and session.shown == 1
    np.testing.assert_array_equal(session.seen.image, images[0])
