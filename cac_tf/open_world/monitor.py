# SPDX-License-Identifier: Apache-2.0
"""Tells from a stream of answers whether something changed."""

from __future__ import annotations

import json
import typing
from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.decision.p_values import kept_ranks
from cac_tf.labels import UNKNOWN
from cac_tf.open_world.betting import Bets
from cac_tf.open_world.online_ranks import ranks_of_hits
from cac_tf.open_world.online_ranks import ranks_of_levels

FORMAT = 1
SHARE, MIX, P_VALUES, CALIBRATION = TESTS = (
    "unknown share",
    "class mix",
    "p-values",
    "calibration",
)
# P-values are float32.
_ROUNDING = 1e-5
# Answers that are ranked at once.
_AT_ONCE = 256


class Alarm(typing.NamedTuple):
    """That a test has told a change."""

    test: str  # one of TESTS
    answer: int  # how many there were by then
    e_value: float
    rose: bool  # the share, or the p-values; else they fell
    class_name: str = ""  # of the class mix

    def in_words(self) -> str:
        """For a person.

        Example:

        >>> Alarm("class mix", 4100, 612.3, True, "cat").in_words()
        'answer 4,100: the share of cat among accepted inputs rose (e-value \
612).'
        """
        what = {
            SHARE: "the share of unknown inputs",
            MIX: f"the share of {self.class_name} among accepted inputs",
            P_VALUES: "the p-values",
            CALIBRATION: "the p-values of accepted inputs, relative to the "
            "calibration,",
        }[self.test]
        done = "rose" if self.rose else "fell"
        if self.test == CALIBRATION:
            done = "are larger" if self.rose else "are smaller"
        return (
            f"answer {self.answer:,}: {what} {done} (e-value "
            f"{self.e_value:.3g})."
        )


class Monitor:
    r"""Detects whether a stream of answers changes, however long it is watched.

    Four tests, each with an *e-value*: a number that is at most 1 on average
    while nothing changes, and grows after a change. An alarm is raised as soon
    as one of them reaches `alarm_level`, which is 4 / `false_alarm_rate`.

    ============= ==========================================================
    test          what it compares
    ============= ==========================================================
    unknown share whether an input is rejected, with all earlier answers
    class mix     each class' share of accepted inputs, with all earlier ones
    p-values      those of all inputs, with all earlier ones
    calibration   those of accepted inputs, with the calibration examples and
                  all earlier ones
    ============= ==========================================================

    The reference is the earlier part of the same stream: no share of unknown
    inputs and no mix of classes is assumed. Only the calibration test can
    detect what was unusual from the first answer on; it looks only at p-values,
    and only above the largest that is ever rejected. (A stream with many
    accepted unknown inputs differs from the calibration data without any
    change.)

    **False alarm**: any alarm of the first three tests although the answers are
    exchangeable (independent and from one population, or in random order); an
    alarm of the fourth although accepted inputs are exchangeable with the
    accepted calibration examples, and no two scores are equal. The probability
    of one or more false alarms, by any test in an endless stream, is at most
    `false_alarm_rate`. Video frames, day-and-night cycles and sorted inputs are
    not exchangeable, and are reported as changes.

    How: an answer is ranked among the earlier ones, ties at random. With k
    earlier ones below it and e equal ones among n, and V uniform in (0, 1),
    \(u = (k + V (e + 1)) / (n + 1)\)
    is uniform and independent of all earlier u, however few they are (Vovk,
    Gammerman and Shafer, *Algorithmic Learning in a Random World*, 2005,
    section 8.2). P-values from one calibration set are not
    independent of each other; ranks among calibration examples *and* earlier
    answers are: of n examples and m - 1 answers, the m-th lies in each gap with
    probability 1 / (n + m). A test martingale bets on each sequence of u, see
    `open_world.betting`. The e-value of the class mix is the largest of the N
    classes' e-values, divided by N.

    Args:
        class_names: names of the N known classes.
        calibration: pair of the number of known calibration examples that the
            threshold accepts, and the number of all
            (`model.accepted_shares["known"]`). None: there were none; every
            p-value is 1, and p-values are not tested.
        false_alarm_rate: in (0, 1).
        seed: seed for breaking ties. None: a new one each time.

    Attributes:
        alarms: list of `Alarm`, at most one per test and class.
        counts: dict with the numbers of "accepted", "rejected" and "failed".
        notes: JSON-able dict that is saved with the state, such as the position
            in the stream.

    Raises:
        ValueError: an argument that is not allowed.

    Example:

    >>> monitor = Monitor(["cat", "dog"], calibration=(95, 99), seed=1)
    >>> rng = np.random.default_rng(1)
    >>> def answers(size, unknown_share):
    ...     p_value = rng.integers(1, 101, size) / 100
    ...     is_unknown = (p_value <= 0.05) | (rng.random(size) < unknown_share)
    ...     p_value[is_unknown] = 0.01
    ...     return np.where(is_unknown, -1, rng.integers(0, 2, size)), p_value
    >>> monitor.update(*answers(2_000, unknown_share=0.1))
    []
    >>> alarms = monitor.update(*answers(500, unknown_share=0.4))
    >>> alarms[0].test, alarms[0].rose, 2_000 < alarms[0].answer < 2_150
    ('unknown share', True, True)
    """

    def __init__(
        self,
        class_names: Sequence[str],
        calibration: tuple[int, int] | None = None,
        *,
        false_alarm_rate: float = 0.01,
        seed: int | None = None,
    ) -> None:
        self.class_names = tuple(map(str, class_names))
        if not self.class_names:
            raise ValueError("class_names must contain at least one name.")
        pair = tuple(calibration or (0, 0))
        if len(pair) != 2 or not 0 <= pair[0] <= pair[1]:
            raise ValueError(
                "calibration must be a pair: the number of accepted examples "
                f"and the number of all examples; got {calibration!r}."
            )
        accepted, examples = map(int, pair)
        self.calibration = (accepted, examples)
        if not 0.0 < false_alarm_rate < 1.0:
            raise ValueError(
                f"false_alarm_rate must be in (0, 1); got {false_alarm_rate!r}."
            )
        self.false_alarm_rate = float(false_alarm_rate)
        if seed is None:
            seed = np.random.SeedSequence().generate_state(1, "uint64")[0]
        if seed < 0:
            raise ValueError(f"seed must be at least 0; got {seed}.")
        self.seed = int(seed)
        self.counts = {"accepted": 0, "rejected": 0, "failed": 0}
        self.alarms: list[Alarm] = []
        self.notes: dict[str, Any] = {}
        self._drawn = 0  # numbers that ties took
        self._of_class = np.zeros(len(self.class_names), int)
        ranks = np.array([*kept_ranks(examples), examples + 1])
        self._levels = ranks / (examples + 1)
        # How many inputs have had each p-value; and, as if each gap between
        # calibration scores had been met once, what calibration examples say.
        self._of_level = np.zeros(len(ranks), int)
        self._gaps = np.diff(ranks, prepend=0)
        # The threshold lies in the gap below: of that, a part is accepted.
        rejected = int(np.searchsorted(ranks, examples - accepted + 1))
        self._above = slice(rejected + 1, len(ranks))
        places = len(self.class_names) + 1
        self._places = {SHARE: slice(0, 1), MIX: slice(1, places)}
        if examples:
            self._places[P_VALUES] = slice(places, places + 1)
            places += 1
        if accepted:
            self._places[CALIBRATION] = slice(places, places + 1)
            places += 1
        self._bets = Bets(places)
        # What a martingale must reach for an alarm.
        self._needed = np.full(places, self.alarm_level)
        self._needed[self._places[MIX]] *= len(self.class_names)

    @classmethod
    def of(cls, model: Any, **settings: Any) -> Self:
        """A monitor for a model's answers.

        Args:
            model: `OpenSetClassifier` with a threshold.
            **settings: `false_alarm_rate` and `seed`, see the class.

        Raises:
            ValueError: the model has no threshold.
        """
        # What the smallest of several thresholds accepts, all of them do.
        lowest = np.min(model.require_threshold())
        calibration = model.calibration.accepted_by(lowest)
        return cls(model.class_names, calibration, **settings)

    @property
    def alarm_level(self) -> float:
        """The e-value that raises an alarm."""
        return len(self._places) / self.false_alarm_rate

    @property
    def answers(self) -> int:
        """How many answers were accepted or rejected."""
        return self.counts["accepted"] + self.counts["rejected"]

    def e_values(self) -> dict[str, float]:
        """The current e-value of each test."""
        shares = self._bets.values() / self._needed * self.alarm_level
        return {
            test: float(shares[own].max()) for test, own in self._places.items()
        }

    def accepted_by_class(self) -> dict[str, int]:
        """How many inputs were accepted as each class."""
        counts = self._of_class.tolist()
        return dict(zip(self.class_names, counts, strict=True))

    def update(
        self, class_id: ArrayLike, p_value: ArrayLike, failed: int = 0
    ) -> list[Alarm]:
        """Adds the next answers of the stream, in order.

        Args:
            class_id: (B,) integers, -1 for unknown.
            p_value: (B,) p-values of the same model.
            failed: number of additional inputs without an answer; only counted.

        Returns:
            List of the new alarms.

        Raises:
            ValueError: answers that the model cannot have given; the state then
                stays unchanged.

        Example:

        >>> monitor = Monitor(["cat", "dog"], calibration=(95, 99))
        >>> monitor.update([0, -1], [0.5, np.nan])
        Traceback (most recent call last):
        ValueError: Answer 2 has the p-value nan, but this model returns only \
multiples of 1/100 up to 1: the p-values are from another model, or rounded.
        """
        class_ids, levels = self._checked(class_id, p_value)
        ties = np.random.PCG64(self.seed)
        ties.advance(self._drawn)
        uniform = np.random.Generator(ties).random(len(class_ids))
        before = len(self.alarms)
        self.counts["failed"] += failed
        for start in range(0, len(class_ids), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            self._take(class_ids[rows], levels[rows], uniform[rows])
        self._drawn += len(class_ids)
        return self.alarms[before:]

    def _checked(self, class_id, p_value):
        """Class ids, and places of the p-values among the levels."""
        class_ids, p_values = np.asarray(class_id), np.asarray(p_value, float)
        if class_ids.ndim != 1 or class_ids.shape != p_values.shape:
            raise ValueError(
                "class_id and p_value must have the same shape (B,); got "
                f"{class_ids.shape} and {p_values.shape}."
            )
        if not len(class_ids):
            return np.zeros(0, int), np.zeros(0, int)
        known = range(UNKNOWN, len(self.class_names))
        self._refuse(
            ~np.isin(class_ids, known),
            lambda i: (
                f"the class id {class_ids[i]}, but this model has "
                f"{len(self.class_names)} classes: it is from another model"
            ),
        )
        levels = np.searchsorted(self._levels, p_values * (1 - _ROUNDING))
        levels = np.minimum(levels, len(self._levels) - 1)
        self._refuse(
            ~np.isclose(self._levels[levels], p_values, rtol=_ROUNDING, atol=0),
            lambda i: (
                f"the p-value {p_values[i]:.6g}, but this model returns only "
                f"multiples of 1/{self.calibration[1] + 1} up to 1: the "
                "p-values are from another model, or rounded"
            ),
        )
        self._refuse(
            (class_ids == UNKNOWN) & (levels >= self._above.start),
            lambda i: (
                f"the p-value {p_values[i]:.6g} and is rejected, but this "
                "model accepts inputs above "
                f"{self._levels[self._above.start - 1]:.4g}: it is from "
                "another model or another threshold"
            ),
        )
        return class_ids.astype(int), levels

    def _refuse(self, is_wrong, said):
        if is_wrong.any():
            place = int(is_wrong.argmax())
            answer = self.answers + place + 1
            raise ValueError(f"Answer {answer:,} has {said(place)}.")

    def _take(self, class_ids, levels, ties):
        """Ranks some answers, and bets on the ranks."""
        is_unknown = class_ids == UNKNOWN
        every, accepted = slice(None), np.flatnonzero(~is_unknown)
        above = np.flatnonzero(levels >= self._above.start)
        classes = class_ids[accepted]
        ranked = {
            SHARE: (
                every,
                ranks_of_hits(
                    is_unknown[:, None],
                    np.array([self.counts["rejected"]]),
                    self.answers,
                    ties,
                ),
            ),
            MIX: (
                accepted,
                ranks_of_hits(
                    classes[:, None] == np.arange(len(self.class_names)),
                    self._of_class,
                    self.counts["accepted"],
                    ties[accepted],
                ),
            ),
            P_VALUES: (
                every,
                ranks_of_levels(levels, self._of_level, ties)[:, None],
            ),
            CALIBRATION: (
                above,
                ranks_of_levels(
                    levels[above] - self._above.start,
                    (self._gaps + self._of_level)[self._above],
                    ties[above],
                    own=0,
                )[:, None],
            ),
        }
        numbers = self.answers + 1 + np.arange(len(class_ids))
        values = {
            test: (
                *self._bets.bet(places, ranked[test][1]),
                numbers[ranked[test][0]],
            )
            for test, places in self._places.items()
        }
        self.counts["rejected"] += int(is_unknown.sum())
        self.counts["accepted"] += len(accepted)
        np.add.at(self._of_class, classes, 1)
        np.add.at(self._of_level, levels, 1)
        self._note_alarms(values)

    def _note_alarms(self, values):
        """Keeps what was not told before.

        Args:
            values: dict from a test to (B, T) values of its martingales,
                (B, T) whether small numbers have risen, and the (B,) numbers
                of the answers.
        """
        given = {(one.test, one.class_name) for one in self.alarms}
        found = []
        for test, (table, has_risen, numbers) in values.items():
            first = self._places[test].start
            is_told = table >= self._needed[self._places[test]]
            for place in np.flatnonzero(is_told.any(axis=0)).tolist():
                row = int(is_told[:, place].argmax())
                name = self.class_names[place] if test == MIX else ""
                e_value = table[row, place] / self._needed[first + place]
                # A small number means a rejected input, this class, or a
                # small p-value.
                alarm = Alarm(
                    test,
                    int(numbers[row]),
                    float(e_value * self.alarm_level),
                    bool(has_risen[row, place]) == (test in (SHARE, MIX)),
                    name,
                )
                if (test, name) not in given:
                    found.append(alarm)
        self.alarms += sorted(found, key=lambda alarm: alarm.answer)

    def save(self, path: Path) -> None:
        """Writes the state and the notes to a JSON file.

        The file is written atomically.
        """
        atomic_files.write_json(path, self._state())

    def _state(self):
        return {
            "format": FORMAT,
            "class_names": self.class_names,
            "calibration": self.calibration,
            "false_alarm_rate": self.false_alarm_rate,
            "seed": self.seed,
            "drawn": self._drawn,
            "counts": self.counts,
            "accepted_by_class": self._of_class.tolist(),
            "by_p_value": self._of_level.tolist(),
            "e_values": self.e_values(),
            "alarms": [one._asdict() for one in self.alarms],
            "notes": self.notes,
            "bets": self._bets.state(),
        }

    @classmethod
    def load(cls, path: Path) -> Self:
        """Loads the monitor that `save` wrote, to continue where it stopped.

        Raises:
            ValueError: the file holds something else, or is damaged.
            OSError: it cannot be read.
        """
        with open(path, "rb") as file:
            content = file.read()
        try:
            state = json.loads(content)
            if state["format"] != FORMAT:
                raise ValueError(f"its format is {state['format']!r}")
            return cls._of_state(state)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{path} is not a monitor's state, or is damaged "
                f"({type(error).__name__}: {error})."
            ) from error

    @classmethod
    def _of_state(cls, state: dict[str, Any]) -> Self:
        own = cls(
            state["class_names"],
            tuple(state["calibration"]),
            false_alarm_rate=state["false_alarm_rate"],
            seed=state["seed"],
        )
        own._drawn = int(state["drawn"])
        own.counts = {name: int(state["counts"][name]) for name in own.counts}
        own.alarms = [Alarm(**one) for one in state["alarms"]]
        own.notes = dict(state["notes"])
        for array, name, total in (
            (own._of_class, "accepted_by_class", own.counts["accepted"]),
            (own._of_level, "by_p_value", own.answers),
        ):
            if len(state[name]) != len(array):
                raise ValueError(f"{name} has {len(state[name])} numbers")
            array[:] = state[name]
            if array.min() < 0 or array.sum() != total:
                raise ValueError(f"{name} does not sum to {total}")
        own._bets = Bets.of_state(len(own._bets.numbers), state["bets"])
        return own

    @classmethod
    def merged(cls, monitors: Sequence[Self], seed: int | None = None) -> Self:
        """Merges the monitors of several workers into one.

        Its e-values are the means of theirs, and its counts the sums; it can
        take further answers. A mean of e-values is an e-value however they
        depend on each other, so at a single merge the false-alarm rate holds
        for all four tests. If workers are merged repeatedly, it holds for the
        first three tests, whose values are independent between workers that
        share a population; for the calibration test, only at one merge that was
        not chosen by its result. (A product would be an e-value only for the
        first three.) The workers' own alarms are not carried over, as each has
        its own rate.

        Args:
            monitors: monitors of the same model and rate, each for different
                answers.
            seed: as of the class.

        Raises:
            ValueError: no monitors, monitors that do not match, or the same one
                twice.
        """
        monitors = list(monitors)
        if not monitors:
            raise ValueError("There are no monitors to merge.")
        settings = {
            (one.class_names, one.calibration, one.false_alarm_rate)
            for one in monitors
        }
        if len(settings) > 1:
            raise ValueError(
                "Only monitors with the same model and false_alarm_rate can "
                "be merged."
            )
        seeds = {seed, *(one.seed for one in monitors)}
        if len(seeds) <= len(monitors):
            raise ValueError(
                "Two monitors have the same seed: give each worker its own "
                "seed, and merge each monitor only once."
            )
        ((names, calibration, rate),) = settings
        own = cls(names, calibration, false_alarm_rate=rate, seed=seed)
        for name in own.counts:
            own.counts[name] = sum(one.counts[name] for one in monitors)
        own._of_class = np.sum([one._of_class for one in monitors], axis=0)
        own._of_level = np.sum([one._of_level for one in monitors], axis=0)
        own._bets = Bets.mean([one._bets for one in monitors])
        values, has_risen = own._bets.values(), own._bets.has_risen()
        now = np.array([own.answers])
        own._note_alarms(
            {
                test: (values[None, at], has_risen[None, at], now)
                for test, at in own._places.items()
            }
        )
        return own
