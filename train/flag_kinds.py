# SPDX-License-Identifier: Apache-2.0
"""Kinds of flags whose errors are sentences: numbers, texts, choices."""

import math
import os

from absl import flags

from cac_tf.registry import did_you_mean


class _Whole(flags.IntegerParser):
    def convert(self, argument):
        try:
            return super().convert(argument)
        except (TypeError, ValueError):
            raise ValueError("it must be a whole number.") from None

    def parse(self, argument):
        value = self.convert(argument)
        if self.is_outside_bounds(value):
            low = self.lower_bound
            upper = self.upper_bound
            limits = f"at least {low}" if upper is None else f"{low}...{upper}"
            raise ValueError(f"it must be {limits}.")
        return value


class _Number(flags.FloatParser):
    def __init__(self, above, below):
        super().__init__()
        self._above, self._below = above, below

    def convert(self, argument):
        try:
            value = super().convert(argument)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("it must be a finite number.")
        if self._above is not None and value <= self._above:
            raise ValueError(f"it must be above {self._above}.")
        if self._below is not None and value >= self._below:
            raise ValueError(f"it must be below {self._below}.")
        return value


class _Text(flags.ArgumentParser):
    syntactic_help = "a text"

    def parse(self, argument):
        if argument is not None and not argument:
            raise ValueError("it must not be empty.")
        return argument

    def flag_type(self):
        return "string"


class _Choice(flags.EnumParser):
    def parse(self, argument):
        if argument in self.enum_values:
            return argument
        hint = did_you_mean(argument, self.enum_values)
        raise ValueError(
            f"there is no {argument!r}{hint} There are: "
            f"{', '.join(self.enum_values)}."
        )


class _Choices(flags.ListParser):
    def __init__(self, choices):
        super().__init__()
        self._choice = _Choice(choices)

    def parse(self, argument):
        return [self._choice.parse(one) for one in super().parse(argument)]


def define_whole(values, name, default, help, *, at_least=None, at_most=None):
    """A flag for a whole number.

    Args:
        values: `absl.flags.FlagValues`.
        name, default, help: of the flag.
        at_least, at_most: limits.
    """
    _define(_Whole(at_least, at_most), values, name, default, help)


def define_number(values, name, default, help, *, above=None, below=None):
    """A flag for a finite number."""
    _define(_Number(above, below), values, name, default, help)


def define_text(values, name, default, help):
    """A flag for a text that is not empty."""
    _define(_Text(), values, name, default, help)


def define_choice(values, name, default, choices, help):
    """A flag for one of some texts."""
    text = f"{help} One of: {', '.join(choices)}."
    _define(_Choice(choices), values, name, default, text)


def define_choices(values, name, default, choices, help):
    """A flag for a list of some texts, separated by commas."""
    text = f"{help} Any of: {', '.join(choices)}."
    serializer = flags.CsvListSerializer(",")
    _define(_Choices(choices), values, name, default, text, serializer)


def _define_bool(values, name, default, help):
    flags.DEFINE_bool(name, default, help, flag_values=values)


def _define_texts(values, name, default, help):
    flags.DEFINE_list(name, default, help, flag_values=values)


def _define(parser, values, name, default, help, serializer=None):
    flags.DEFINE(
        parser,
        name,
        default,
        help,
        flag_values=values,
        serializer=serializer or flags.ArgumentSerializer(),
    )


# By the kind of an option.
DEFINE = {
    bool: _define_bool,
    int: define_whole,
    float: define_number,
    str: define_text,
    os.PathLike: define_text,
    tuple: _define_texts,
}
