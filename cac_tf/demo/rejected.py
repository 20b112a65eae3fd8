# SPDX-License-Identifier: Apache-2.0
"""The tab of the page where rejected inputs become classes."""

from __future__ import annotations

import html
import os

from cac_tf import lazy
from cac_tf import open_world
from cac_tf.counted import counted
from cac_tf.demo.picture import shown
from cac_tf.reporting.page import png

gradio = lazy.module("gradio", extra="demo")

# Pictures of a group; pixels of their longer sides.
_MOST_SHOWN, _SIDE = 12, 64


class RejectedTab:
    """Groups of what was rejected, a name for one, and the way back.

    Args:
        inspector: `Inspector` that the page begins with.
        save_beside: path of the model's file, beside which visitors may write
            their versions; None: they may not.
    """

    def __init__(self, inspector, save_beside=None):
        self._save_beside = save_beside
        why_not = _why_not(inspector.model)
        self._tab = gradio.Tab("Rejected images", elem_id="rejected")
        with self._tab:
            self._version = gradio.HTML(elem_id="version")
            self._groups = gradio.HTML(elem_id="groups")
            self._group = gradio.Radio([], label="Group", elem_id="group")
            self._name = gradio.Textbox(
                label="Name of the new class",
                max_lines=1,
                max_length=100,
                elem_id="name",
            )
            with gradio.Row():
                self._enroll = gradio.Button(
                    "Enroll",
                    interactive=why_not is None,
                    elem_id="enroll",
                )
                self._undo = gradio.Button("Undo", elem_id="undo")
                self._save = gradio.Button(
                    "Save next to the model file",
                    visible=save_beside is not None,
                    elem_id="save",
                )
            self._said = gradio.HTML(_paragraph(why_not), elem_id="said")
            gradio.Markdown(
                "Nothing is retrained and the model file is not changed: "
                "reloading the page starts over. Other visitors do not see "
                "the classes you enroll."
            )

    def follow(self, session, others, values_of_others):
        """Groups when the tab is opened, enrolls and undoes.

        Args:
            session: `gradio.State` of a `Session`.
            others: components that a new version changes, too.
            values_of_others: from a session to their values.
        """
        own = [self._version, self._groups, self._group, self._said]
        settings = {"show_progress": "hidden", "concurrency_id": "session"}

        def opened(session):
            session = session.grouped()
            return session, *_values(session)[:-1]

        def enrolled(session, name, number):
            try:
                after = session.enrolled(name or "", number)
            except ValueError as error:
                return unchanged(session, error)
            return answered(after, _what_changed(session, after, name.strip()))

        def undone(session):
            try:
                after = session.undone()
            except ValueError as error:
                return unchanged(session, error)
            return answered(after, "Undone.")

        def answered(session, said):
            values = values_of_others(session)
            return session, *values, *_values(session, said)

        def unchanged(session, error):
            skipped = [gradio.skip()] * (len(others) + len(own) - 1)
            return session, *skipped, _paragraph(str(error))

        outputs = [session, *others, *own]
        self._tab.select(opened, session, [session, *own[:-1]], **settings)
        self._enroll.click(
            enrolled,
            [session, self._name, self._group],
            outputs,
            show_progress="minimal",
            show_progress_on=self._group,
            concurrency_id="session",
        )
        self._undo.click(undone, session, outputs, **settings)
        self._save.click(self._saved, session, self._said, **settings)

    def _saved(self, session):
        """Writes the newest version; says where, or why not."""
        if self._save_beside is None or len(session.versions) == 1:
            return _paragraph("There is no new version to save.")
        model = session.inspector.model
        stem, ending = os.path.splitext(self._save_beside)
        path = f"{stem}-version{model.version}{ending}"
        try:
            model.save(path, overwrite=False)
        except FileExistsError:
            return _paragraph(f"{path} already exists and was not overwritten.")
        except OSError as error:
            return _paragraph(f"{path} cannot be written: {error.strerror}.")
        return _paragraph(f"Version {model.version} was saved to {path}.")


def _why_not(model):
    """Why no class can be enrolled, or None."""
    # (Where there is an enrolled one, another can be, too.)
    if not model.enrolled_classes:
        try:
            model.score.require_enrolling()
        except ValueError as error:
            return str(error)
    return None


def _values(session, said=""):
    """Values of the components of the tab."""
    choices = [(str(i + 1), i) for i in range(len(session.groups))]
    chosen = 0 if choices else None
    return (
        _paragraph(_version(session)),
        _table(session),
        gradio.update(choices=choices, value=chosen),
        _paragraph(said),
    )


def _version(session):
    model = session.inspector.model
    enrolled = ", ".join(
        f"{name} ({counted(count, 'input')})"
        for name, count in model.enrolled_classes.items()
    )
    return f"Version {model.version} of the model. Enrolled: " + (
        f"{enrolled}." if enrolled else "nothing."
    )


def _what_changed(before, after, name):
    entry = after.inspector.model.journal[-1]["classes"][name]
    said = (
        f"{name} is enrolled. Judged by the others alone, "
        f"{entry['recognized']} of its {entry['examples']} inputs would be "
        "recognized."
    )
    for kind, outputs in after.inspector.test_outputs.items():
        changed = open_world.changed_decisions(
            before.inspector.model, after.inspector.model, outputs
        )
        said += f" Of the {kind} test images, {changed.in_words()}."
    return said


def _of_group(group):
    return (
        f"{counted(len(group.inputs), 'input')}, {group.nearest_share:.0%} of "
        f"them most similar to {group.nearest_class}"
    )


def _table(session):
    """The groups, with pictures."""
    rows = [
        (f"{number + 1}: {_of_group(group)}", group.inputs)
        for number, group in enumerate(session.groups)
    ]
    if session.ungrouped:
        rows.append(
            (f"Not in any group: {len(session.ungrouped)}", session.ungrouped)
        )
    if not rows:
        return _paragraph("Nothing has been rejected yet.")
    body = "".join(
        f'<tr><th scope="row">{html.escape(text)}</th>'
        f"<td>{_pictures(inputs)}</td></tr>"
        for text, inputs in rows
    )
    return f"<table>{body}</table>"


def _pictures(inputs):
    found = []
    for one in inputs[:_MOST_SHOWN]:
        picture = shown(one.image)
        picture.thumbnail((_SIDE, _SIDE))
        found.append(f'<img alt="" src="{png(picture)}">')
    return "".join(found)


def _paragraph(text):
    return f"<p>{html.escape(text)}</p>" if text else ""
