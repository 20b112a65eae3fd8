# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from cac_tf.export import write_model_folder
from tests.conftest import blobs
from tests.conftest import small_classifier

# Loads and calls an export without any of this project's code.
CLEAN_CLIENT = """
    import json, sys
    import numpy as np
    import tensorflow as tf

    path, inputs, outputs = sys.argv[1:]
    model = tf.saved_model.load(path)
    serve = model.signatures["serving_default"]
    out = serve(images=tf.constant(np.load(inputs)))
    graph = serve.graph.as_graph_def()
    nodes = [*graph.node]
    for function in graph.library.function:
        nodes += function.node_def
    assert not any(name.startswith("cac_tf") for name in sys.modules)
    np.savez(
        outputs,
        ops=sorted({n.op for n in nodes}),
        **{k: v.numpy() for k, v in out.items() if k != "label"},
        label=out["label"].numpy().astype("S"),
    )
"""


def served(path, inputs, tmp_path):
    np.save(tmp_path / "in.npy", inputs)
    subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(CLEAN_CLIENT),
            str(path),
            str(tmp_path / "in.npy"),
            str(tmp_path / "out.npz"),
        ],
        cwd=tmp_path,
        check=True,
    )
    return dict(np.load(tmp_path / "out.npz"))


def test_the_served_model_decides_like_the_one_in_memory(
    trained_blobs, tmp_path, rng
):
    model, x, _ = trained_blobs
    inputs = np.concatenate([x, np.float32(rng.normal(0, 3, (100, 5)))])
    path = write_model_folder(model, tmp_path / "serving", 3)
    assert os.listdir(tmp_path / "serving") == ["3"]
    out = served(path, inputs, tmp_path)
    expected = model.predict_open_set(inputs)
    assert 0 < expected.is_unknown.sum() < len(inputs)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_array_equal(out["is_unknown"], expected.is_unknown)
    np.testing.assert_array_equal(out["label"].astype(str), expected.label)
    np.testing.assert_array_equal(
        out["nearest_class_id"], expected.nearest_class_id
    )
    for name in ("gamma", "distances", "unknown_score"):
        np.testing.assert_allclose(
            out[name], getattr(expected, name), rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(out["probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(out["threshold"], model.threshold)
    # Stock operations of TensorFlow only, and no branch.
    ops = set(out["ops"])
    assert not any(">" in op or "CacTf" in op for op in ops)
    assert ops <= set(tf.raw_ops.__dict__) | {"Placeholder"}
    assert not ops & {"If", "StatelessIf", "Bitcast", "PyFunc"}
    assert "ArgMin" in ops


def test_export_follows_the_centres_in_force(tmp_path, rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=10, verbose=0)
    for version, recentre in ((1, False), (2, True)):
        if recentre:
            model.fit_centres(x, y)
        model.calibrate(x, true_positive_rate=0.9)
        path = write_model_folder(model, tmp_path / "serving", version)
        serve = tf.saved_model.load(path).signatures["serving_default"]
        np.testing.assert_allclose(
            serve(images=tf.constant(x))["distances"],
            model.predict_scores(x).distances,
            rtol=1e-5,
            atol=1e-6,
        )


def test_rows_with_nan_are_unknown(trained_blobs, tmp_path):
    model, x, _ = trained_blobs
    path = write_model_folder(model, tmp_path, 1)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    inputs = x[:3].copy()
    inputs[1] = np.nan
    out = serve(images=tf.constant(inputs))
    alone = serve(images=tf.constant(x[:3]))
    assert out["class_id"][1] == -1
    for row in (0, 2):
        assert out["class_id"][row] == alone["class_id"][row]


def test_bad_input(trained_blobs, tmp_path, rng):
    model = trained_blobs[0]
    for version in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            write_model_folder(model, tmp_path / "serving", version)
    write_model_folder(model, tmp_path / "serving", 1)
    with pytest.raises(FileExistsError, match="never overwritten"):
        write_model_folder(model, tmp_path / "serving", 1)
    fresh = small_classifier()
    with pytest.raises(ValueError, match="no valid threshold"):
        write_model_folder(fresh, tmp_path / "other", 1)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ValueError, match="no valid threshold"):
        fresh.export(tmp_path / "other")
    with pytest.raises(ValueError, match="tf_saved_model"):
        model.export(tmp_path / "other", format="onnx")


def test_export_under_jax_says_where_to_do_it(trained_blobs, tmp_path):
    model, *_ = trained_blobs
    model.save(tmp_path / "model.keras")
    code = f"""
        import json, cac_tf
        model = cac_tf.load_model({str(tmp_path / "model.keras")!r})
        try:
            model.export({str(tmp_path / "export")!r})
        except RuntimeError as error:
            print(json.dumps(str(error)))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "KERAS_BACKEND=tensorflow" in json.loads(result.stdout)
