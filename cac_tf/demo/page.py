# SPDX-License-Identifier: Apache-2.0
"""The page: what one puts in, and what the classifier says of it."""

from __future__ import annotations

import html
import importlib.resources
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import PIL.Image

from cac_tf import lazy
from cac_tf.decision import rule
from cac_tf.demo.drawing import image_of_drawing
from cac_tf.demo.drawing import ink_of_strokes
from cac_tf.demo.drawing import takes_drawings
from cac_tf.demo.inspection import evenly_spread
from cac_tf.demo.own_origin import OwnOrigin
from cac_tf.demo.photo import check_takes_photos
from cac_tf.demo.photo import image_of_photo
from cac_tf.demo.score_scale import ScoreScale

if TYPE_CHECKING:
    from cac_tf.demo.inspection import Inspector

gradio = lazy.module("gradio", extra="demo")
middleware = lazy.module("starlette.middleware", extra="demo")

_NUM_EXAMPLES = 10
# Of an upload, in bytes.
_LARGEST_FILE = 1 << 26
# Smaller images are shown larger, with visible pixels.
_SMALLEST_SHOWN = 128
_STEPS = 1000
_CANVAS = """
<canvas width="320" height="320" aria-label="canvas to draw on"></canvas>
<button type="button">Clear</button>
"""


def build_page(
    inspector: Inspector, title: str, notes: Sequence[str] = ()
) -> Any:
    """The page of a classifier.

    Args:
        inspector: `Inspector`.
        title: heading of the page.
        notes: sentences below it.

    Returns:
        `gradio.Blocks`, for `serve`.

    Raises:
        ValueError: the model takes no images of 1 or 3 channels.
        ModuleNotFoundError: Gradio is not installed.
    """
    shape = inspector.model.inputs_taken.fixed_shape
    check_takes_photos(shape)
    with gradio.Blocks(title=title, analytics_enabled=False) as page:
        gradio.Markdown(f"# {html.escape(title)}")
        for note in (_what_is_known(inspector), *notes):
            gradio.Markdown(html.escape(note))
        with gradio.Row():
            with gradio.Column():
                sources = _inputs(inspector, shape)
            answers = _Answers(inspector)
        answers.follow(sources)
    return page


def serve(page: Any, host: str, port: int, in_background: bool = False) -> str:
    """Shows a page to browsers, with nothing from elsewhere.

    Args:
        page: of `build_page`.
        host: address to listen at; "127.0.0.1" for this machine alone.
        port: number of the port.
        in_background: whether to return at once; else after Ctrl-C.

    Returns:
        The page's address.

    Raises:
        OSError: the port is in use.
    """
    theme = gradio.themes.Default(
        # Fonts of the browser: none is fetched.
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        share=False,
        quiet=True,
        inbrowser=False,
        prevent_thread_lock=True,
        ssr_mode=False,
        footer_links=[],
        max_file_size=_LARGEST_FILE,
        app_kwargs={"middleware": [middleware.Middleware(OwnOrigin, host)]},
        theme=theme,
        css=file_text("page.css"),
    )
    if not in_background:
        page.block_thread()
    return address


def _what_is_known(inspector):
    text = f"Known classes: {', '.join(inspector.model.class_names)}."
    if inspector.dataset is not None:
        unknown = ", ".join(inspector.dataset.unknown_class_names)
        text += f" Unknown ones in its test: {unknown}." if unknown else ""
    return text


class _Source:
    """A component, its event, and how its value becomes an image."""

    def __init__(self, event, inputs, image_of):
        self.event, self.inputs, self.image_of = event, inputs, image_of


def _inputs(inspector, shape):
    sources = []
    if takes_drawings(shape):
        with gradio.Tab("Draw a digit"):
            pad = gradio.HTML(
                html_template=_CANVAS,
                js_on_load=file_text("canvas.js"),
                elem_id="drawing",
            )

        def image_of_strokes(event):
            return image_of_drawing(ink_of_strokes(event.strokes), shape[0])

        sources.append(_Source(pad.input, [], image_of_strokes))
    with gradio.Tab("Photo"):
        photo = gradio.Image(
            label="Drop a photo",
            type="filepath",
            # The file as it is.
            image_mode=None,
            sources=["upload", "clipboard"],
            elem_id="photo",
        )
    # Gradio would open the file, and say nothing of one that it does not.
    photo.preprocess = lambda file: None if file is None else file.path
    sources.append(
        _Source(
            photo.input,
            [photo],
            lambda path: _image_of_file(path, inspector.model.inputs_taken),
        )
    )
    if inspector.dataset is None:
        gradio.Markdown("The data of the run are not there: no examples.")
        return sources
    for kind, examples, names in _examples(inspector.dataset):
        if not examples.size:
            continue
        gallery = gradio.Gallery(
            _captioned(examples.images[:], [names[i] for i in examples.labels]),
            label=f"Examples of {kind} classes",
            columns=5,
            height="auto",
            allow_preview=False,
            buttons=[],
            format="png",
            elem_id=f"examples-{kind}",
        )
        sources.append(_Source(gallery.select, [], _image_at(examples)))
    return sources


def _examples(dataset):
    """Kind, `Examples` and class names of the test images to choose from."""
    for kind, examples, names in (
        ("known", dataset.known_test, dataset.class_names),
        ("unknown", dataset.unknown_test, dataset.unknown_class_names),
    ):
        yield kind, evenly_spread(examples, _NUM_EXAMPLES), names


def _image_at(examples):
    def image_of(event):
        return np.asarray(examples.images[event.index : event.index + 1][0])

    return image_of


def file_text(name):
    """The text of a file that is part of the page."""
    folder = importlib.resources.files("cac_tf.demo")
    return (folder / name).read_text(encoding="utf-8")


def _image_of_file(path, taken):
    if path is None:
        raise ValueError("There is no image.")
    return image_of_photo(path, taken.fixed_shape, taken.interpolation)


class _Answers:
    """The part of the page with the answer, and what moves in it."""

    def __init__(self, inspector):
        self._inspector = inspector
        threshold = np.asarray(inspector.model.require_threshold(), "float32")
        self._scale = ScoreScale(
            np.r_[inspector.known_scores, inspector.unknown_scores], threshold
        )
        with gradio.Column():
            self._seen, self._threshold = (
                gradio.State(None),
                gradio.State(threshold),
            )
            self._verdict = gradio.HTML(
                "<p>Give an image.</p>", elem_id="answer"
            )
            self._slider = gradio.Slider(
                0,
                _STEPS,
                value=_STEPS * float(self._scale.place(np.median(threshold))),
                step=1,
                label="Threshold: how far from all classes is unknown",
                elem_id="threshold",
                buttons=[],
            )
            self._nearest = gradio.HTML(elem_id="nearest")
            with gradio.Row():
                self._image = gradio.Image(
                    label="What the model sees",
                    interactive=False,
                    buttons=[],
                    format="png",
                    height=180,
                    elem_id="seen",
                )
                self._neighbours = gradio.Gallery(
                    label="Most similar training images",
                    columns=3,
                    height="auto",
                    scale=2,
                    allow_preview=False,
                    buttons=[],
                    format="png",
                    visible=inspector.dataset is not None,
                    elem_id="neighbours",
                )

    def follow(self, sources):
        """Answers what comes from the sources, and follows the slider."""
        outputs = [
            self._seen,
            self._verdict,
            self._slider,
            self._nearest,
            self._image,
            self._neighbours,
        ]
        for source in sources:
            source.event(
                self._answering(source),
                [self._threshold, *source.inputs],
                outputs,
                trigger_mode="always_last",
                show_progress="hidden",
            )
        self._slider.input(
            self._moved,
            [self._slider, self._seen, self._threshold],
            [self._threshold, self._verdict],
            trigger_mode="always_last",
            show_progress="hidden",
        )

    def _answering(self, source):
        if source.inputs:

            def answer(threshold, value):
                return self._answer(threshold, source.image_of, value)

            return answer

        # By the annotation, Gradio knows that it is to hand over the event.
        def answer_event(
            threshold: typing.Any,
            event: gradio.EventData,  # type: ignore[name-defined]
        ) -> tuple:
            return self._answer(threshold, source.image_of, event)

        return answer_event

    def _answer(self, threshold, image_of, value):
        try:
            seen = self._inspector.inspect(image_of(value))
        except (ValueError, OSError, SyntaxError) as error:
            # (SyntaxError: Pillow's, of damaged files.)
            text = f"<p>{html.escape(str(error))}</p>"
            return None, text, gradio.skip(), "", None, []
        place = self._scale.place(self._threshold_of(seen, threshold))
        return (
            seen,
            self._in_words(seen, threshold),
            _STEPS * float(place),
            self._nearest_classes(seen),
            shown(seen.image),
            self._training_images(seen),
        )

    def _moved(self, place, seen, threshold):
        """The threshold at a place of the slider, and the answer by it."""
        value = np.float32(self._scale.score(place / _STEPS))
        threshold = np.array(threshold)
        if threshold.ndim and seen is not None:
            threshold[seen.predicted_class_id] = value
        else:
            threshold[...] = value
        return threshold, "" if seen is None else self._in_words(
            seen, threshold
        )

    @staticmethod
    def _threshold_of(seen, threshold):
        return float(
            rule.threshold_of_rows(threshold, seen.scores.predicted_class_id)[0]
            if threshold.ndim
            else threshold
        )

    def _in_words(self, seen, threshold):
        decision = self._inspector.decide(seen, threshold)
        is_unknown = bool(decision.is_unknown[0])
        name = self._inspector.model.class_names[seen.predicted_class_id]
        limit = self._threshold_of(seen, threshold)
        kind = "rejected" if is_unknown else "accepted"
        sign = "above" if is_unknown else "not above"
        like = f" It is most like {name}." if is_unknown else ""
        said = (
            f"Its unknown score {seen.unknown_score:.4g} is {sign} the "
            f"threshold {limit:.4g}.{like}"
        )
        return (
            f'<p class="verdict {kind}">{html.escape(decision.label[0])}</p>'
            f"<p>{html.escape(said)}</p>{self._bar(seen, limit)}"
        )

    def _bar(self, seen, threshold):
        """SVG: scores of test images, threshold, and the score of the image."""
        place, limit = self._scale.place([seen.unknown_score, threshold])

        def ticks(scores, top, kind):
            lines = "".join(
                f"M{500 * x:.1f} {top}v10" for x in self._scale.place(scores)
            )
            return (
                f'<path class="{kind}" d="{lines}" stroke-width="0.5" '
                'opacity="0.6"/>'
            )

        inspector = self._inspector
        marks = ticks(inspector.known_scores, 8, "known")
        marks += ticks(inspector.unknown_scores, 20, "unknown")
        words = "dashed: threshold; diamond: this image"
        if inspector.dataset is not None:
            words += "; lines: test images, known above, unknown below"
        return (
            '<svg class="bar" viewBox="-6 0 512 38" role="img" '
            'aria-label="score and threshold">'
            f'{marks}<path d="M0 19h500" stroke="currentColor"/>'
            f'<path d="M{500 * limit:.1f} 2v34" stroke="currentColor" '
            'stroke-width="2" stroke-dasharray="4 2"/>'
            f'<path d="M{500 * place:.1f} 13l6 6l-6 6l-6 -6z" '
            f'fill="currentColor"/></svg><p class="small">{words}</p>'
        )

    def _nearest_classes(self, seen):
        names = self._inspector.model.class_names
        rows = "".join(
            f"<tr><td>{html.escape(names[i])}</td><td>{distance:.3g}</td></tr>"
            for i, distance in seen.nearest_classes()
        )
        return (
            '<table class="nearest"><tr><th>nearest classes</th>'
            f"<th>distance to their centers</th></tr>{rows}</table>"
        )

    def _training_images(self, seen):
        training = self._inspector.training
        if training is None:
            return []
        chosen = training.take(seen.neighbours)
        names = self._inspector.model.class_names
        captions = [
            f"{names[label]}, {similarity:.2f}"
            for label, similarity in zip(
                chosen.labels, seen.similarities, strict=True
            )
        ]
        return _captioned(chosen.images[:], captions)


def _captioned(images, captions):
    return [
        (shown(image), caption)
        for image, caption in zip(images, captions, strict=True)
    ]


def shown(image):
    """An image as a picture that is large enough to be seen.

    Args:
        image: (H, W, C) array of values 0...255.

    Returns:
        `PIL.Image.Image`.

    Example:

    >>> shown(np.zeros((8, 8, 1), "uint8")).size
    (128, 128)
    """
    pixels = np.rint(np.asarray(image)).astype("uint8")
    picture = PIL.Image.fromarray(
        pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels
    )
    factor = -(-_SMALLEST_SHOWN // max(picture.size))
    size = tuple(factor * side for side in picture.size)
    return picture.resize(size, PIL.Image.Resampling.NEAREST)
