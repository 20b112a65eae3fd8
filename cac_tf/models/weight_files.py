# SPDX-License-Identifier: Apache-2.0
"""What a file of weights says about the score that its theta belongs to.

The statistics of a score are weights that only a fit creates, and theta means
nothing without them. So the record of the score is kept beside the weights,
and loading makes room for the statistics before it reads them.
"""

import json

import numpy as np

# Name of the record among the model's own variables.
_RECORD = "score"


def save_record(score, store):
    """Writes the record of a score into the store of a model's variables."""
    text = json.dumps({**_identity(score), **score.get_build_config()})
    store[_RECORD] = np.frombuffer(text.encode(), "uint8")


def load_record(score, store):
    """Prepares a score for the statistics that a file holds.

    Args:
        score: `Score` of the model into which weights are loaded.
        store: of the model's own variables.

    Returns:
        The other entries of the store, as a dict.

    Raises:
        ValueError: the weights are those of a model with another score.
    """
    names = list(store.keys())  # (Keras' stores have no other way.)
    others = {name: store[name] for name in names if name != _RECORD}
    if _RECORD in names:
        record = json.loads(np.asarray(store[_RECORD]).tobytes())
        shapes = record.pop("statistics")
        own = json.loads(json.dumps(_identity(score)))
        if record != own:
            raise ValueError(
                f"The weights belong to a model with the score {_shown(record)}"
                f", and theta is a threshold of that score; this model has "
                f"{_shown(own)}. Make it with the same score, load the weights "
                "and then change the score: with_score."
            )
        score.make_room(shapes)
    return others


def check_number(model, weights):
    """Raises ValueError unless a list of weights is as long as the model's."""
    if len(weights) != len(model.weights):
        raise ValueError(
            f"{len(weights)} weights for a model that has "
            f"{len(model.weights)}. Class means and the statistics of the "
            f"score {model.score.name!r} are weights too, which fit_centers "
            "makes: take weights from a model in the same state, or use "
            "save_weights and load_weights, which make them."
        )


def _identity(score):
    config = score.get_config()
    for name in ("name", "trainable", "dtype"):
        config.pop(name, None)
    return {"kind": type(score).__name__, "config": config}


def _shown(identity):
    settings = ", ".join(f"{k}={v!r}" for k, v in identity["config"].items())
    return f"{identity['kind']}({settings})"
