# SPDX-License-Identifier: Apache-2.0
"""Kinds of flags that absl lacks; whole numbers are its `DEFINE_integer`."""

import math

from absl import flags


def define_text(values, name, default, help):
    """A flag for a text; absl would take an empty one, as of an unset variable.

    Args:
        values: `absl.flags.FlagValues`.
        name, default, help: of the flag.
    """
    flags.DEFINE_string(name, default, help, flag_values=values)
    flags.register_validator(
        name, lambda text: text != "", "it must not be empty.", values
    )


def define_number(values, name, default, help):
    """A flag for a finite number; absl takes NaN."""
    flags.DEFINE_float(name, default, help, flag_values=values)
    flags.register_validator(
        name,
        lambda number: number is None or math.isfinite(number),
        "it must be a finite number.",
        values,
    )


def define_choice(values, name, default, choices, help):
    """A flag for one of some texts."""
    flags.DEFINE_enum(name, default, choices, help, flag_values=values)
    # absl writes them as one long word, which it breaks anywhere.
    values[name].help = f"{help} One of: {', '.join(choices)}."


def define_choices(values, name, default, choices, help):
    """A flag for some texts, by commas; absl's must be repeated for each."""
    flags.DEFINE(
        _Choices(choices),
        name,
        default,
        f"{help} Any of: {', '.join(choices)}.",
        flag_values=values,
        serializer=flags.CsvListSerializer(","),
    )


class _Choices(flags.ListParser):
    def __init__(self, choices):
        super().__init__()
        self.choice = flags.EnumParser(choices)

    def parse(self, argument):
        return [self.choice.parse(one) for one in super().parse(argument)]
