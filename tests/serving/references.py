# SPDX-License-Identifier: Apache-2.0
"""Requests to a served model, and what it should answer.

The answers come from the logits of the model in memory and the equations in
float64; `tests/serving/saved_model_check.cc` reads them.
"""

import io
import zlib

import numpy as np
import PIL.Image
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tests import oracle


def expected_answer(model, images, version, threshold=None, valid=None):
    """The answer to raw inputs; rows not in order may hold anything.

    They show the threshold of the first class.
    """
    if valid is None:
        valid = np.ones(len(images), bool)
    images = np.where(valid.reshape(-1, *[1] * (images.ndim - 1)), images, 0)
    logits = model.predict_scores(images).logits
    if threshold is None:
        of_classes = np.broadcast_to(model.threshold, len(model.class_names))
        gamma = oracle.gamma(oracle.distances(logits, model.centers))
        threshold = of_classes[np.where(valid, gamma.argmin(axis=1), 0)]
    answer = oracle.served_answer(
        logits,
        model.centers,
        threshold,
        model.class_names,
        version,
        valid,
    )
    p_value = model.predict_open_set(images).p_value
    # What is not in order is the most unusual.
    answer["p_value"] = np.where(valid, p_value, model.calibration.levels[0])
    return answer


def with_thresholds_by_class(model, pictures):
    """A model that decides otherwise than with any one of its thresholds."""
    model = model.with_score("gamma")
    thresholds = model.calibrate(
        pictures, true_positive_rate=0.5, by_class=True
    )
    decisions = model.predict_open_set(pictures).class_id
    assert 0 < np.sum(decisions == -1) < len(pictures)
    for threshold in thresholds:
        model.set_threshold(threshold)
        assert (model.predict_open_set(pictures).class_id != decisions).any()
    model.set_threshold(thresholds)
    return model


def encoded(image, format="PNG", **options):
    """A uint8 picture as the bytes of a file."""
    file = io.BytesIO()
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    PIL.Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


def png_header(width, height):
    """The start of a PNG file that claims to be of this size."""
    picture = bytearray(encoded(np.zeros((1, 1, 3), "uint8")))
    picture[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    # The checksum of what was changed.
    picture[29:33] = zlib.crc32(bytes(picture[12:29])).to_bytes(4, "big")
    return bytes(picture)


def examples(files):
    """Serialized tf.Examples, as TF Serving makes them for `classify`."""
    return np.array(
        [
            tf.train.Example(
                features=tf.train.Features(
                    feature={
                        "image/encoded": tf.train.Feature(
                            bytes_list=tf.train.BytesList(value=[file])
                        )
                    }
                )
            ).SerializeToString()
            for file in files
        ],
        object,
    )


def classification(answer, class_names):
    """What `classify` gives for an answer: the decision first."""
    classes, scores = [], []
    for row, class_id in enumerate(answer["class_id"]):
        rejected = float(class_id == -1)
        ranked = sorted(
            zip(
                ["unknown", *class_names],
                [rejected, *answer["probabilities"][row]],
                strict=True,
            ),
            key=lambda pair: (
                pair[0] != ["unknown", *class_names][class_id + 1],
                -pair[1],
            ),
        )
        classes.append([name.encode() for name, _ in ranked])
        scores.append([score for _, score in ranked])
    return {"classes": np.array(classes), "scores": np.array(scores)}


def cases(model, pictures, version):
    """Triples of signature, inputs and answer; None for one that is refused."""
    nan_rows = np.float32(pictures)
    nan_rows[1, 0, 0, 0] = np.nan
    nan_rows[4] = np.inf
    nan_valid = ~np.isin(np.arange(len(pictures)), (1, 4))
    thresholds = np.linspace(0, 4, len(pictures), dtype="float32")
    thresholds[[2, 3, 5]] = np.nan, -1.0, np.inf
    allowed = np.isfinite(thresholds) & ~(thresholds < 0)
    used = np.where(allowed, thresholds, np.ravel(model.threshold)[0])
    files = np.array([encoded(p) for p in pictures], object)
    files[[0, 2, 3, 6]] = (
        b"",
        b"no image",
        files[3][:60],
        png_header(9**5, 9**5),
    )
    read = ~np.isin(np.arange(len(pictures)), (0, 2, 3, 6))
    by_files = expected_answer(model, pictures, version, valid=read)
    yield (
        "serving_default",
        {"images": nan_rows},
        expected_answer(model, nan_rows, version, valid=nan_valid),
    )
    yield (
        "uint8_images",
        {"images": pictures},
        expected_answer(model, pictures, version),
    )
    yield (
        "with_threshold",
        {"images": np.float32(pictures), "threshold": thresholds},
        expected_answer(
            model, pictures, version, threshold=used, valid=allowed
        ),
    )
    yield "encoded_images", {"images": files}, by_files
    yield (
        "classify",
        {"inputs": examples(files)},
        classification(by_files, model.class_names),
    )
    rows = examples([*files[:4], b""])
    rows[0] = b"no Example"
    wrong_type, two = tf.train.Example(), tf.train.Example()
    image = wrong_type.features.feature["image/encoded"]
    image.float_list.value.extend([1.0, 2.0])
    image = two.features.feature["image/encoded"]
    image.bytes_list.value.extend([files[1], files[1]])
    rows[2:] = wrong_type.SerializeToString(), two.SerializeToString(), b""
    only = np.arange(5) == 1
    yield (
        "classify",
        {"inputs": rows},
        classification(
            expected_answer(model, pictures[:5], version, valid=only),
            model.class_names,
        ),
    )
    for rows in (1, 5):
        yield (
            "encoded_images",
            {"images": files[:rows]},
            {name: value[:rows] for name, value in by_files.items()},
        )
    yield from _bad_rows(model, pictures, version)
    yield from refused_cases(pictures)


def bad_files(picture):
    """Bytes that are no readable image, by what is wrong with them."""
    kinds = {"empty": b"", "text": b"no image", "a bomb": _bomb()}
    for format in ("JPEG", "PNG", "WEBP"):
        file = encoded(picture, format)
        kinds[f"half a {format}"] = file[: len(file) // 2]
        kinds[f"the start of a {format}"] = file[:13]
        kinds[f"{format}, one byte off in its header"] = (
            file[:1] + b"?" + file[2:]
        )
    for name, channels in (("opaque", 3), ("with alpha", 4)):
        kinds[f"frames of WebP, {name}"] = frames(channels)
    kinds["a GIF"] = encoded(picture, "GIF")
    kinds["a huge PNG"] = png_header(9**5, 9**5)
    kinds["a PNG without size"] = png_header(0, 0)
    return kinds


def frames(channels):
    """Two frames in a WebP file."""
    rng = np.random.default_rng(0)
    frames = rng.integers(100, 200, (2, 32, 32, channels), "uint8")
    first, second = map(PIL.Image.fromarray, frames)
    file = io.BytesIO()
    first.save(file, "WEBP", save_all=True, append_images=[second])
    return file.getvalue()


def _bomb():
    """Few bytes that are truly an image of 81 million pixels."""
    file = io.BytesIO()
    PIL.Image.new("1", (9000, 9000)).save(file, "PNG")
    return file.getvalue()


def _bad_rows(model, pictures, version):
    """Requests of bad rows of one kind alone."""
    rows = len(pictures)
    invalid = np.zeros(rows, bool)
    answer = expected_answer(model, pictures, version, valid=invalid)
    for file in bad_files(pictures[0]).values():
        files = np.array([file] * rows, object)
        yield "encoded_images", {"images": files}, answer
    for value in (np.nan, np.inf, 3e38):
        images = np.float32(pictures)
        images[:, 5, 5] = value
        yield "serving_default", {"images": images}, answer
    for value in (np.nan, -1.0, np.inf):
        inputs = {
            "images": np.float32(pictures),
            "threshold": np.full(rows, value, "float32"),
        }
        yield "with_threshold", inputs, answer


def refused_cases(pictures):
    """Requests that must be refused as a whole, one of each kind."""
    pixels = np.float32(pictures)
    one = np.ones(1, "float32")
    text = np.array([b"?"], object)
    for signature, inputs in (
        ("serving_default", {"images": pictures}),  # dtype
        ("serving_default", {"images": pixels[0]}),  # rank
        ("serving_default", {"images": pixels[:, :-1]}),  # size
        ("serving_default", {"images": pixels[..., :1]}),  # channels
        ("serving_default", {"images": pixels[:0]}),  # empty
        ("uint8_images", {"images": pixels}),
        ("uint8_images", {"images": pictures[:, :-1]}),
        ("uint8_images", {"images": pictures[:0]}),
        ("with_threshold", {"images": pixels, "threshold": one}),
        ("with_threshold", {"images": pixels[:1], "threshold": one[None]}),
        ("with_threshold", {"images": pixels[:0], "threshold": one[:0]}),
        ("encoded_images", {"images": one}),
        ("encoded_images", {"images": text[None]}),
        ("encoded_images", {"images": text[:0]}),
        ("classify", {"inputs": text[None]}),
        ("classify", {"inputs": text[:0]}),
    ):
        yield signature, inputs, None


def write_cases(path, all_cases):
    """Writes cases as `PredictionLog`s, one a record."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs, answer in all_cases:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            for name, value in (answer or {}).items():
                value = np.asarray(value)
                if value.dtype == "float64":
                    value = value.astype("float32")
                if value.dtype.kind == "U":
                    value = np.char.encode(value, "utf-8")
                log.predict_log.response.outputs[name].CopyFrom(
                    tf.make_tensor_proto(value)
                )
            writer.write(log.SerializeToString())
