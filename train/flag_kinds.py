# SPDX-License-Identifier: Apache-2.0
"""The kinds of flags that the binaries have, each with a uniform help.

The group of a flag is what absl calls its module, by which it orders what it
lists: so no list has the path of a file. See `help_pages`.
"""

import math

from absl import flags

# Of the flags that name no group.
RUN = "run"


def define_text(values, name, default, help, group=RUN, required=False):
    """A flag for a text; absl would take an empty one, as of an unset variable.

    Args:
        values: `absl.flags.FlagValues`.
        name, default: of the flag.
        help: sentences. The default is added unless they say it.
        group: the group that the flag is listed in.
        required: whether the flag must be given.
    """
    define_any_text(values, name, default, help, group, required)
    flags.register_validator(
        name, lambda text: text != "", "it must not be empty.", values
    )


def define_any_text(values, name, default, help, group=RUN, required=False):
    """A flag for a text, which may be empty."""
    help = _help(help, default, required=required)
    flags.DEFINE_string(
        name, default, help, values, required, module_name=group
    )


def define_number(values, name, default, help, group=RUN):
    """A flag for a finite number; absl takes NaN."""
    define_any_number(values, name, default, help, group)
    flags.register_validator(
        name,
        lambda number: number is None or math.isfinite(number),
        "it must be a finite number.",
        values,
    )


def define_any_number(values, name, default, help, group=RUN):
    """A flag for a number, which may be NaN."""
    help = _help(help, default)
    flags.DEFINE_float(
        name, default, help, flag_values=values, module_name=group
    )


def define_whole_number(values, name, default, help, group=RUN, **limits):
    """A flag for a whole number, with a `lower_bound` and an `upper_bound`."""
    flags.DEFINE_integer(
        name,
        default,
        _help(help, default),
        flag_values=values,
        module_name=group,
        **limits,
    )


def define_switch(values, name, default, help, group=RUN):
    """A flag that is given as --name or --noname."""
    flags.DEFINE_bool(
        name, default, _help(help, default), values, module_name=group
    )


def define_texts(values, name, default, help, group=RUN, are_names=False):
    """A flag for some texts, by commas, which may be in a name as well."""
    shown = None if default is None else ",".join(default)
    form = 'Separated by commas; "a, b",c are two names.' if are_names else ""
    help = _help(help, shown, form)
    flags.DEFINE_list(name, default, help, values, module_name=group)


def define_repeated(values, name, help, group=RUN):
    """A flag for a text that may be given several times; a list."""
    flags.DEFINE_multi_string(name, [], help, values, module_name=group)
    # absl adds an ending of its own.
    values[name].help = f"{help} May be repeated."


def define_choice(values, name, default, choices, help, group=RUN):
    """A flag for one of some texts."""
    flags.DEFINE_enum(
        name, default, choices, help, flag_values=values, module_name=group
    )
    # absl writes them as one long word, which it breaks anywhere.
    choices = f"One of: {', '.join(choices)}."
    values[name].help = _help(help, default, choices)


def define_choices(values, name, default, choices, help, group=RUN):
    """A flag for some texts, by commas; absl's must be repeated for each."""
    shown = None if default is None else ",".join(default)
    flags.DEFINE(
        _Choices(choices),
        name,
        default,
        _help(help, shown, f"Any of: {', '.join(choices)}."),
        flag_values=values,
        serializer=flags.CsvListSerializer(","),
        module_name=group,
    )


class _Choices(flags.ListParser):
    def __init__(self, choices):
        super().__init__()
        self.choice = flags.EnumParser(choices)

    def parse(self, argument):
        return [self.choice.parse(one) for one in super().parse(argument)]


def _help(text, default, choices="", required=False):
    """What a flag is, what it may be, what it is by default; in this order."""
    text, marker, said = text.partition(" Default: ")
    if choices and marker:
        return f"{text} {choices}{marker}{said}"
    parts = [text + marker + said, choices]
    if required:
        parts.append("Required.")
    elif not marker and default is not False and default not in (None, ""):
        parts.append(f"Default: {default}.")
    return " ".join(filter(None, parts))
