# SPDX-License-Identifier: Apache-2.0
"""A monitor's counts in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cac_tf.open_world.monitor import Monitor


def prometheus_text(monitor: Monitor) -> str:
    """What a textfile collector reads of a monitor.

    Counters of answers by decision and of accepted inputs by class; gauges of
    each test's e-value and of whether it has given an alarm.

    Example:

    >>> from cac_tf.open_world import Monitor
    >>> monitor = Monitor(["cat"])
    >>> monitor.update([0, -1, 0], [1, 1, 1])
    []
    >>> print(prometheus_text(monitor))  # doctest: +ELLIPSIS
    # HELP cac_answers_total Answers by decision.
    # TYPE cac_answers_total counter
    cac_answers_total{decision="accepted"} 2
    cac_answers_total{decision="rejected"} 1
    cac_answers_total{decision="failed"} 0
    # HELP cac_accepted_total Accepted inputs by class.
    ...
    """
    values, told = monitor.e_values(), {one.test for one in monitor.alarms}
    families = (
        (
            *("cac_answers_total", "counter", "Answers by decision."),
            *("decision", monitor.counts),
        ),
        (
            *("cac_accepted_total", "counter", "Accepted inputs by class."),
            *("class", monitor.accepted_by_class()),
        ),
        (
            "cac_e_value",
            "gauge",
            "Evidence of a change; an alarm is raised at "
            f"{monitor.alarm_level:g}.",
            *("test", values),
        ),
        (
            *("cac_alarm", "gauge", "1 if a test has detected a change."),
            *("test", {test: int(test in told) for test in values}),
        ),
    )
    lines = []
    for name, kind, text, label, numbers in families:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [
            f'{name}{{{label}="{_escaped(key)}"}} {number}'
            for key, number in numbers.items()
        ]
    return "\n".join([*lines, ""])


def _escaped(text):
    text = text.replace("\\", r"\\").replace('"', r"\"")
    return text.replace("\n", r"\n")
