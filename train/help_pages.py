# SPDX-License-Identifier: Apache-2.0
"""What `--help` of the binaries says: first what every run needs.

A flag belongs to the group that `flag_kinds` gave it. `--help` shows the flags
that a binary names as the first, and says which groups there are; `--help=all`
and `--help=GROUP` show the others, and `--method=NAME --help` those that only
this method has.
"""

import dataclasses
import re
import textwrap

from absl import app
from absl import flags

from cac_tf import methods

# The groups, in the order in which they are listed.
OF_A_METHOD = "method"
_GROUPS = {
    "data": "the data and which classes are known",
    "network": "the network that is trained",
    "training": "how it is trained",
    "score": "the unknown score and the threshold",
    "run": "files, devices and processes",
    OF_A_METHOD: "flags of individual methods",
}
_ALL = "all"
# What absl gives a switch that stands alone.
_ALONE = "true"


def define_help(values):
    """The flags `--help` and `--helpshort`, in the place of absl's.

    To be called when the binary's flags are defined.
    """
    # Those that are not replaced here, such as --helpfull.
    app.define_help_flags()
    parser = _PageParser([_ALL, *groups(values)])
    for name, short_name in (("help", "?"), ("helpshort", None)):
        flag = flags.Flag(
            parser,
            None,
            name,
            None,
            "Show the most common flags; =all: all flags; =GROUP: the flags "
            "of a group.",
            short_name=short_name,
            boolean=True,
            allow_override=True,
        )
        flags.DEFINE_flag(flag, values, module_name="absl.app")


class _PageParser(flags.EnumParser):
    """Takes the name of a page, or none."""

    def parse(self, argument):
        return argument if argument == _ALONE else super().parse(argument)


def groups(values):
    """Names of the groups that a binary has flags of, in their order."""
    found = values.flags_by_module_dict()
    return [name for name in _GROUPS if name in found]


def asked_for(values, doc, first):
    """The page that the parsed flags ask for, or None.

    Args:
        values: `absl.flags.FlagValues`; not all of them need to be right.
        doc: what the binary does.
        first: names of the flags that most runs need; None for all of them.
    """
    page = values["help"].value or values["helpshort"].value
    if page is None:
        return None
    by_group = values.flags_by_module_dict()
    if page == _ALONE and first is not None:
        shown = [values[name] for name in first]
        lines = [
            doc.strip(),
            "",
            "Most common flags:",
            *_entries(values, shown),
        ]
        if "method" in values and values["method"].present:
            lines += _of_method(values, by_group[OF_A_METHOD])
        lines += ["", "More:", *_contents(by_group)]
    elif page in by_group:
        lines = [_title(page), *_entries(values, by_group[page])]
    else:
        lines, names = [doc.strip()], groups(values)
        for name in names:
            title = _title(name) if len(names) > 1 else "Flags:"
            lines += ["", title, *_entries(values, by_group[name])]
    return "\n".join(lines)


def _title(group):
    return f"{group.capitalize()} ({_GROUPS[group]}):"


def _of_method(values, own):
    method = values.method
    fields = dataclasses.fields(methods.get(method).recipe)
    names = {field.name for field in fields}
    shown = [flag for flag in own if flag.name in names]
    if not shown:
        return ["", f"The method {method} has no flags of its own."]
    return ["", f"Flags of the method {method}:", *_entries(values, shown)]


def _contents(by_group):
    rows = {
        f"--help={name}": f"{text} ({len(by_group[name])} flags)"
        for name, text in _GROUPS.items()
        if name in by_group
    }
    if OF_A_METHOD in by_group:
        rows["--method=NAME --help"] = "flags of this method"
    rows["--help=all"] = "all flags"
    width = max(map(len, rows))
    for what, text in rows.items():
        yield f"  {what:{width}}  {text}"


def _entries(values, shown):
    for flag in shown:
        yield f"  {_written(flag)}"
        yield textwrap.fill(
            with_flags(flag.help, values),
            78,
            initial_indent=" " * 6,
            subsequent_indent=" " * 6,
            break_on_hyphens=False,
        )


def with_flags(text, names):
    """A text of the library, with its options written as flags.

    Only those of several words or with a value: one word may mean itself.

    Example:

    >>> with_flags("seed=3 is a seed. See data_dir.", {"data_dir", "seed"})
    '--seed=3 is a seed. See --data_dir.'
    """

    def flag(match):
        return f"--{match[0]}" if match[0] in names else match[0]

    several_words = r"[a-z]+(?:_[a-z]+)+(?!\w|[./]\w)"
    with_value = r"[a-z]+(?==)"
    return re.sub(rf"(?<![\w./-])(?:{several_words}|{with_value})", flag, text)


def _written(flag):
    """A flag as it stands on a command line.

    Example:

    >>> from absl import flags
    >>> values = flags.FlagValues()
    >>> flags.DEFINE_integer("epochs", 3, "", flag_values=values).name
    'epochs'
    >>> _written(values["epochs"])
    '--epochs=N'
    """
    if flag.boolean:
        return f"--[no]{flag.name}"
    for parser, value in (
        (flags.IntegerParser, "N"),
        (flags.FloatParser, "NUMBER"),
        (flags.EnumParser, "NAME"),
        (flags.ListParser, "VALUE,..."),
    ):
        if isinstance(flag.parser, parser):
            return f"--{flag.name}={value}"
    return f"--{flag.name}=VALUE"
