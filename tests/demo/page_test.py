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
from tests.conftest import small_classifier
from tests.serving import references

gradio = pytest.importorskip("gradio", reason="needs the extra demo")


@pytest.fixture(scope="module")
def page(inspector):
    return build_page(inspector, "digits", ["A note."])


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
    threshold = np.float32(inspector.model.threshold)
    answer = listener(page, f"examples-{kind}", "select")
    shown = [
        answer(threshold, selection(index=i))[0].image
        for i in range(len(captions))
    ]
    expected = inspector.model.predict_open_set(np.stack(shown))
    for i, image in enumerate(shown):
        # The very image, not its picture on the page.
        rows = np.flatnonzero((examples.images == image).all((1, 2, 3)))
        assert captions[i] in {names[examples.labels[row]] for row in rows}
        _, text, place, nearest, _, neighbours = answer(
            threshold, selection(index=i)
        )
        assert verdict(text) == expected.label[i]
        assert f"the threshold {threshold:.4g}." in text
        assert nearest.count("<tr>") == 4
        assert len(neighbours) == 6
        assert 0 < place < 1000


def test_the_slider_is_the_threshold(page, inspector):
    threshold = np.float32(inspector.model.threshold)
    seen, text, *_ = listener(page, "examples-unknown", "select")(
        threshold, selection(index=2)
    )
    moved = listener(page, "threshold", "input")
    answers = set()
    for place in np.linspace(0, 1000, 41):
        now, text = moved(place, seen, threshold)
        is_unknown = seen.unknown_score > now
        assert (verdict(text) == "unknown") == is_unknown
        answers.add(bool(is_unknown))
    assert answers == {False, True}
    # Before the first image it is kept for that.
    now, text = moved(1000, None, threshold)
    assert now > threshold and text == ""


def test_thresholds_by_class_move_one_by_one(trained_digits, digits):
    model = trained_digits.with_score("gamma")
    model.set_threshold(np.linspace(0.1, 0.6, 6))
    page = build_page(Inspector(model, digits), "by class")
    thresholds = np.float32(model.threshold)
    seen, text, *_ = listener(page, "examples-known", "select")(
        thresholds, selection(index=0)
    )
    own = seen.predicted_class_id
    assert f"the threshold {thresholds[own]:.4g}." in text
    now, _ = listener(page, "threshold", "input")(0, seen, thresholds)
    assert [*np.flatnonzero(now != thresholds)] == [own]


def test_drawings(page, inspector, strokes):
    threshold = np.float32(inspector.model.threshold)
    answer = listener(page, "drawing", "input")
    for _, drawing in strokes["digits"][::4]:
        image = image_of_drawing(ink_of_strokes(drawing), 8)
        expected = inspector.model.predict_open_set(image[None])
        seen, text, *_ = answer(threshold, selection(strokes=drawing))
        np.testing.assert_array_equal(seen.image, image)
        assert verdict(text) == expected.label[0]
    seen, text, *_ = answer(threshold, selection(strokes=[]))
    assert seen is None and text == "<p>Nothing is drawn.</p>"
    _, text, *_ = answer(threshold, selection(strokes=[[["<b>", 1]]]))
    assert "must be a list of strokes" in text


def test_photos(page, inspector, digits, tmp_path):
    threshold = np.float32(inspector.model.threshold)
    answer = listener(page, "photo", "input")
    image = digits.known_test.images[9]
    PIL.Image.fromarray(image[..., 0]).save(tmp_path / "a.png")
    seen, text, *_ = answer(threshold, str(tmp_path / "a.png"))
    np.testing.assert_array_equal(seen.image, image)
    assert verdict(text) == inspector.model.predict_open_set(image[None]).label
    assert answer(threshold, None)[1] == "<p>There is no image.</p>"
    (tmp_path / "b.png").write_text("<no image>")
    seen, text, *_ = answer(threshold, str(tmp_path / "b.png"))
    assert seen is None and "no JPEG, PNG, WebP or BMP image" in text
    # What Gradio itself would open, and refuse without a word.
    (tmp_path / "c.png").write_bytes(references.png_header(60_000, 60_000))
    (photo,) = (b for b in page.blocks.values() if b.elem_id == "photo")
    path = photo.preprocess(photo.data_model(path=str(tmp_path / "c.png")))
    seen, text, *_ = answer(threshold, path)
    assert seen is None and "an image of 60,000 x 60,000 pixels" in text


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
    page = build_page(Inspector(trained_digits), "alone")
    ids = {block.elem_id for block in page.blocks.values()}
    assert "drawing" in ids and "examples-known" not in ids
    threshold = np.float32(trained_digits.threshold)
    seen, text, *_, neighbours = listener(page, "drawing", "input")(
        threshold, selection(strokes=strokes["digits"][0][1])
    )
    assert verdict(text) and neighbours == []


def test_only_models_of_images_have_a_page(trained_pictures):
    model = cac_tf.OpenSetClassifier(small_classifier(), list("abc"))
    model.set_threshold(1.0)
    with pytest.raises(ValueError, match=r"shape \(5,\); only images"):
        build_page(Inspector(model), "vectors")
    # In color there is nothing to draw on.
    page = build_page(Inspector(trained_pictures[0]), "color")
    ids = {block.elem_id for block in page.blocks.values()}
    assert "photo" in ids and "drawing" not in ids
