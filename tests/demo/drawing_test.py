# SPDX-License-Identifier: Apache-2.0
"""Drawings become images like those of the digits in the training data."""

import numpy as np
import pytest
import sklearn.neighbors
from scipy import ndimage

from cac_tf.demo.drawing import image_of_drawing
from cac_tf.demo.drawing import ink_of_strokes
from cac_tf.demo.drawing import takes_drawings


def image(strokes, size=8):
    return image_of_drawing(ink_of_strokes(strokes), size)


def drawn(pairs, size=8):
    names = np.array([name for name, _ in pairs])
    return names, np.stack([image(strokes, size) for _, strokes in pairs])


def rows_and_columns(pixels):
    return [np.flatnonzero(pixels[..., 0].any(axis)) for axis in (1, 0)]


def test_scikit_digits_have_the_place_size_and_ink_of_drawings(digits, strokes):
    """What the file says of NIST's way of making them is true of the data."""
    _, images = drawn(strokes["digits"])
    for examples in (digits.train.images, images):
        heights = [np.ptp(rows_and_columns(one)[0]) + 1 for one in examples]
        assert np.mean(np.array(heights) == 8) > 0.98
        # 20 of 32 dots, in the middle: the first column stays empty.
        assert np.mean([one[:, 0].any() for one in examples]) < 0.1
        ink = examples.mean() / 255
        assert ink == pytest.approx(0.306, abs=0.01)
    # Blocks of 4 x 4 dots: 17 levels, as the project's digits have them.
    assert {*np.unique(images)} <= {*np.unique(digits.train.images)}


def test_drawn_digits_are_recognized(digits, strokes):
    """By their nearest neighbour among scikit-learn's digits."""
    names, images = drawn(strokes["digits"])
    is_known = np.isin(names, digits.class_names)
    nearest = sklearn.neighbors.KNeighborsClassifier(1).fit(
        digits.train.images.reshape(-1, 64) / 255.0, digits.train.labels
    )
    found = nearest.predict(images[is_known].reshape(-1, 64) / 255.0)
    right = np.array(digits.class_names)[found] == names[is_known]
    assert right.mean() >= 0.9


@pytest.mark.parametrize("size", [28, 32])
def test_mnist_digits_fit_into_a_box_around_their_center_of_mass(size, strokes):
    for _, pixels in zip(*drawn(strokes["digits"], size), strict=True):
        rows, columns = rows_and_columns(pixels)
        side = max(np.ptp(rows), np.ptp(columns)) + 1
        assert side == pytest.approx(20 * size / 28, abs=0 if size == 28 else 1)
        center = ndimage.center_of_mass(pixels[..., 0])
        assert center == pytest.approx((size / 2, size / 2), abs=0.55)


@pytest.mark.parametrize("size", [8, 28])
def test_size_and_place_of_a_drawing_do_not_matter(size, strokes):
    for _, drawing in strokes["digits"]:
        moved = [[(3 * x - 50, 3 * y + 7) for x, y in one] for one in drawing]
        difference = image(drawing, size) - image(moved, size).astype("int16")
        assert np.abs(difference).mean() < 3


def test_scikit_digits_stand_upright():
    leaning = [[(40 - 0.3 * y, y) for y in range(0, 100, 5)]]
    upright = [[(40, y) for y in range(0, 100, 5)]]
    difference = image(leaning) - image(upright).astype("int16")
    assert np.abs(difference).mean() < 8
    # MNIST's lean as they were written.
    columns = [
        np.ptp(rows_and_columns(image(s, 28))[1]) for s in (leaning, upright)
    ]
    assert columns[0] > columns[1] + 3


@pytest.mark.parametrize("strokes", [[[(5, 5)]], [[(0, 3), (90, 3)]]])
@pytest.mark.parametrize("size", [8, 28])
def test_dots_and_lines_stay_inside(strokes, size):
    assert image(strokes, size).max() == 255


@pytest.mark.parametrize(
    "strokes, message",
    [
        ([], "Nothing has been drawn."),
        ([[]], "Nothing has been drawn."),
        (None, "A drawing must be a list of strokes"),
        ("text", "A drawing must be a list of strokes"),
        ([[1, 2, 3]], "A drawing must be"),
        ([[(0, 0, 0)]], "A drawing must be"),
        ([[(0, float("nan"))]], "A drawing must be"),
        ([[(0, 1e300), (0, -1e308)]], "A drawing must be"),
        ([[(0, 0)] * 20_001], "at most 20,000 points"),
    ],
)
def test_what_is_no_drawing_is_refused(strokes, message):
    with pytest.raises(ValueError, match=message):
        ink_of_strokes(strokes)


@pytest.mark.parametrize("size", [8, 28])
@pytest.mark.parametrize("ink", [np.eye(10), np.eye(9)[::-1], np.eye(1)])
def test_ink_of_one_point_a_row(ink, size):
    assert image_of_drawing(ink, size).any()


def test_an_empty_drawing_is_refused():
    with pytest.raises(ValueError, match="Nothing has been drawn"):
        image_of_drawing(np.zeros((9, 9), bool), 28)


@pytest.mark.parametrize(
    "shape, takes",
    [
        ((8, 8, 1), True),
        ((28, 28, 1), True),
        ((32, 32, 1), True),
        ((32, 32, 3), False),
        ((64, 64, 1), False),
        ((28, 20, 1), False),
        ((None, None, 1), False),
        ((64,), False),
    ],
)
def test_models_of_small_grey_images_take_drawings(shape, takes):
    assert takes_drawings(shape) == takes
