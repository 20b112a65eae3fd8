# SPDX-License-Identifier: Apache-2.0
"""Rough use at random: kills, damaged and hostile files, flags, threads.

    python -m tests.robustness.fuzz --seconds=600 --seed=1
    python -m tests.robustness.fuzz --only=hostile_files --case=17

A case is made by the seed and its number alone, so that one that failed can be
repeated. It fails if it raises anything; each module beside this one says what
it tries and what it demands.
"""

import argparse
import collections
import importlib
import os
import pathlib
import sys
import tempfile
import time
import traceback
import typing

import numpy as np

# Each is a module with `prepare(folder)`, whose result every case gets, and
# `case(rng, folder, prepared)`, which returns what it tried, in a few words.
SUBJECTS = (
    "hostile_files",
    "random_flags",
    "damaged_artefacts",
    "concurrent_serving",
    "random_kills",
)


class Outcome(typing.NamedTuple):
    """What was tried of a subject, and what failed."""

    tried: collections.Counter
    failures: list


def fuzz(subject, seconds, seed=0, case=None, tell=print):
    """Tries cases of a subject until the time is over, but at least one.

    Args:
        subject: one of `SUBJECTS`.
        seconds: for cases; preparing comes in addition.
        seed: of all cases.
        case: number of the only case to try; None for all from 0.
        tell: called with a line for each failure.

    Returns:
        `Outcome`.
    """
    module = importlib.import_module(f"tests.robustness.{subject}")
    outcome = Outcome(collections.Counter(), [])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        root = pathlib.Path(root)
        (root / "prepared").mkdir()
        prepared = module.prepare(root / "prepared")
        end = time.monotonic() + seconds
        number = case or 0
        while True:
            folder = root / f"case{number}"
            folder.mkdir()
            rng = np.random.default_rng([seed, number])
            try:
                outcome.tried[module.case(rng, folder, prepared)] += 1
            except Exception:
                outcome.failures.append(
                    f"{subject} --seed={seed} --case={number}:\n"
                    f"{traceback.format_exc(limit=-4)}"
                )
                tell(outcome.failures[-1])
            number += 1
            if case is not None or time.monotonic() >= end:
                return outcome


def main():
    """Tries all subjects, says what was tried, exits 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SUBJECTS)
    parser.add_argument("--case", type=int, help="only this one")
    options = parser.parse_args()
    subjects = [options.only] if options.only else SUBJECTS
    num_failures = 0
    for subject in subjects:
        tried, failures = fuzz(
            subject,
            options.seconds / len(subjects),
            options.seed,
            options.case,
        )
        num_failures += len(failures)
        print_outcome(subject, tried, failures)
    sys.exit(bool(num_failures))


def print_outcome(subject, tried, failures):
    """What was tried, how often, and how many cases failed."""
    print(
        f"{subject}: {sum(tried.values()) + len(failures)} cases, "
        f"{len(failures)} failed"
    )
    for what, count in sorted(tried.items()):
        print(f"  {count:>6}  {what}")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
