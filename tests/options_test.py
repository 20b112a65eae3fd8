# SPDX-License-Identifier: Apache-2.0
"""Options say what they allow, and hold plain values."""

import dataclasses
import os
import pathlib

import numpy as np
import pytest

from cac_tf import options
from cac_tf.options import field


@dataclasses.dataclass(frozen=True)
class Made(options.Options):
    """Of every kind."""

    must: str = field(help="Must be given.", kind=str)
    count: int = field(3, "A number.", at_least=1, at_most=9)
    share: float | None = field(None, "A share.", kind=float, above=0, below=1)
    kind: str = field("a", "A choice.", choices=lambda: ["a", "b"])
    is_on: bool = field(False, "A switch.")
    names: tuple | None = field(None, "Names.", kind=tuple)
    path: str | None = field(None, "A path.", kind=os.PathLike)


def test_values_are_plain():
    made = Made(
        "x",
        count=np.int64(4),
        share=np.float32(0.5),
        names=np.array(["a", "b"]),
        path=pathlib.Path("a", "b"),
    )
    assert made == Made("x", 4, 0.5, "a", False, ("a", "b"), "a/b")
    assert type(made.count) is int
    assert type(made.share) is float
    assert Made("x") == Made("x", 3, None, "a", False, None, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"must": None}, "must must be a string; got None"),
        ({"count": None}, r"count must be a whole number \(int\); got None"),
        ({"count": 2.0}, r"count must be a whole number \(int\); got 2.0"),
        ({"count": True}, r"count must be a whole number \(int\); got True"),
        ({"count": 0}, "count must be at least 1; got 0"),
        ({"count": 10}, "count must be at most 9; got 10"),
        ({"share": 0}, "share must be above 0; got 0.0"),
        ({"share": 1.0}, "share must be below 1; got 1.0"),
        ({"share": float("nan")}, "share must be a finite number"),
        ({"share": "0.5"}, "share must be a finite number.*got '0.5'"),
        ({"kind": "c"}, "kind must be one of a, b; got 'c'"),
        ({"is_on": 1}, "is_on must be True or False; got 1"),
        ({"names": "ab"}, "names must be a list of strings; got 'ab'"),
        ({"names": [1]}, r"names must be a list of strings; got \[1\]"),
        ({"path": b"a"}, "path must be a path; got b'a'"),
    ],
)
def test_what_is_refused(values, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Made(**{"must": "x", **values})


@pytest.mark.parametrize("default", [None, [1], np.float32(1)])
def test_an_option_has_a_kind(default):
    with pytest.raises(ValueError, match=r"one of bool, int, float, str, Path"):
        field(default, "Of a test.")
