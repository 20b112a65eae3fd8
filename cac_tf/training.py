# SPDX-License-Identifier: Apache-2.0
"""Training on arrays that can be interrupted and goes on exactly."""

import json
import os

import numpy as np
from keras import ops

from cac_tf import atomic_files


def fit_resumable(
    model,
    train,
    validation,
    *,
    epochs,
    batch_size,
    seed,
    checkpoint,
    callbacks=(),
):
    """Trains a compiled model epoch by epoch, with a checkpoint after each.

    Called again with the same arguments after an interruption, it goes on
    from the last finished epoch and ends with the same weights: the order of
    the examples depends on seed and epoch alone, and the checkpoint holds
    the states of random generators and optimizer.

    Args:
        model: compiled `OpenSetClassifier`, freshly made from the same seed.
        train: `Examples`.
        validation: `Examples`, possibly empty.
        epochs: number of epochs in all.
        batch_size: of training and validation.
        seed: of the order of the examples.
        checkpoint: path of the checkpoint file (.npz), replaced each epoch.
        callbacks: Keras callbacks.

    Returns:
        One dict of logs per epoch, earlier sittings included.

    Raises:
        ValueError: the checkpoint is not one of this model and optimizer.
    """
    model.build((None, *train.images.shape[1:]))
    model.optimizer.build(model.trainable_variables)
    history = []
    if os.path.exists(checkpoint):
        history = _restore(model, checkpoint)
    validation_data = tuple(validation) if validation.size else None
    for epoch in range(len(history), epochs):
        order = np.random.default_rng([seed, epoch]).permutation(train.size)
        logs = model.fit(
            *train.take(order),
            batch_size=batch_size,
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            validation_data=validation_data,
            validation_batch_size=batch_size,
            verbose=0,
            callbacks=list(callbacks),
        ).history
        history.append({name: float(v[0]) for name, v in logs.items()})
        _save(model, checkpoint, history)
    return history


def _state(model):
    # `variables` has the random generators' states too, unlike `weights`.
    return [*model.variables, *model.optimizer.variables]


def _save(model, checkpoint, history):
    arrays = {
        f"variable_{i}": ops.convert_to_numpy(variable)
        for i, variable in enumerate(_state(model))
    }
    with atomic_files.replacing(checkpoint) as temporary:
        np.savez(temporary, history=json.dumps(history), **arrays)


def _restore(model, checkpoint):
    variables = _state(model)
    with np.load(checkpoint, allow_pickle=False) as file:
        history = json.loads(str(file["history"]))
        arrays = [file[f"variable_{i}"] for i in range(len(file.files) - 1)]
    shapes = [tuple(v.shape) for v in variables]
    if [a.shape for a in arrays] != shapes:
        raise ValueError(
            f"{checkpoint} holds the state of another model or optimizer "
            f"({len(arrays)} arrays for {len(variables)} variables, or other "
            "shapes)."
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
    return history
