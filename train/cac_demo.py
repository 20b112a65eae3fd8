# SPDX-License-Identifier: Apache-2.0
"""cac-demo: a web page for trying out a trained model.

Example: cac-demo --model=runs/digits, then open http://127.0.0.1:7860

Drop a photo or, for a model of handwritten digits, draw one. The page shows
its class or "unknown", the score and an adjustable threshold, the nearest
classes and the most similar training images. Rejected images are grouped, and a
group can become a class without training. Nothing is sent anywhere else, and no
network is needed. Press Ctrl-C to stop.
"""

import ipaddress
import os

from cac_tf import demo
from cac_tf import experiments
from cac_tf import lazy
from cac_tf import models
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet


def define_flags(values):
    """Defines the flags of `cac-demo`."""
    command_line.define_model_flag(values)
    flag_kinds.define_text(
        values,
        "host",
        "127.0.0.1",
        "Address to listen on. With 0.0.0.0, any machine that can reach this "
        "one can open the page.",
    )
    flag_kinds.define_whole_number(
        values,
        "port",
        7860,
        "Port to listen on.",
        lower_bound=1,
        upper_bound=2**16 - 1,
    )


def main(values):
    """Loads the model, and serves its page until Ctrl-C."""
    page = page_of(values)
    try:
        address = demo.serve(page, values.host, values.port, in_background=True)
    except OSError as error:
        raise ValueError(
            f"Cannot listen on --host={values.host} --port={values.port}: "
            f"{error.strerror or 'the port is in use'}."
        ) from error
    print(f"Open {address} (press Ctrl-C to stop).", flush=True)
    page.block_thread()


def page_of(values):
    """The page of the model that the flags name.

    Raises:
        ModuleNotFoundError: Gradio is not installed.
        ValueError: no model, one without a threshold, or one that takes no
            images.
    """
    lazy.require("gradio", "demo")
    # Else Gradio asks for its newest version.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    path = command_line.model_file(values)
    quiet.load("keras")
    model = models.load_model(path)
    demo.check_takes_photos(model.inputs_taken.fixed_shape)
    if model.threshold is None:
        raise ValueError(
            f"--model={values.model} has no threshold, so it cannot answer "
            '"unknown". To get a model with one: cac-evaluate '
            f"--model={path} --true_positive_rate=0.95"
        )
    folder = os.path.dirname(path)
    dataset, notes = _data_of(folder)
    inspector = demo.Inspector(model, dataset)
    name = os.path.basename(os.path.abspath(values.model))
    return demo.build_page(
        inspector,
        f"{name}: known or unknown?",
        notes,
        save_beside=path if _is_this_machine(values.host) else None,
    )


def _is_this_machine(host):
    """Whether nobody else sees what is served at an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _data_of(folder):
    """The data of a run, or None, and sentences about that."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        return None, ["There is no config.json next to the model."]
    try:
        return experiments.data_of_run(folder, parts=()), []
    except (ValueError, OSError, ImportError) as error:
        return None, [f"The data of the run cannot be read: {error}"]


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__)


if __name__ == "__main__":
    run()
