# SPDX-License-Identifier: Apache-2.0
"""What the page answers, without a browser."""

import re
import socket
import urllib.error
import urllib.request

import numpy as np
import PIL.Image
import pytest

import cac_tf
from cac_tf.demo import page as page_module
from cac_tf.demo.drawing import image_of_drawing
from cac_tf.demo.drawing import ink_of_strokes
from cac_tf.demo.inspection import Inspector
from cac_tf.demo.page import build_page
from cac_tf.demo.page import serve
from cac_tf.demo.session import Session
from tests.conftest import small_classifier
from tests.serving import references

gradio = pytest.importorskip("gradio", reason="needs the extra demo")


@pytest.fixture(scope="module")
def save_beside(tmp_path_factory):
    return tmp_path_factory.mktemp("model") / "model.keras"


@pytest.fixture(scope="module")
def page(inspector, save_beside):
    return build_page(inspector, "digits", ["A note."], str(save_beside))


def listener(page, elem_id, event):
    """The function that answers an event of a component."""
    for function in page.fns.values():
        for component, name in function.targets:
            if (page.blocks[component].elem_id, name) == (elem_id, event):
                return function.fn
    raise AssertionError(f"nothing listens to {event} of {elem_id}")


def selection(**values):
    return gradio.EventData(None, values)


def verdict(answer):
    return re.search(r'class="verdict \w+">(.*?)</p>', answer)[1]


@pytest.mark.parametrize("kind", ["known", "unknown"])
def test_examples_get_the_model_s_answers(page, inspector, digits, kind):
    examples = getattr(digits, f"{kind}_test")
    names = getattr(
        digits, "class_names" if kind == "known" else "unknown_class_names"
    )
    gallery = next(
        b for b in page.blocks.values() if b.elem_id == f"examples-{kind}"
    )
    captions = [image["caption"] for image in gallery.value]
    assert {*captions} == {*names}
    threshold = inspector.model.threshold
    session = Session.of(inspector)
    answer = listener(page, f"examples-{kind}", "select")
    shown = [
        answer(session, selection(index=i))[0].seen.image
        for i in range(len(captions))
    ]
    expected = inspector.model.predict_open_set(np.stack(shown))
    for i, image in enumerate(shown):
        # The very image, not its picture on the page.
        rows = np.flatnonzero((examples.images == image).all((1, 2, 3)))
        assert captions[i] in {names[examples.labels[row]] for row in rows}
        _, text, place, nearest, _, neighbours = answer(
            session, selection(index=i)
        )
        assert verdict(text) == expected.label[i]
        assert f"the threshold {threshold:.4g}." in text
        assert nearest.count("<tr>") == 4
        assert len(neighbours) == 6
        assert 0 < place < 1000


def test_the_slider_is_the_threshold(page, inspector):
    session, text, *_ = listener(page, "examples-unknown", "select")(
        Session.of(inspector), selection(index=2)
    )
    moved = listener(page, "threshold", "input")
    answers = set()
    for place in np.linspace(0, 1000, 41):
        now, text = moved(session, place)
        is_unknown = session.seen.unknown_score > now.threshold
        assert (verdict(text) == "unknown") == is_unknown
        answers.add(bool(is_unknown))
    assert answers == {False, True}
    # Before the first image it is kept for that.
    now, text = moved(Session.of(inspector), 1000)
    assert now.threshold > session.threshold
    assert text == "<p>No image yet.</p>"


def test_thresholds_by_class_move_one_by_one(trained_digits, digits):
    model = trained_digits.with_score("gamma")
    model.set_threshold(np.linspace(0.1, 0.6, 6))
    inspector = Inspector(model, digits)
    page = build_page(inspector, "by class")
    thresholds = np.float32(model.threshold)
    session, text, *_ = listener(page, "examples-known", "select")(
        Session.of(inspector), selection(index=0)
    )
    own = session.seen.predicted_class_id
    assert f"the threshold {thresholds[own]:.4g}." in text
    now, _ = listener(page, "threshold", "input")(session, 0)
    assert [*np.flatnonzero(now.threshold != thresholds)] == [own]


def test_drawings(page, inspector, strokes):
    session = Session.of(inspector)
    answer = listener(page, "drawing", "input")
    for _, drawing in strokes["digits"][::4]:
        image = image_of_drawing(ink_of_strokes(drawing), 8)
        expected = inspector.model.predict_open_set(image[None])
        session, text, *_ = answer(session, selection(strokes=drawing))
        np.testing.assert_array_equal(session.seen.image, image)
        assert verdict(text) == expected.label[0]
    count = len(session.kept)
    assert count == len(strokes["digits"][::4])
    # The same drawing, with strokes that were added.
    session, *_ = answer(session, selection(strokes=[*drawing, [[0, 0]]]))
    assert len(session.kept) == count
    session, text, *_ = answer(session, selection(strokes=[]))
    assert session.seen is None and text == "<p>Nothing has been drawn.</p>"
    _, text, *_ = answer(session, selection(strokes=[[["<b>", 1]]]))
    assert "must be a list of strokes" in text


def test_photos(page, inspector, digits, tmp_path):
    session = Session.of(inspector)
    answer = listener(page, "photo", "input")
    image = digits.known_test.images[9]
    PIL.Image.fromarray(image[..., 0]).save(tmp_path / "a.png")
    now, text, *_ = answer(session, [str(tmp_path / "a.png")])
    np.testing.assert_array_equal(now.seen.image, image)
    assert verdict(text) == inspector.model.predict_open_set(image[None]).label
    assert answer(session, None)[1] == "<p>There is no image.</p>"
    (tmp_path / "b.png").write_text("<no image>")
    now, text, *_ = answer(now, [str(tmp_path / "b.png")])
    assert now.seen is None and "not a JPEG, PNG, WebP or BMP image" in text
    # What Gradio itself would open, and refuse without a word.
    (tmp_path / "c.png").write_bytes(references.png_header(60_000, 60_000))
    (photo,) = (b for b in page.blocks.values() if b.elem_id == "photo")
    paths = photo.preprocess(photo.data_model(path=str(tmp_path / "c.png")))
    now, text, *_ = answer(session, paths)
    assert now.seen is None and "an image of 60,000 x 60,000 pixels" in text


@pytest.fixture(scope="module")
def threes(digits, tmp_path_factory):
    """Paths of photos of an unknown digit."""
    folder = tmp_path_factory.mktemp("threes")
    labels = digits.unknown_test.labels
    number = digits.unknown_class_names.index("3")
    paths = []
    for row in np.flatnonzero(labels == number)[:30]:
        paths.append(str(folder / f"{row}.png"))
        image = digits.unknown_test.images[row, ..., 0]
        PIL.Image.fromarray(image).save(paths[-1])
    return paths


def test_several_photos(page, inspector, threes, tmp_path):
    answer = listener(page, "photos", "upload")
    session, text, *_ = answer(Session.of(inspector), threes)
    images = np.stack([one.image for one in session.kept.values()])
    is_unknown = inspector.model.predict_open_set(images).is_unknown
    assert len(images) == 30
    assert f"30 images; the model rejects {is_unknown.sum()} of" in text
    (tmp_path / "b.png").write_text("<no image>")
    both = [*threes, str(tmp_path / "b.png")]
    session, text, *_ = answer(Session.of(inspector), both)
    assert not session.kept
    assert "b.png: not a JPEG, PNG, WebP or BMP image. None of the 31" in text


def test_a_group_becomes_a_class_and_back(
    page, inspector, digits, threes, save_beside
):
    first, *_ = listener(page, "photos", "upload")(
        Session.of(inspector), threes
    )
    first, version, table, choice = listener(page, "rejected", "select")(first)
    assert version == "<p>Version 1 of the model. Enrolled: nothing.</p>"
    assert table.count("<tr>") == len(first.groups) + bool(first.ungrouped)
    assert [number for _, number in choice["choices"]] == [
        *range(len(first.groups))
    ]
    size = len(first.groups[0].inputs)
    assert f"1: {size} inputs, {first.groups[0].nearest_share:.0%}" in table
    assert table.count("data:image/png;base64,") >= min(size, 12)

    enroll = listener(page, "enroll", "click")
    same, *_, said = enroll(first, "0", 0)
    assert (
        same is first and "The model already has a class &#x27;0&#x27;" in said
    )
    second, verdict_, *_, version, table, choice, said = enroll(first, "<b>", 0)
    assert f"Version 2 of the model. Enrolled: &lt;b&gt; ({size} inp" in version
    assert f"of its {size} inputs would be recognized." in said
    labels = [
        one.model.predict_open_set(digits.unknown_test.images).label
        for one in (inspector, second.inspector)
    ]
    count = (labels[0] != labels[1]).sum()
    assert count > size / 2
    assert f"unknown test images, {count} of {len(labels[0])} dec" in said
    # The answer on the other tab is that of the new model.
    decision = second.inspector.decide(second.seen, second.threshold)
    assert verdict(verdict_) == decision.label[0].replace("<b>", "&lt;b&gt;")

    # Beside the old file, and never over one.
    save = listener(page, "save", "click")
    assert save(first) == "<p>There is no new version to save.</p>"
    path = save_beside.with_stem("model-version2")
    assert save(second) == f"<p>Version 2 was saved to {path}.</p>"
    assert save(second).endswith("already exists and was not overwritten.</p>")
    assert [*save_beside.parent.iterdir()] == [path]
    # It goes with the data of the run.
    loaded = Inspector(cac_tf.load_model(path), digits)
    np.testing.assert_allclose(
        loaded.unknown_scores,
        second.inspector.unknown_scores,
        rtol=1e-4,
        atol=1e-6,
    )

    undo = listener(page, "undo", "click")
    third, *_, version, table, choice, said = undo(second)
    assert third.versions == first.versions and "Version 1" in version
    same, *_, said = undo(third)
    assert same is third and "there is nothing to undo" in said


def test_a_score_that_cannot_enroll_says_so(trained_digits):
    model = cac_tf.OpenSetClassifier(
        trained_digits.classifier,
        trained_digits.class_names,
        "max_logit",
    )
    model.set_threshold(0.0)
    page = build_page(Inspector(model), "logits")
    said, button = (
        next(b for b in page.blocks.values() if b.elem_id == name)
        for name in ("said", "enroll")
    )
    assert (
        "no class can be enrolled. These scores support enrolling: "
        in said.value
    )
    assert not button.interactive


def status_of(address, headers, data=None):
    request = urllib.request.Request(address, data, headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_only_the_page_itself_is_answered(page, monkeypatch):
    """Not pages of other sites, also where they lead their name to this one."""
    monkeypatch.setattr(page_module, "_LARGEST_FILE", 1000)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = serve(page, "127.0.0.1", port, in_background=True)
    try:
        for name in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
            own = {"Host": name, "Origin": f"http://{name}"}
            assert status_of(address, {"Host": name}) == 200
            assert status_of(address, own) == 200
            foreign = {**own, "Origin": "http://evil.example"}
            assert status_of(address, foreign) == 403
        assert status_of(address, {"Host": f"evil.example:{port}"}) == 403
        for size, status in ((900, 200), (2000, 413)):
            body = (
                b'--b\r\nContent-Disposition: form-data; name="files"; '
                b'filename="a.png"\r\n\r\n%s\r\n--b--\r\n' % bytes(size)
            )
            kind = {"Content-Type": "multipart/form-data; boundary=b"}
            found = status_of(f"{address}gradio_api/upload", kind, body)
            assert found == status
    finally:
        page.close()


def test_without_data_there_are_no_examples(trained_digits, strokes):
    inspector = Inspector(trained_digits)
    page = build_page(inspector, "alone")
    ids = {block.elem_id for block in page.blocks.values()}
    assert "drawing" in ids and "examples-known" not in ids
    _, text, *_, neighbours = listener(page, "drawing", "input")(
        Session.of(inspector), selection(strokes=strokes["digits"][0][1])
    )
    assert verdict(text) and neighbours == []


def test_only_models_of_images_have_a_page(trained_pictures):
    model = cac_tf.OpenSetClassifier(small_classifier(), list("abc"))
    model.set_threshold(1.0)
    with pytest.raises(ValueError, match=r"shape \(5,\); this page"):
        build_page(Inspector(model), "vectors")
    # In color there is nothing to draw on.
    page = build_page(Inspector(trained_pictures[0]), "color")
    ids = {block.elem_id for block in page.blocks.values()}
    assert "photo" in ids and "drawing" not in ids
