# SPDX-License-Identifier: Apache-2.0
"""A product from outputs is the product from the inputs."""

import numpy as np
import pytest

import cac_tf

from_outputs = cac_tf.OpenSetClassifier.from_outputs


@pytest.fixture(scope="module")
def trained(trained_blobs):
    model, x, y = trained_blobs
    logits = model.classifier.predict(x, verbose=0)
    return model.classifier, {"features": x, "logits": logits}, x, y


@pytest.mark.parametrize("score", ["gamma", "vim", "knn", "class_z_score"])
def test_it_is_that_of_the_inputs(trained, score):
    classifier, outputs, x, y = trained
    expected = cac_tf.OpenSetClassifier.from_classifier(
        classifier, (x, y), score=score, validation_data=(x[::2], y[::2])
    )
    model = from_outputs(
        classifier,
        outputs,
        y,
        score=score,
        validation_outputs=(
            {name: rows[::2] for name, rows in outputs.items()},
            y[::2],
        ),
    )
    assert set(model.statistics) == set(expected.statistics)
    for name, values in expected.statistics.items():
        found = model.statistics[name]
        if score == "knn":  # The same examples, in another order.
            found, values = (np.sort(a, axis=0) for a in (found, values))
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.centers, expected.centers, rtol=1e-5)
    np.testing.assert_allclose(model.threshold, expected.threshold, rtol=1e-4)
    one, two = model.predict_open_set(x), expected.predict_open_set(x)
    np.testing.assert_array_equal(one.class_id, two.class_id)
    np.testing.assert_allclose(one.p_value, two.p_value, atol=0.02)


def test_what_is_refused(trained):
    classifier, outputs, x, y = trained
    with pytest.raises(ValueError, match="the key 'logits'"):
        from_outputs(classifier, outputs["logits"], y)
    with pytest.raises(ValueError, match="needs features among the outputs"):
        from_outputs(classifier, {"logits": outputs["logits"]}, y, score="vim")
    with pytest.raises(ValueError, match="have 5 columns; these have 4"):
        bad = {**outputs, "features": outputs["features"][:, :4]}
        from_outputs(classifier, bad, y, score="vim")
    with pytest.raises(ValueError, match="different numbers of rows"):
        from_outputs(classifier, {**outputs, "features": x[:3]}, y)
    with pytest.raises(ValueError, match="labels for"):
        from_outputs(classifier, outputs, y[:-1], score="gamma")
    with pytest.raises(ValueError, match="must be finite"):
        bad = {**outputs, "logits": outputs["logits"] * np.float32(np.nan)}
        from_outputs(classifier, bad, y, score="gamma")
