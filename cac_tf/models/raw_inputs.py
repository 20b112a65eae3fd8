# SPDX-License-Identifier: Apache-2.0
"""What raw inputs must be: one check, for arrays, files and answers by the row.

Needs NumPy alone: who asks a SavedModel has no Keras.
"""

import typing
import warnings

import numpy as np
from numpy.typing import ArrayLike

from cac_tf.annotations import Shape
from cac_tf.hyperparameters import INTERPOLATIONS

BRIGHTEST = 255
_ROWS_PER_CHUNK = 1024
# The type of texts, as Keras and TensorFlow call it.
TEXTS = "string"


class InputKind(typing.NamedTuple):
    """What a classifier takes."""

    # Of one raw input; None where any size will do. Of a text: ().
    shape: tuple[int | None, ...]
    # "float32", or e.g. "int32" for token ids, or "string" for texts. (Floats,
    # and whole numbers in 0...255 where the classifier scales pixels itself,
    # count as float32.)
    dtype: str
    # Whether values are pixels in 0...255, which the classifier scales itself.
    are_pixels: bool
    # (height, width) that images are resized to, or None.
    size: tuple[int, int] | None = None
    # Number of rows of the table that whole numbers are places in, or None.
    num_ids: int | None = None
    # By which files are resampled to `size`, as those layers do it.
    interpolation: str = INTERPOLATIONS[0]

    @property
    def are_texts(self) -> bool:
        """Whether inputs are texts."""
        return self.dtype == TEXTS

    @property
    def fixed_shape(self) -> tuple[int | None, ...]:
        """`shape`, with the size that images are resized to where any will do.

        Example:

        >>> InputKind((None, None, 3), "float32", True, (32, 32)).fixed_shape
        (32, 32, 3)
        """
        if self.size is None or len(self.shape) != 3:
            return self.shape
        height, width, channels = self.shape
        return (height or self.size[0], width or self.size[1], channels)


def takes_encoded_images(shape: Shape) -> bool:
    """Whether files can be decoded to inputs of this shape."""
    return len(shape) == 3 and None not in shape and shape[-1] in (1, 3)


class Broken(typing.NamedTuple):
    """A rule, and the rows that break it."""

    rule: str  # what inputs must be
    rows: np.ndarray  # positions, ascending
    held: list  # what each of these rows holds instead


def first_broken(inputs: np.ndarray, kind: InputKind) -> Broken | None:
    """The first rule that some rows of raw inputs break.

    Args:
        inputs: (B, ...) array of numbers, or (B,) array of texts.
        kind: `InputKind`.

    Returns:
        `Broken`, or None if all rows are what the classifier takes.

    Example:

    >>> ids = InputKind((2,), "int32", False, num_ids=50)
    >>> rule, rows, held = first_broken(np.array([[7, 49], [50, 2**32]]), ids)
    >>> print(f"{rule}; row {rows[0]} holds {held[0]}")
    whole numbers of 0 to 49 (int32); row 1 holds 50
    """
    if kind.are_texts:
        wrong = [row for row, one in enumerate(inputs) if not _is_text(one)]
        held = [inputs[row] for row in wrong]
        return Broken("texts", np.array(wrong), held) if wrong else None
    rows = rows_not_finite(inputs)
    if rows.size:
        return Broken("finite", rows, ["NaN or infinity"] * rows.size)
    is_float = inputs.dtype.kind in "fV"
    if kind.are_pixels and inputs.dtype != np.uint8:
        is_bad = (inputs < 0) | (inputs > BRIGHTEST)
        if is_bad.any():
            return _broken("pixels in 0...255", inputs, is_bad)
    if np.dtype(kind.dtype).kind not in "biu":
        return None
    if is_float:
        is_bad = inputs != np.floor(inputs)
        if is_bad.any():
            return _broken(f"whole numbers ({kind.dtype})", inputs, is_bad)
    if kind.num_ids is None and np.can_cast(inputs.dtype, kind.dtype):
        return None
    least, largest = _limits(kind)
    low, end = least, largest + 1
    if is_float:
        # Powers of two (the largest number itself may not be there), or
        # infinity where the type ends before.
        with np.errstate(over="ignore"):
            low, end = map(inputs.dtype.type, map(float, (low, end)))
    is_bad = (inputs < low) | (inputs >= end)
    rule = f"whole numbers of {least} to {largest} ({kind.dtype})"
    return _broken(rule, inputs, is_bad) if is_bad.any() else None


def _is_text(value):
    """Whether a model of texts takes it: an empty one too."""
    try:
        return isinstance(value, bytes) or str.encode(value) is not None
    # No text; or one with bytes that are no UTF-8.
    except (TypeError, UnicodeEncodeError):
        return False


def _limits(kind):
    """The least and the largest of the whole numbers that are taken."""
    limits = (0, 1)
    if kind.dtype != "bool":
        limits = np.iinfo(kind.dtype).min, np.iinfo(kind.dtype).max
    if kind.num_ids is not None:
        limits = 0, min(limits[1], kind.num_ids - 1)
    return limits


def rows_not_finite(values: ArrayLike) -> np.ndarray:
    """Positions of the rows of an array that hold NaN or an infinity."""
    values = np.asarray(values)
    found = [np.empty(0, "int64")]
    if values.dtype.kind in "fV":
        for start in range(0, len(values), _ROWS_PER_CHUNK):
            # (What float32 cannot hold becomes infinite.)
            with np.errstate(over="ignore"):
                chunk = values[start : start + _ROWS_PER_CHUNK].astype("f4")
            is_finite = np.isfinite(chunk.reshape(len(chunk), -1)).all(axis=1)
            found.append(start + np.flatnonzero(~is_finite))
    return np.concatenate(found)


def _broken(rule, inputs, is_bad):
    is_bad, values = (x.reshape(len(inputs), -1) for x in (is_bad, inputs))
    rows = np.flatnonzero(is_bad.any(axis=1))
    held = values[rows, is_bad[rows].argmax(axis=1)]
    return Broken(rule, rows, list(held))


class RawInputs:
    """Checks the raw inputs of one call, batch by batch.

    Args:
        kind: `InputKind`.
    """

    def __init__(self, kind: InputKind) -> None:
        self._kind = kind
        self._largest: float | None = None

    def check(
        self, inputs: ArrayLike, where: str = "", what: str = "Inputs"
    ) -> np.ndarray:
        """The inputs as an array, of whole numbers where the model takes them.

        Args:
            inputs: (B, ...) array; texts may also be (B, 1).
            where: put in front of a position, e.g. "batch 3, ".
            what: the subject of messages.

        Raises:
            ValueError: inputs that are not numbers (texts, where the model
                takes texts) or not finite, have another shape, cannot be
                pixels where the model takes pixels, or are not the whole
                numbers that it takes.
        """
        inputs = values_of(inputs, self._kind, what)
        check_shape(inputs.shape[1:], self._kind.shape)
        broken = first_broken(inputs, self._kind)
        if broken is not None:
            hint = ""
            if broken.rule.startswith("pixels"):
                hint = " (The model scales and normalizes them internally.)"
            raise ValueError(
                f"{what} must be {broken.rule}, but {where}position "
                f"{broken.rows[0]} contains {broken.held[0]}.{hint}"
            )
        return self._taken(inputs)

    def check_rows(
        self, inputs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Separates the rows that the model takes from the others.

        Args:
            inputs: (B, ...) array, as of `values_of`, of the model's shape.

        Returns:
            (G,) positions of the good rows; these rows, as `check` returns
            them; and a dict from the position of every other row to what is
            wrong with it.
        """
        good, rows = np.arange(len(inputs)), inputs
        errors: dict[int, str] = {}
        while broken := first_broken(rows, self._kind):
            for row, held in zip(broken.rows, broken.held, strict=True):
                errors[int(good[row])] = (
                    f"it contains {held}; inputs must be {broken.rule}"
                )
            good = np.delete(good, broken.rows)
            rows = inputs[good]
        return good, self._taken(rows), errors

    def _taken(self, inputs):
        # (Whole numbers are what they are.)
        is_float = inputs.dtype.kind in "fV"
        if self._kind.are_pixels and is_float and inputs.size:
            self._largest = max(self._largest or 0.0, float(inputs.max()))
        if self._kind.dtype in ("float32", TEXTS):
            # JAX would cut 64-bit integers to 32 bits.
            is_long = inputs.dtype.kind in "iu" and inputs.dtype.itemsize > 4
            return inputs.astype("float32") if is_long else inputs
        return inputs.astype(self._kind.dtype, copy=False)

    def finish(self) -> None:
        """Warns of images on the scale of 0...1; call it after the last one."""
        if self._largest is not None and 0.0 < self._largest <= 1.0:
            warnings.warn(
                f"The largest pixel of all images is {self._largest:.3g}: "
                "they seem to be scaled to 0...1, but the model expects "
                "pixels in 0...255 and scales them internally. Multiply them "
                "by 255.",
                stacklevel=4,
            )
        self._largest = None


def values_of(inputs: ArrayLike, kind: InputKind, what: str) -> np.ndarray:
    """Raw inputs as an array of numbers, or of the objects that are texts.

    Args:
        inputs: (B, ...) array; texts may also be (B, 1).
        kind: `InputKind`.
        what: the subject of messages.

    Raises:
        ValueError: an array of texts where the model takes numbers, or the
            other way round.

    Example:

    >>> kind = InputKind((), "string", False)
    >>> values_of([["a"], ["bc"]], kind, "Inputs")
    array(['a', 'bc'], dtype=object)
    """
    inputs = np.asarray(inputs)
    if kind.are_texts:
        # (Arrays of fixed length would be as long as the longest everywhere.)
        if inputs.dtype.kind not in "OUST":
            raise ValueError(
                f"{what} must be an array of strings; got dtype {inputs.dtype}."
            )
        inputs = inputs.astype(object)
        return inputs[:, 0] if inputs.shape[1:] == (1,) else inputs
    # (V: bfloat16.)
    if inputs.dtype.kind not in "biufV":
        raise ValueError(
            f"{what} must be an array of numbers; got dtype {inputs.dtype}."
        )
    return inputs


def check_shape(shape: Shape, expected: Shape) -> None:
    """Raises ValueError for an input of another shape than `expected`."""
    fits = len(shape) == len(expected) and all(
        wanted in (None, size)
        for size, wanted in zip(shape, expected, strict=True)
    )
    if not fits:
        is_single = tuple(shape) == tuple(expected)[1:]
        hint = (
            " A single input needs an axis for the batch: x[np.newaxis]; a "
            "data set needs batches: data.batch(32)."
        )
        raise ValueError(
            f"The model expects inputs of shape {tuple(expected)}; got "
            f"{tuple(shape)}.{hint if is_single else ''}"
        )
