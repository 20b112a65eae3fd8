# SPDX-License-Identifier: Apache-2.0
"""What all binaries share: how they start, how they fail, their flags."""

import dataclasses
import functools
import itertools
import os
import re
import signal
import sys
import traceback

from absl import app
from absl import flags
from absl import logging as absl_logging

from cac_tf import methods
from cac_tf import options
from cac_tf import scores
from cac_tf.data import DataOptions
from cac_tf.data import sources as data_sources
from cac_tf.experiments.config import ALL
from cac_tf.registry import did_you_mean
from cac_tf.train import flag_kinds
from cac_tf.train import help_pages
from cac_tf.train import quiet
from cac_tf.train import terminal
from cac_tf.version import __version__


def run(
    define_flags,
    main,
    doc,
    when_interrupted="",
    takes_inputs=False,
    first=None,
):
    """Runs a binary: parses the command line and turns errors into messages.

    Exits with 0 after success, `--help` and `--version`, with 2 if what was
    asked for is impossible as it stands, with 1 if it failed.

    Args:
        define_flags: takes `absl.flags.FlagValues` and defines the flags.
        main: takes the parsed flags.
        doc: the first text of `--help`.
        when_interrupted: the message after Ctrl-C.
        takes_inputs: whether `main` also takes the arguments that are no
            flags, as a list. It returns the exit status then.
        first: names of the flags that `--help` shows first, where there are
            many.
    """
    program = os.path.basename(sys.argv[0]).removesuffix(".py")
    try:
        try:
            if sys.argv[1:] == ["--version"]:
                print(f"{program} of cac_tf {__version__}")
            else:
                _run(program, define_flags, main, doc, takes_inputs, first)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted. {when_interrupted}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Who read the output has gone, as `head` does. Python would complain
        # when it flushes at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _run(program, define_flags, main, doc, takes_inputs, first):
    values = flags.FLAGS
    define_flags(values)
    help_pages.define_help(values)
    # For --helpfull.
    sys.modules["__main__"].__doc__ = doc
    quiet.say_little()

    def parse(argv):
        problem, rest = None, []
        try:
            rest = values(["--help" if x == "-h" else x for x in argv])
        except flags.Error as error:
            problem = error
        except SystemExit:
            # absl ends with 1 after --helpfull.
            sys.exit(0)
        page = help_pages.asked_for(values, doc, first)
        if page is not None:
            print(page)
            sys.exit(0)
        if problem is not None:
            _fail(program, _of_absl(problem, set(values)), status=2)
        return rest

    # Names of files may hold bytes that are no UTF-8.
    sys.stdout.reconfigure(errors="backslashreplace")

    def main_with_messages(argv):
        if len(argv) > 1 and not takes_inputs:
            _fail(program, f"unexpected argument {argv[1]!r}", status=2)
        try:
            if takes_inputs:
                return main(values, argv[1:])
            main(values)
        except (KeyboardInterrupt, BrokenPipeError):
            raise
        except Exception as error:
            # With --verbosity=1, the whole traceback.
            absl_logging.debug("", exc_info=True)
            message = str(error) or type(error).__name__
            status = 2 if _is_of_arguments(error) else 1
            _fail(program, _with_flags(message, set(values)), status)

    app.run(main_with_messages, flags_parser=parse)


def _fail(program, message, status):
    lines = f"{program}: error: {message}".splitlines()
    if status == 2:
        lines.append(f"Run {program} --help=all for a list of all flags.")
    terminal.say(*lines, file=sys.stderr)
    sys.exit(status)


def _is_of_arguments(error):
    """Whether our own code refuses what it was given."""
    if not isinstance(error, (ValueError, FileExistsError)):
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = frame.f_globals.get("__name__", "")
    return name == "__main__" or name.split(".")[0] == "cac_tf"


def _of_absl(error, names):
    """The message of an error that absl found in the command line."""
    if isinstance(error, flags.UnrecognizedFlagError):
        name = error.flagname
        return f"unknown flag --{name}{did_you_mean(name, names)}"
    required = re.findall(r"flag (--\w+)=None: ", str(error))
    if required:
        return f"{' and '.join(required)} must be given."
    return in_words(re.sub(r"^flag (?=--)", "", str(error), flags=re.MULTILINE))


def in_words(message):
    """What a parser of absl says of a value, as a sentence.

    Example:

    >>> in_words("--tta=x: value should be one of <flip|no>")
    "--tta=x: unknown value 'x'. Available: flip, no."
    >>> in_words("--epochs=x: invalid literal for int() with base 10: 'x'")
    '--epochs=x: it must be a whole number.'
    """
    choice = re.fullmatch(r"(.*=(.*)): value should be one of <(.*)>", message)
    if choice:
        given, allowed = choice[2].split(","), choice[3].split("|")
        wrong = next(one for one in given if one not in allowed)
        hint = did_you_mean(wrong, allowed)
        names = ", ".join(allowed)
        return f"{choice[1]}: unknown value {wrong!r}{hint} Available: {names}."
    for of_python, ours in (
        ("invalid literal for int", "it must be a whole number."),
        ("could not convert string to float", "it must be a number."),
    ):
        message = re.sub(rf": {of_python}.*", f": {ours}", message)
    return message


def _with_flags(message, names):
    """A message of the library, with its arguments written as flags.

    Example:

    >>> _with_flags("Pass overwrite=True, or leave trial=3 out.",
    ...     {"overwrite", "trial"})
    'Pass --overwrite, or leave --trial=3 out.'
    >>> _with_flags("epochs must be at least 1; got 0.", {"epochs"})
    '--epochs must be at least 1; got 0.'
    >>> _with_flags("runs/cac,trial=3 is no folder.", {"trial"})
    'runs/cac,trial=3 is no folder.'
    """

    def flag(match):
        name, is_true = match.groups()
        if name not in names:
            return match.group(0)
        return f"--{name}" if is_true else f"--{name}="

    message = re.sub(r"(?<![\w/,.-])([a-z_]+)=(True\b)?", flag, message)
    subject = re.match(r"([a-z_]+) must ", message)
    is_flag = subject is not None and subject.group(1) in names
    return f"--{message}" if is_flag else message


def define_options(values, cls, group, **texts):
    """One flag for each option of a class, which checks their values.

    Args:
        values: `absl.flags.FlagValues`.
        cls: of `options.Options`.
        group: that of the flags whose options name none.
        **texts: helps, by name, in the place of the options' own.
    """
    for one in options.fields_of(cls):
        text = texts.get(one.name, one.metadata["help"])
        default = None if one.default is dataclasses.MISSING else one.default
        kind, choices = one.metadata["kind"], options.choices_of(one)
        own_group = one.metadata.get("group", group)
        _define(values, one.name, kind, default, choices, text, own_group)


# By the kind of an option, which checks its values itself.
_DEFINE = {
    bool: flag_kinds.define_switch,
    int: flag_kinds.define_whole_number,
    float: flag_kinds.define_any_number,
    str: flag_kinds.define_any_text,
    os.PathLike: flag_kinds.define_any_text,
    tuple: functools.partial(flag_kinds.define_texts, are_names=True),
}


def _define(values, name, kind, default, choices, text, group):
    if choices is None:
        _DEFINE[kind](values, name, default, text, group)
    elif kind is tuple:
        flag_kinds.define_choices(values, name, default, choices, text, group)
    else:
        flag_kinds.define_choice(values, name, default, choices, text, group)


def given_options(values, cls):
    """The options of a class that were given as flags, as a dict."""
    return {
        one.name: values[one.name].value
        for one in options.fields_of(cls)
        if values[one.name].present
    }


def define_data_flags(values):
    """One flag for each field of `DataOptions`."""
    text = f"The data: {data_sources.what_is_taken()}."
    define_options(values, DataOptions, "data", dataset=text)


DATA_FLAGS = tuple(one.name for one in dataclasses.fields(DataOptions))


def data_settings(values):
    """The data flags that were given, as a dict of fields of `DataOptions`."""
    return given_options(values, DataOptions)


def define_model_flag(values):
    """The flag `--model`."""
    flag_kinds.define_text(
        values,
        "model",
        None,
        "The .keras file, or the folder of the run that it is in.",
        required=True,
    )


def model_file(values):
    """Path of the file that `--model` names."""
    path = values.model
    if os.path.isdir(path):
        path = os.path.join(path, "model.keras")
        what = "is a folder without model.keras, so it is not a finished run."
    else:
        what = "not found."
    if os.path.isfile(path):
        return path
    raise ValueError(f"--model={values.model}: {what}")


def define_recipe_flags(values):
    """One flag for each field of all methods' recipes, without a default.

    To be called when all other flags are defined.

    Raises:
        ValueError: a field is called like one of them.
    """
    for name, found in recipe_fields().items():
        methods_of, fields = zip(*found, strict=True)
        if name in values:
            raise ValueError(
                f"The recipe of the method {methods_of[0]!r} has a field "
                f"{name!r}, which is already a setting of every experiment. "
                "Choose another name."
            )
        text = fields[0].metadata.get("help", name)
        group = fields[0].metadata.get("group", "training")
        if len(found) < len(methods.names()):
            several = "s" if len(found) > 1 else ""
            text += f" Only for the method{several} {', '.join(methods_of)}."
            group = help_pages.OF_A_METHOD
        if name != "preset":
            text += " Default: set by the preset."
        choices = [options.choices_of(field) or () for field in fields]
        allowed = list(dict.fromkeys(itertools.chain(*choices)))
        kinds = {type(field.default) for field in fields}
        # Each method's recipe checks its own limits.
        kind = float if kinds == {int, float} else min(kinds, key=str)
        allowed = allowed if all(choices) else None
        _define(values, name, kind, None, allowed, text, group)


def recipe_fields():
    """Fields of all methods' recipes by name: pairs of method and field."""
    found = {}
    for name in methods.names():
        for field in dataclasses.fields(methods.get(name).recipe):
            found.setdefault(field.name, []).append((name, field))
    return found


def given_recipe(values):
    """The recipe's fields that flags set, as a dict."""
    return {
        name: values[name].value
        for name in recipe_fields()
        if values[name].value is not None
    }


def define_scores_flag(values, default):
    """The flag `--scores`."""
    flag_kinds.define_choices(
        values,
        "scores",
        None,
        (ALL, *scores.names()),
        f"Scores to compare on the test data. {default}",
    )
