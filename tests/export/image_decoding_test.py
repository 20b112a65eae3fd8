# SPDX-License-Identifier: Apache-2.0
"""Files decoded in the graph, beside the same files decoded for training."""

import functools
import io

import numpy as np
import PIL.Image
import pytest
import sklearn.datasets
import tensorflow as tf

from cac_tf.data import image_file
from cac_tf.data.image_file import problem_of
from cac_tf.data.image_file import read_image
from cac_tf.export.image_decoding import decode_images
from tests import image_files
from tests.image_files import exif_of
from tests.image_files import saved
from tests.serving import references

LIMIT = 10**6


@pytest.fixture(scope="module")
def photograph():
    """(60, 90, 4) pixels of a photograph, with noise as alpha."""
    photo = PIL.Image.fromarray(sklearn.datasets.load_sample_image("china.jpg"))
    rng = np.random.default_rng(0)
    alpha = rng.integers(0, 256, (60, 90, 1), "uint8")
    return np.concatenate([photo.resize((90, 60)), alpha], axis=-1)


def test_turned_images_are_others(photograph):
    """So that the tests below would notice."""
    pixels = photograph[30:50, 40:60, :3]
    for orientation in range(2, 9):
        turned = image_files.stored(pixels, orientation)
        assert np.abs(np.float32(turned) - pixels).mean() > 20


@functools.cache
def graph(height, width, channels, interpolation="bilinear"):
    return tf.function(
        lambda encoded: decode_images(
            encoded,
            height,
            width,
            channels,
            LIMIT,
            interpolation=interpolation,
        ),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )


def in_graph(files, height, width, channels, *interpolation):
    """What the graph gives; every file must be valid."""
    images, is_valid = graph(height, width, channels, *interpolation)(
        tf.constant(files)
    )
    assert images.shape == (len(files), height, width, channels)
    assert is_valid.numpy().all()
    return images.numpy()


@pytest.mark.parametrize("channels", [3, 1])
def test_the_same_pixels_as_in_training(photograph, channels):
    """All of every kind of file, turned upright, with the right values."""
    names, files, seen, are_exact = zip(
        *image_files.kinds(photograph[30:50, 40:60]), strict=True
    )
    images = in_graph(files, 20, 20, channels)
    for name, file, image, expected, is_exact in zip(
        names, files, images, seen, are_exact, strict=True
    ):
        trained_on, _ = read_image(file, channels=channels)
        np.testing.assert_array_equal(image, trained_on, name)
        if channels == 1:
            # ITU-R 601.
            expected = np.float64(expected) @ [0.299, 0.587, 0.114]
            expected = expected[..., np.newaxis]
        difference = np.abs(image - np.float64(expected))
        if is_exact:
            assert difference.max() <= (0 if channels == 3 else 0.51), name
        else:
            assert difference.mean() < 10, name


@pytest.mark.parametrize(
    "channels, interpolation",
    [(3, "bilinear"), (1, "bilinear"), (3, "bicubic")],
)
def test_resized_as_in_training(photograph, channels, interpolation):
    """At most one step of 255 beside it: there, Pillow rounds twice."""
    names, files, *_ = zip(*image_files.kinds(photograph), strict=True)
    images = in_graph(files, 20, 20, channels, interpolation)
    for name, file, image in zip(names, files, images, strict=True):
        expected, _ = read_image(file, 20, channels, interpolation)
        difference = np.abs(image - expected)
        assert difference.max() <= 1, name
        assert difference.mean() <= 0.25, name
        np.testing.assert_array_equal(image, image.round())


def test_sizes(photograph):
    photo = PIL.Image.fromarray(photograph[..., :3])
    files = [
        saved(photo.resize(size), format)
        for size in ((7, 5), (20, 31), (300, 20))
        for format in ("JPEG", "PNG", "WEBP", "BMP")
    ]
    for file, found in zip(files, in_graph(files, 20, 20, 3), strict=True):
        assert np.abs(found - read_image(file, 20)[0]).max() <= 1


def test_height_and_width_of_an_image_that_lies_on_its_side(photograph):
    """Orientation 6: to be turned clockwise, so its top is on its left."""
    photo = PIL.Image.fromarray(photograph[..., :3])
    file = saved(photo, "JPEG", exif=exif_of(6))
    (image,) = in_graph([file], 30, 16, 3)
    upright = photo.transpose(PIL.Image.Transpose.ROTATE_270)
    expected = np.float32(
        upright.resize((16, 30), PIL.Image.Resampling.BILINEAR)
    )
    assert np.abs(image - expected).mean() < 5


def segment(kind, content):
    return b"\xff" + bytes([kind]) + (len(content) + 2).to_bytes(2) + content


def block(kind, content):
    """Of a WebP."""
    length = len(content).to_bytes(4, "little")
    return kind + length + content + b"\0" * (len(content) % 2)


def places_of_exif(image):
    """Files by where their EXIF is; and whether it is there to be followed."""
    exif = exif_of(6).tobytes().removeprefix(b"Exif\0\0")
    app1 = segment(0xE1, b"Exif\0\0" + exif)
    plain = saved(image, "JPEG")
    profile = saved(image, "JPEG", icc_profile=bytes(200_000))
    scan = plain.index(b"\xff\xda")
    yield "first", plain[:2] + app1 + plain[2:], True
    yield "after JFIF", plain[:20] + app1 + plain[20:], True
    first = profile.index(b"\xff\xdb")
    yield "after a profile", profile[:first] + app1 + profile[first:], True
    yield "before the scan", plain[:scan] + app1 + plain[scan:], True
    comment = segment(0xFE, app1)
    yield "in a comment", plain[:2] + comment + plain[2:], False
    yield "after the pixels", plain + app1, False
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0 Exif")
    yield "after XMP", plain[:20] + xmp + app1 + plain[20:], True
    many = segment(0xEB, b"") * 300
    yield "too far away", plain[:2] + many + app1 + plain[2:], False
    yield "several frames", _of_several_frames(image, exif_of(6)), True

    plain = saved(image, "PNG")
    found = image_files.chunk(b"eXIf", exif)
    text = image_files.chunk(b"tEXt", b"a\0eXIf")
    yield "PNG", plain[:33] + found + plain[33:], True
    yield "PNG, after a text", plain[:33] + text + found + plain[33:], True
    yield "PNG, at the end", plain[:-12] + found + plain[-12:], False
    yield "PNG, a text", plain[:33] + text + plain[33:], False
    frames = {"save_all": True, "append_images": [image.rotate(90)]}
    yield "animated", saved(image, "PNG", exif=exif_of(6), **frames), True

    extended = saved(
        image, "WEBP", lossless=True, exif=exif_of(1), icc_profile=b"odd"
    )
    whole = extended[: extended.rindex(b"EXIF")]
    for name, content in (("", exif), (", prefix", b"Exif\0\0" + exif)):
        yield f"WebP{name}", whole + block(b"EXIF", content), True
    xmp = block(b"XMP ", b"EXIF!")
    yield "WebP, after XMP", whole + xmp + block(b"EXIF", exif), True


def _of_several_frames(image, exif):
    file = io.BytesIO()
    others = [image.rotate(90)]
    image.save(file, "MPO", save_all=True, append_images=others, exif=exif)
    return file.getvalue()


def test_where_exif_is(photograph):
    """The orientation is found, or is none, for both decoders."""
    pixels = photograph[30:50, 40:60, :3]
    names, files, are_followed = zip(
        *places_of_exif(PIL.Image.fromarray(pixels)), strict=True
    )
    files = [
        file if not file.startswith(b"RIFF") else _with_length(file)
        for file in files
    ]
    images = in_graph(files, 20, 20, 3)
    for name, file, image, is_followed in zip(
        names, files, images, are_followed, strict=True
    ):
        np.testing.assert_array_equal(image, read_image(file)[0], name)
        # Orientation 6: what is on top is on the left in the file.
        expected = np.rot90(pixels, -1) if is_followed else pixels
        assert np.abs(image - expected).mean() < 10, name


def _with_length(file):
    return file[:4] + (len(file) - 8).to_bytes(4, "little") + file[8:]


def test_exif_with_wrong_bytes(photograph, rng):
    """Whatever is in it, both decoders make the same of it."""
    image = PIL.Image.fromarray(photograph[30:50, 40:60, :3])
    jpeg, png = saved(image, "JPEG"), saved(image, "PNG")
    files = []
    for endian in "<>":
        exif = exif_of(6, endian).tobytes().removeprefix(b"Exif\0\0")
        for _ in range(300):
            wrong = bytearray(exif)
            for _ in range(rng.integers(1, 4)):
                # The byte order, the table, and what it says.
                wrong[rng.integers(40)] = rng.integers(10)
            app1 = segment(0xE1, b"Exif\0\0" + wrong)
            files.append(jpeg[:2] + app1 + jpeg[2:])
            found = image_files.chunk(b"eXIf", bytes(wrong))
            files.append(png[:33] + found + png[33:])
    images = in_graph(files, 20, 20, 3)
    kinds = set()
    for file, image in zip(files, images, strict=True):
        np.testing.assert_array_equal(image, read_image(file)[0])
        kinds.add(image.tobytes())
    # JPEG and PNG, as they are and turned in some ways.
    assert len(kinds) > 6


def test_what_is_not_read(photograph):
    """Neither for training, which says why, nor by a served model."""
    said, files = zip(*image_files.not_read(photograph), strict=True)
    _, is_valid = graph(20, 20, 3)(tf.constant(files))
    assert not is_valid.numpy().any()
    assert [problem_of(file) for file in files] == list(said)


def test_bad_files_are_rows_that_are_marked(rng):
    pixels = rng.integers(0, 256, (20, 20, 3), "uint8")
    good = references.encoded(pixels)
    bad = references.bad_files(pixels)
    for kind, file in bad.items():
        files = tf.constant([good, file, good])
        images, is_valid = graph(20, 20, 3)(files)
        assert is_valid.numpy().tolist() == [True, False, True], kind
        np.testing.assert_array_equal(images[0], pixels)
        np.testing.assert_array_equal(images[1], np.zeros_like(pixels))
        np.testing.assert_array_equal(images[2], pixels)
    _, is_valid = graph(20, 20, 3)(tf.constant(list(bad.values())))
    assert not is_valid.numpy().any()


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("JPEG", {}),
        ("PNG", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\x00\x00"}),  # the extended header
        ("BMP", {}),
    ],
)
def test_the_size_that_a_header_claims(format, options, monkeypatch):
    """One pixel more than the limit is not decoded, here as in training."""
    file = references.encoded(np.zeros((30, 40, 3), "uint8"), format, **options)
    for limit, fits in ((1200, True), (1199, False)):
        _, is_valid = decode_images(tf.constant([file]), 8, 8, 3, limit)
        assert is_valid.numpy().tolist() == [fits]
        monkeypatch.setattr(image_file, "MAX_PIXELS", limit)
        problem = (
            "" if fits else "an image of 40 x 30 pixels; the limit is 1,199"
        )
        assert problem_of(file)[: len(problem)] == problem


def test_files_with_wrong_bytes(photograph, rng):
    """Neither an error nor a number out of range, whatever is changed."""
    originals = [file for _, file, *_ in image_files.kinds(photograph)]
    originals.append(references.frames(3))
    for _ in range(100):
        files = []
        for original in rng.choice(np.array(originals, object), 32):
            file = bytearray(original)
            for end in (64, 64, len(file)):
                file[rng.integers(min(end, len(file)))] = rng.integers(256)
            files.append(bytes(file[: rng.integers(1, 2 * len(file))]))
        images, _ = graph(20, 20, 3)(tf.constant(files))
        assert images.numpy().min() >= 0
        assert images.numpy().max() <= 255
