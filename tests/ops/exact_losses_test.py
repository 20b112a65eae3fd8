# SPDX-License-Identifier: Apache-2.0
"""Fused and stock operations against values of 60 digits."""

import numpy as np
import pytest

from cac_tf import ops as fused_ops
from cac_tf.ops import stock
from tests import execution
from tests.ops import exact_losses


def fused_terms(logits, labels):
    terms = fused_ops.binding().anchored_cac_loss(
        labels, logits, 10.0, 0.0, validate=False
    )
    return terms.anchor, terms.tuplet


def stock_terms(logits, labels):
    return stock.anchor_and_tuplet_loss(labels, logits, 10.0)


def errors(terms, mode, num_classes):
    """Of loss and gradient, (3, B) each, for every weight of the anchor loss.

    Those of the loss are relative to the loss. Those of the gradient are
    relative to its parts, 2 (1 - p_y) + weight, and to its largest entry.
    """

    def loss(logits, labels, weight):
        anchor, tuplet = terms(logits, labels)
        return tuplet + weight * anchor

    values = execution.compiled(loss, mode)
    gradients = execution.gradient(loss, mode)
    exact = exact_losses.stored_rows(num_classes)
    logits, labels = exact_losses.logits_and_labels(num_classes)
    found = []
    for weight, largest in zip(
        exact_losses.ANCHOR_WEIGHTS, exact.largest.T, strict=True
    ):
        inputs = (logits, labels, np.float32(weight))
        expected = exact.tuplet + weight * exact.anchor
        of_loss = np.abs(values(*inputs) - expected) / expected
        gradient = np.take_along_axis(
            np.float64(gradients(*inputs)), exact.entries, axis=1
        )
        expected = exact.tuplet_gradient + weight * exact.anchor_gradient
        error = np.abs(gradient - expected).max(axis=1)
        parts = 2 * exact.own_share + weight
        found.append((of_loss, error / parts, error / largest))
    return np.array(found).swapaxes(0, 1)


@pytest.mark.skipif(
    fused_ops.binding() is None, reason="the fused operations are not built"
)
@pytest.mark.parametrize("num_classes", exact_losses.CLASS_COUNTS)
def test_fused_operations(mode, num_classes):
    of_loss, of_parts, of_largest = errors(fused_terms, mode, num_classes)
    assert of_loss.max() <= 2e-6
    assert of_parts.max() <= 1e-6
    # Of two classes the pulls are opposite, and may cancel.
    assert num_classes < 6 or of_largest.max() <= 1e-6


@pytest.mark.parametrize("num_classes", exact_losses.CLASS_COUNTS)
def test_stock_operations(mode, num_classes):
    """Sums of the framework: of many numbers, one after another, in float32."""
    of_loss, of_parts, of_largest = errors(stock_terms, mode, num_classes)
    is_long = num_classes > 1000
    assert of_loss.max() <= (1e-5 if is_long else 2e-6)
    assert of_parts.max() <= (4e-6 if is_long else 1e-6)
    assert num_classes < 6 or of_largest.max() <= (1e-5 if is_long else 4e-6)


def test_invalid_rows_of_stock_operations_are_nan(mode):
    logits = np.ones((5, 3), "float32")
    logits[1:4, 2] = np.nan, np.inf, 1e25
    labels = np.array([0, 0, 1, 0, 3], "int32")
    for term in (0, 1):
        found = execution.compiled(
            lambda z, y, term=term: stock_terms(z, y)[term], mode
        )(logits, labels)
        np.testing.assert_array_equal(np.isnan(found), [0, 1, 1, 1, 1])


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", exact_losses.CLASS_COUNTS)
def test_the_stored_values_are_exact(num_classes):
    stored = exact_losses.stored_rows(num_classes)
    for column, again in zip(
        stored, exact_losses.exact_rows(num_classes), strict=True
    ):
        np.testing.assert_array_equal(column, again)
