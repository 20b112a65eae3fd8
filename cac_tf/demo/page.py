# SPDX-License-Identifier: Apache-2.0
"""The page: what one puts in, and what the classifier says of it."""

from __future__ import annotations

import dataclasses
import html
import importlib.resources
import os
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import lazy
from cac_tf.demo.drawing import image_of_drawing
from cac_tf.demo.drawing import ink_of_strokes
from cac_tf.demo.drawing import takes_drawings
from cac_tf.demo.inspection import evenly_spread
from cac_tf.demo.own_origin import OwnOrigin
from cac_tf.demo.photo import check_takes_photos
from cac_tf.demo.photo import image_of_photo
from cac_tf.demo.picture import shown
from cac_tf.demo.rejected import RejectedTab
from cac_tf.demo.session import Session

if TYPE_CHECKING:
    from cac_tf.demo.inspection import Inspector

gradio = lazy.module("gradio", extra="demo")
middleware = lazy.module("starlette.middleware", extra="demo")

_NUM_EXAMPLES = 10
# Of an upload, in bytes.
_LARGEST_FILE = 1 << 26
_STEPS = 1000
_CANVAS = """
<canvas width="320" height="320" aria-label="canvas to draw on"></canvas>
<button type="button">Clear</button>
"""


def build_page(
    inspector: Inspector,
    title: str,
    notes: Sequence[str] = (),
    save_beside: str | None = None,
) -> Any:
    """The page of a classifier.

    Args:
        inspector: `Inspector`.
        title: heading of the page.
        notes: sentences below it.
        save_beside: path of the model's file, if whoever sees the page may
            write new versions of the model to files beside it.

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
        session = gradio.State(Session.of(inspector))
        with gradio.Tab("Classify images"), gradio.Row():
            with gradio.Column():
                sources = _inputs(inspector, shape)
            answers = _Answers(inspector)
        answers.follow(sources, session)
        RejectedTab(inspector, save_beside).follow(
            session, answers.outputs, answers.of_session
        )
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
        text += (
            f" Unknown classes in its test data: {unknown}." if unknown else ""
        )
    return text


class _Source:
    """A component, its event, and how its value becomes images.

    Args:
        event: of the component.
        inputs: components whose values there are; none: those of the event.
        images_of: from the value to images by what tells them apart.
    """

    def __init__(self, event, inputs, images_of):
        self.event, self.inputs, self.images_of = event, inputs, images_of


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
            ink = ink_of_strokes(event.strokes)
            # A drawing stays the same one with more strokes.
            key = ("drawing", str(event.strokes[0]))
            return {key: image_of_drawing(ink, shape[0])}

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
        several = gradio.File(
            label="Or several photos",
            file_count="multiple",
            height=160,
            elem_id="photos",
        )
    # Gradio would open the file, and say nothing of one that it does not.
    photo.preprocess = lambda file: None if file is None else [file.path]

    def images_of_files(paths):
        return _images_of_files(paths, inspector.model.inputs_taken)

    sources += [
        _Source(photo.input, [photo], images_of_files),
        _Source(several.upload, [several], images_of_files),
    ]
    if inspector.dataset is None:
        gradio.Markdown(
            "The data of the run are not available, so no examples are shown."
        )
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
        sources.append(_Source(gallery.select, [], _image_at(examples, kind)))
    return sources


def _examples(dataset):
    """Kind, `Examples` and class names of the test images to choose from."""
    for kind, examples, names in (
        ("known", dataset.known_test, dataset.class_names),
        ("unknown", dataset.unknown_test, dataset.unknown_class_names),
    ):
        yield kind, evenly_spread(examples, _NUM_EXAMPLES), names


def _image_at(examples, kind):
    def images_of(event):
        image = examples.images[event.index : event.index + 1][0]
        return {(kind, event.index): np.asarray(image)}

    return images_of


def file_text(name):
    """The text of a file that is part of the page."""
    folder = importlib.resources.files("cac_tf.demo")
    return (folder / name).read_text(encoding="utf-8")


def _images_of_files(paths, taken):
    images = {}
    for path in paths or []:
        try:
            images[path] = image_of_photo(
                path, taken.fixed_shape, taken.interpolation
            )
        except (ValueError, OSError) as error:
            if len(paths) == 1:
                raise ValueError(str(error)) from error
            raise ValueError(
                f"{os.path.basename(path)}: {error}. None of the {len(paths)} "
                "files was used."
            ) from error
    return images


class _Answers:
    """The part of the page with the answer, and what moves in it."""

    def __init__(self, inspector):
        with gradio.Column():
            self._verdict = gradio.HTML(
                "<p>No image yet.</p>", elem_id="answer"
            )
            self._slider = gradio.Slider(
                0,
                _STEPS,
                value=_place_of_threshold(Session.of(inspector)),
                step=1,
                label="Threshold: distance beyond which an image is unknown",
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

        self.outputs = [
            self._verdict,
            self._slider,
            self._nearest,
            self._image,
            self._neighbours,
        ]

    def follow(self, sources, session):
        """Answers what comes from the sources, and follows the slider."""
        # One event at a time: each goes on from what the one before left.
        settings = {
            "trigger_mode": "always_last",
            "show_progress": "hidden",
            "concurrency_id": "session",
        }
        for source in sources:
            source.event(
                self._answering(source),
                [session, *source.inputs],
                [session, *self.outputs],
                **settings,
            )
        self._slider.input(
            self._moved,
            [session, self._slider],
            [session, self._verdict],
            **settings,
        )

    def _answering(self, source):
        if source.inputs:

            def answer(session, value):
                return self._answer(session, source.images_of, value)

            return answer

        # By the annotation, Gradio knows that it is to hand over the event.
        def answer_event(
            session: typing.Any,
            event: gradio.EventData,  # type: ignore[name-defined]
        ) -> tuple:
            return self._answer(session, source.images_of, event)

        return answer_event

    def _answer(self, session, images_of, value):
        try:
            images = images_of(value)
            session = session.with_inputs(images)
        except (ValueError, OSError) as error:
            session = dataclasses.replace(session, shown=None)
            _, *rest = self.of_session(session)
            return session, f"<p>{html.escape(str(error))}</p>", *rest
        said = ""
        if len(images) > 1:
            count = len(images.keys() & session.rejected().keys())
            said = (
                f"<p>{len(images)} images; the model rejects {count} of them. "
                "The last one:</p>"
            )
        verdict, *rest = self.of_session(session)
        return session, said + verdict, *rest

    def of_session(self, session):
        """Values of the outputs."""
        seen, place = session.seen, _place_of_threshold(session)
        if seen is None:
            return "<p>No image yet.</p>", place, "", None, []
        return (
            self._in_words(session),
            place,
            self._nearest_classes(session),
            shown(seen.image),
            self._training_images(session),
        )

    def _moved(self, session, place):
        """The threshold at a place of the slider, and the answer by it."""
        value = np.float32(session.inspector.scale.score(place / _STEPS))
        threshold = np.array(session.threshold)
        if threshold.ndim and session.seen is not None:
            threshold[session.seen.predicted_class_id] = value
        else:
            threshold[...] = value
        session = dataclasses.replace(session, threshold=threshold)
        if session.seen is None:
            return session, "<p>No image yet.</p>"
        return session, self._in_words(session)

    def _in_words(self, session):
        seen, inspector = session.seen, session.inspector
        decision = inspector.decide(seen, session.threshold)
        is_unknown = bool(decision.is_unknown[0])
        name = inspector.model.class_names[seen.predicted_class_id]
        limit = _threshold_of(session)
        kind = "rejected" if is_unknown else "accepted"
        sign = "above" if is_unknown else "not above"
        like = f" The most similar class is {name}." if is_unknown else ""
        said = (
            f"The unknown score {seen.unknown_score:.4g} is {sign} the "
            f"threshold {limit:.4g}.{like}"
        )
        return (
            f'<p class="verdict {kind}">{html.escape(decision.label[0])}</p>'
            f"<p>{html.escape(said)}</p>{self._bar(session)}"
        )

    def _bar(self, session):
        """SVG: scores of test images, threshold, and the score of the image."""
        inspector = session.inspector
        place, limit = inspector.scale.place(
            [session.seen.unknown_score, _threshold_of(session)]
        )

        def ticks(scores, top, kind):
            lines = "".join(
                f"M{500 * x:.1f} {top}v10"
                for x in inspector.scale.place(scores)
            )
            return (
                f'<path class="{kind}" d="{lines}" stroke-width="0.5" '
                'opacity="0.6"/>'
            )

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

    @staticmethod
    def _nearest_classes(session):
        names = session.inspector.model.class_names
        rows = "".join(
            f"<tr><td>{html.escape(names[i])}</td><td>{distance:.3g}</td></tr>"
            for i, distance in session.seen.nearest_classes()
        )
        return (
            '<table class="nearest"><tr><th>nearest '
            f"classes</th><th>distance to center</th></tr>{rows}</table>"
        )

    @staticmethod
    def _training_images(session):
        seen, training = session.seen, session.inspector.training
        if training is None:
            return []
        chosen = training.take(seen.neighbours)
        names = session.inspector.model.class_names
        captions = [
            f"{names[label]}, {similarity:.2f}"
            for label, similarity in zip(
                chosen.labels, seen.similarities, strict=True
            )
        ]
        return _captioned(chosen.images[:], captions)


def _threshold_of(session):
    """That of the predicted class of what is shown."""
    seen, threshold = session.seen, session.threshold
    if not threshold.ndim:
        return float(threshold)
    if seen is None:
        return float(np.median(threshold))
    return float(threshold[seen.predicted_class_id])


def _place_of_threshold(session):
    scale = session.inspector.scale
    return _STEPS * float(scale.place(_threshold_of(session)))


def _captioned(images, captions):
    return [
        (shown(image), caption)
        for image, caption in zip(images, captions, strict=True)
    ]
