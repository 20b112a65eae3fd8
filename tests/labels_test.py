# SPDX-License-Identifier: Apache-2.0
"""Labels and names of classes: what is taken, and what is said otherwise."""

import numpy as np
import pytest

from cac_tf.labels import check_class_names
from cac_tf.labels import check_labels


def test_truth_values_are_two_classes():
    found = check_labels(np.array([True, False, True]), 2)
    assert found.dtype == np.int64
    assert found.tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", [None, object, "S3"])
def test_texts_say_how_to_map_them(kind):
    labels = np.array(["dog", "cat", "dog"], kind)
    with pytest.raises(
        ValueError, match="got strings such as .*dog.* To convert"
    ):
        check_labels(labels, 2)
    # The line that the message gives.
    class_names, mapped = np.unique(labels, return_inverse=True)
    assert check_labels(mapped, 2).tolist() == [1, 0, 1]
    if kind is None:
        assert check_class_names(class_names) == ["cat", "dog"]


def test_names_of_numpy_become_plain_texts():
    names = check_class_names(np.array(["cat", "dög"]))
    assert names == ["cat", "dög"]
    assert {type(name) for name in names} == {str}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("cat", "cat\u200f"),
        ("cat", "\u202acat\u202c"),
        ("cat", "c\u00adat"),
        ("\u212bngstr\u00f6m", "A\u030angstro\u0308m\u2069"),
    ],
)
def test_names_that_look_alike(one, other):
    with pytest.raises(ValueError, match="these look alike: '") as e:
        check_class_names([one, "dog", other])
    assert ascii(one) in str(e.value) and ascii(other) in str(e.value)
    # Each by itself is a name.
    assert check_class_names([other, "dog"]) == [other, "dog"]
