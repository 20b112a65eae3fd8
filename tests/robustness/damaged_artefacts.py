# SPDX-License-Identifier: Apache-2.0
"""Files of a finished run that are damaged.

Whatever reads them either works, and then with the same result, or says in one
message which file is damaged.
"""

import contextlib
import io

import numpy as np

import cac_tf
from cac_tf.data.sources.digits import load_digits
from cac_tf.train import cac_evaluate
from cac_tf.train import cac_export
from tests.robustness import runs
from tests.robustness.damage import copy
from tests.robustness.damage import damage

_READABLE = (ValueError, OSError)
_LONGEST_MESSAGE = 1500


def prepare(folder):
    with contextlib.redirect_stdout(io.StringIO()):
        runs.train(folder / "run")
    images = load_digits()[0].images[:64]
    model = cac_tf.load_model(folder / "run" / "model.keras")
    return folder / "run", images, model.predict_open_set(images)


def _train(run, folder, prepared):
    """The same command, of a run that was not quite finished."""
    reference = prepared[0]
    (run / "metrics.json").unlink(missing_ok=True)
    runs.train(run)
    runs.assert_same_result(run, reference)


def _train_finished(run, folder, prepared):
    runs.train(run)
    runs.assert_same_result(run, prepared[0])


def _evaluate(run, folder, prepared):
    runs.run(
        cac_evaluate,
        f"--model={run / 'model.keras'}",
        f"--output_dir={folder / 'evaluated'}",
        *runs.FLAGS[::2],
    )


def _export(run, folder, prepared):
    runs.run(
        cac_export,
        f"--model={run / 'model.keras'}",
        f"--output_dir={folder / 'serving'}",
    )


def _load(run, folder, prepared):
    _, images, expected = prepared
    model = cac_tf.load_model(run / "model.keras")
    answers = model.predict_open_set(images)
    np.testing.assert_array_equal(answers.class_id, expected.class_id)
    np.testing.assert_array_equal(answers.gamma, expected.gamma)


# What reads which files; loading is quick and so comes up more often.
_USES = (
    (_train, ("config.json", "checkpoints/classifier.npz", "history.json")),
    (_train_finished, ("config.json", "metrics.json")),
    (_evaluate, ("model.keras", "config.json")),
    (_export, ("model.keras",)),
    (_load, ("model.keras",)),
    (_load, ("model.keras",)),
    (_load, ("model.keras",)),
)


def case(rng, folder, prepared):
    use, files = _USES[rng.integers(len(_USES))]
    run = copy(prepared[0], folder / "run")
    name = str(rng.choice(files))
    what = f"{use.__name__.strip('_')}: {name}, {damage(rng, run / name)}"
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            use(run, folder, prepared)
    except _READABLE as error:
        message = str(error)
        assert message and "Traceback" not in message, what
        assert len(message) < _LONGEST_MESSAGE, what
        # It says where to look.
        assert str(run) in message, (what, message)
        return f"{what}: refused"
    except BaseException as error:
        raise AssertionError(what) from error
    return f"{what}: the same result"
