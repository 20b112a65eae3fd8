# SPDX-License-Identifier: Apache-2.0
"""All that a server finds in a model's folder."""

import html
import json
import os
import re

import keras
import markdown_it
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format
from google.protobuf import wrappers_pb2
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

import cac_tf
from cac_tf.export import model_folder
from cac_tf.export import write_model_folder
from cac_tf.plain_text import for_markdown
from tests.conftest import small_classifier

SIGNATURES = (
    "serving_default",
    "uint8_images",
    "encoded_images",
    "with_threshold",
    "classify",
)


@pytest.fixture
def folder(served_pictures):
    return served_pictures


def test_every_file(folder):
    files = {
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
    }
    assert files == {
        "3/saved_model.pb",
        "3/variables/variables.index",
        "3/variables/variables.data-00000-of-00001",
        "3/assets/labels.txt",
        "3/assets/model.json",
        "3/assets.extra/tf_serving_warmup_requests",
        "models.config",
        "batching.config",
        "README.md",
        *(f"requests/{name}.json" for name in SIGNATURES),
    }


def warm_up(version):
    """Model's name, signature and rows of each request."""
    records = version / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(records)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        if log.HasField("classify_log"):
            request = log.classify_log.request
            rows = len(request.input.example_list.examples)
        else:
            request = log.predict_log.request
            sizes = {
                tf.make_ndarray(value).shape[0]
                for value in request.inputs.values()
            }
            (rows,) = sizes
        # A server reads them at every start.
        assert len(record) < 2000
        spec = request.model_spec
        yield spec.name, spec.signature_name, rows


def test_warm_up_requests_of_every_signature_and_size(folder):
    assert set(warm_up(folder / "3")) == {
        ("digits", name, size) for name in SIGNATURES for size in (1, 4)
    }


def test_configuration_of_the_server(folder):
    config = text_format.Parse(
        (folder / "models.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    (served,) = config.model_config_list.config
    assert (served.name, served.base_path) == ("digits", "/models/digits")
    batching = text_format.Parse(
        (folder / "batching.config").read_text(), batching_parameters()
    )
    assert batching.max_batch_size.value == 4
    assert list(batching.allowed_batch_sizes) == [1, 4]


def batching_parameters():
    """TF Serving's message, which its Python package lacks: these fields."""
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto",
        package="tests",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    message = file.message_type.add(name="BatchingParameters")
    field = descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate(
        (
            "max_batch_size",
            "batch_timeout_micros",
            "max_enqueued_batches",
            "num_batch_threads",
        ),
        start=1,
    ):
        message.field.add(
            name=name,
            number=number,
            type=field.TYPE_MESSAGE,
            type_name=".google.protobuf.Int64Value",
            label=field.LABEL_OPTIONAL,
        )
    message.field.add(
        name="allowed_batch_sizes",
        number=6,
        type=field.TYPE_INT64,
        label=field.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("tests.BatchingParameters")
    )()


def test_the_readme_says_how_to_start_and_to_ask(folder, trained_pictures):
    text = (folder / "README.md").read_text("utf-8")
    assert "$" not in text.replace("$(pwd)", "")
    assert '-v "$(pwd):/models/digits:ro"' in text
    assert "--model_config_file=/models/digits/models.config" in text
    assert "--batching_parameters_file=/models/digits/batching.config" in text
    assert "curl -d @requests/encoded_images.json" in text
    assert (
        "In this folder, with Docker:\n\n```\ndocker run --rm -p 8500" in text
    )
    assert "an invalid input value (it must be in 0...255)" in text
    assert "zero, one, zwei ©" in text
    assert f"{trained_pictures[0].threshold:.6g}" in text
    for name in SIGNATURES:
        json.loads((folder / "requests" / f"{name}.json").read_text())


@pytest.mark.parametrize(
    "name",
    [
        *("traffic_light", "_a_", "__b__", "*c*", "`d`", "``e", "<script>f"),
        *("[g](http://x)", "![h](y)", "i | j", "~~k~~", "&lt;", "$l$", "\\m"),
        *("<!--", "</p>", 'n"o', "p's", "#q", "- r", "1. s", "snow ☃ 雪"),
    ],
)
def test_the_readme_shows_class_names_as_they_are(name):
    rendered = markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(
        f"Version 1. Known classes: one, {for_markdown(name)}, two."
    )
    shown = re.fullmatch("<p>(.*)</p>\n", rendered).group(1)
    assert "<" not in shown
    assert (
        html.unescape(shown) == f"Version 1. Known classes: one, {name}, two."
    )


def test_the_readme_names_the_threshold_of_every_class(
    trained_pictures, tmp_path
):
    model = trained_pictures[0].with_score("min_distance")
    model.set_threshold([0.5, 1234567.0, 2.25])
    write_model_folder(model, tmp_path / "m", 1)
    text = (tmp_path / "m" / "README.md").read_text("utf-8")
    assert (
        "An input is rejected when its unknown score (min_distance) exceeds "
        "the threshold of its predicted class: zero 0.5, one 1.23457e+06, "
        "zwei © 2.25.\n"
    ) in text
    model.set_threshold(0.5)
    said = model_folder._rule(model)
    assert said.endswith("(min_distance) exceeds the threshold 0.5.")


def test_a_new_version_and_the_settings_of_a_deployer(trained_blobs, tmp_path):
    model, *_ = trained_blobs
    write_model_folder(model, tmp_path / "m", 1)
    settings = tmp_path / "m" / "batching.config"
    settings.write_text("max_batch_size { value: 3 }\nallowed_batch_sizes: 3\n")
    config = tmp_path / "m" / "models.config"
    config.write_text(config.read_text().replace('"m"', '"mine"'))
    write_model_folder(model, tmp_path / "m", np.int64(10))
    assert settings.read_text().startswith("max_batch_size { value: 3 }\n")
    text = (tmp_path / "m" / "README.md").read_text("utf-8")
    assert "Version 10." in text
    assert "up to 3 rows" in text
    assert "/v1/models/mine:predict" in text
    assert {size for _, _, size in warm_up(tmp_path / "m" / "10")} == {3}
    assert {name for name, _, _ in warm_up(tmp_path / "m" / "10")} == {"mine"}
    loaded = tf.saved_model.load(tmp_path / "m" / "10").signatures
    images = tf.zeros([2, 5])
    answer = loaded["serving_default"](images)
    assert answer["model_version"].numpy().tolist() == [10, 10]
    # An older number does not become what the README speaks of.
    write_model_folder(model, tmp_path / "m", 9)
    assert (tmp_path / "m" / "README.md").read_text("utf-8") == text
    for options, message in (
        ({"name": "other"}, "has the name 'mine'"),
        ({"batch_sizes": (1, 3)}, r"has the batch_sizes \[3\]"),
    ):
        with pytest.raises(ValueError, match=message):
            write_model_folder(model, tmp_path / "m", 11, **options)
    settings.write_text("max_batch_size { value: 5 }\n")
    write_model_folder(model, tmp_path / "m", 12, name="mine")
    assert {size for _, _, size in warm_up(tmp_path / "m" / "12")} == {1, 5}


def test_an_uncalibrated_model_says_so(trained_blobs, tmp_path):
    model = trained_blobs[0].with_score("gamma")
    with pytest.raises(ValueError, match="no threshold"):
        write_model_folder(model, tmp_path / "m", 1)
    assert not (tmp_path / "m").exists()
    write_model_folder(model, tmp_path / "m", 1, allow_uncalibrated=True)
    text = (tmp_path / "m" / "README.md").read_text("utf-8")
    assert "has not been calibrated, so it rejects no valid input" in text


def test_a_failed_export_leaves_no_version(
    trained_blobs, tmp_path, monkeypatch
):
    model, *_ = trained_blobs
    write_model_folder(model, tmp_path / "m", 1)
    before = (tmp_path / "m" / "README.md").read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.io, "TFRecordWriter", full)
    message = f"No space left on device.*{re.escape(str(tmp_path))}/m/2"
    with pytest.raises(OSError, match=message):
        write_model_folder(model, tmp_path / "m", 2)
    names = {"1", "README.md", "models.config", "batching.config", "requests"}
    assert set(os.listdir(tmp_path / "m")) == names
    assert (tmp_path / "m" / "README.md").read_bytes() == before


def test_what_a_killed_export_left_is_removed(
    trained_blobs, tmp_path, monkeypatch
):
    model, *_ = trained_blobs
    write_model_folder(model, tmp_path / "m", 1)
    before = set(os.listdir(tmp_path / "m"))
    if not (child := os.fork()):
        try:
            monkeypatch.setattr(
                model_folder, "save_into", lambda *_, **named: os._exit(9)
            )
            write_model_folder(model, tmp_path / "m", 2)
        finally:
            # Whatever fails, no second pytest goes on.
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = set(os.listdir(tmp_path / "m")) - before
    # A server takes no such name for a version.
    assert len(left) == 2 and not any(name.isdigit() for name in left)
    write_model_folder(model, tmp_path / "m", 3)
    assert set(os.listdir(tmp_path / "m")) == before | {"3"}


@pytest.mark.parametrize("version", [0, -1, 1.5, 1.0, True, "1"])
def test_versions_are_positive_whole_numbers(trained_blobs, tmp_path, version):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        write_model_folder(trained_blobs[0], tmp_path / "m", version)
    assert not (tmp_path / "m").exists()


def test_bad_input(trained_blobs, tmp_path):
    model = trained_blobs[0]
    with pytest.raises(ValueError, match="must be in ascending order"):
        write_model_folder(model, tmp_path / "m", 1, batch_sizes=(8, 1))
    with pytest.raises(ValueError, match="must be in ascending order"):
        write_model_folder(model, tmp_path / "m", 1, batch_sizes=())
    with pytest.raises(ValueError, match="Every batch size"):
        write_model_folder(model, tmp_path / "m", 1, batch_sizes=(0, 1))
    with pytest.raises(ValueError, match="Choose another one with name="):
        write_model_folder(model, tmp_path / "my model", 1)
    with pytest.raises(ValueError, match="Choose another one with name="):
        write_model_folder(model, tmp_path / "m", 1, name="..")
    assert not list(tmp_path.iterdir())
    write_model_folder(model, tmp_path / "my model", 1, name="mine")
    with pytest.raises(FileExistsError, match="never overwritten"):
        write_model_folder(model, tmp_path / "my model", 1, name="mine")


def test_a_folder_that_cannot_be_written(trained_blobs, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "m", "/proc/m"):
        with pytest.raises(OSError, match="Cannot write"):
            write_model_folder(trained_blobs[0], folder, 1, name="m")


def test_a_size_that_is_not_fixed(tmp_path):
    classifier = keras.Sequential(
        [
            keras.Input([None, None, 1]),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2),
        ]
    )
    model = cac_tf.OpenSetClassifier(classifier, ["dark", "light"])
    with pytest.raises(ValueError, match="inputs of a fixed size"):
        write_model_folder(model, tmp_path / "m", 1, allow_uncalibrated=True)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "must be unique"),
        (["a", "unknown", "b"], "cannot be named 'unknown'"),
        (["a", os.fsdecode(b"caf\xe9"), "b"], "must be UTF-8"),
        (["a", "b\u2028c", "d"], "on one line"),
        (["a", "b\tc", "d"], "control characters"),
        (["a", "b\nc", "d"], "on one line"),
    ],
)
def test_class_names(names, message):
    with pytest.raises(ValueError, match=message):
        cac_tf.OpenSetClassifier(small_classifier(), names)


def test_names_of_any_language():
    names = ["chat\u00a0noir", "👩‍🔬", "نمی‌دانم"]
    model = cac_tf.OpenSetClassifier(small_classifier(), names)
    assert model.class_names == tuple(names)


def test_warm_up_values_are_what_a_tensor_repeats(folder):
    """The short form of a tensor: one value for all."""
    records = str(folder / "3" / "assets.extra" / "tf_serving_warmup_requests")
    (record,) = tf.data.TFRecordDataset(records).take(1).as_numpy_iterator()
    log = prediction_log_pb2.PredictionLog.FromString(record)
    images = tf.make_ndarray(log.predict_log.request.inputs["images"])
    np.testing.assert_array_equal(images, np.full((1, 12, 10, 3), 127.0))
