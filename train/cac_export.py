# SPDX-License-Identifier: Apache-2.0
"""cac-export: writes a saved open-set classifier in a format for deployment.

Example: cac-export --model=runs/digits/model.keras --output_dir=serving/digits

--format=tf_serving: version --version of the TF Serving model in
--output_dir, with warm-up requests, the server's configuration and a README.
--format=litert or onnx: <output_dir>/<version>/model.tflite or model.onnx.
"""

import os

from cac_tf import export
from cac_tf import models
from cac_tf.batch.classifier import columns_of_run
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet

_FILES = {"litert": "model.tflite", "onnx": "model.onnx"}
_FORMATS = ("tf_serving", *_FILES)
# Flags that only one format has.
_ONLY_FOR = {
    "name": "tf_serving",
    "batch_sizes": "tf_serving",
    "max_image_pixels": "tf_serving",
    "quantize": "litert",
}


def define_flags(values):
    """Defines the flags of `cac-export`."""
    command_line.define_model_flag(values)
    flag_kinds.define_text(
        values,
        "output_dir",
        None,
        "The model's folder; for TF Serving, the base folder that the server "
        "polls.",
        required=True,
    )
    flag_kinds.define_whole_number(
        values,
        "version",
        1,
        "Version number, which names the subfolder; an existing version is "
        "never overwritten.",
        lower_bound=1,
        # TensorFlow Serving's largest.
        upper_bound=2**63 - 1,
    )
    flag_kinds.define_choice(
        values,
        "format",
        "tf_serving",
        _FORMATS,
        "Format to write.",
    )
    flag_kinds.define_switch(
        values,
        "allow_uncalibrated",
        False,
        "Also allow a model without a threshold: it rejects nothing.",
    )
    flag_kinds.define_number(
        values,
        "threshold",
        None,
        "The threshold of the exported model. Default: the model's own.",
    )
    flag_kinds.define_text(
        values,
        "name",
        None,
        "For tf_serving: the model's name. Default: the folder's name.",
    )
    flag_kinds.define_texts(
        values,
        "batch_sizes",
        None,
        "For tf_serving: batch sizes that the server may form, in ascending "
        "order. Default: "
        + ",".join(map(str, export.DEFAULT_BATCH_SIZES))
        + ".",
    )
    flag_kinds.define_whole_number(
        values,
        "max_image_pixels",
        None,
        "For tf_serving: largest size of an encoded image, height times "
        "width; larger images are not decoded. Default: "
        f"{export.DEFAULT_MAX_PIXELS}.",
        lower_bound=1,
        upper_bound=2**31 - 1,
    )
    flag_kinds.define_choice(
        values,
        "quantize",
        None,
        ["dynamic_range"],
        "For litert: store large weights as int8.",
    )


def main(values):
    """Loads the model and exports it."""
    options = {"allow_uncalibrated": values.allow_uncalibrated}
    for name, format_ in _ONLY_FOR.items():
        value = values[name].value
        if value is None:
            continue
        if values.format != format_:
            raise ValueError(
                f"--{name} has no effect with --format={values.format}; leave "
                "it out."
            )
        options[name] = value
    if "batch_sizes" in options:
        options["batch_sizes"] = _whole_numbers(options["batch_sizes"])
    path = command_line.model_file(values)
    quiet.load("keras")
    model = models.load_model(path)
    if values.threshold is not None:
        model.set_threshold(values.threshold)
    if values.format == "tf_serving":
        path = export.write_model_folder(
            model,
            values.output_dir,
            values.version,
            input_columns=columns_of_run(path),
            **options,
        )
        print(f"SavedModel: {path}")
        print(f"How to serve it: {values.output_dir}/README.md")
        return
    export.check_version(values.version)
    if os.path.exists(os.path.join(values.output_dir, "models.config")):
        raise ValueError(
            f"{values.output_dir} is the folder of a TF Serving model, where "
            "the server looks for SavedModels. Choose another --output_dir."
        )
    path = os.path.join(
        values.output_dir, str(values.version), _FILES[values.format]
    )
    if os.path.exists(path):
        raise FileExistsError(
            f"{path} already exists; a version is never overwritten. Choose a "
            "higher one."
        )
    write = {"litert": export.write_litert, "onnx": export.write_onnx}
    write[values.format](model, path, version=values.version, **options)
    print(f"Written: {path} ({os.path.getsize(path):,} bytes)")


def _whole_numbers(texts):
    try:
        return [int(text) for text in texts]
    except ValueError:
        raise ValueError(
            "--batch_sizes must be whole numbers separated by commas; got "
            f"{','.join(texts)}."
        ) from None


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__)


if __name__ == "__main__":
    run()
