# SPDX-License-Identifier: Apache-2.0
"""Answers by Apache Beam, where one machine is not enough.

Needs the extra `beam`: `pip install 'cac-tf[beam]'`. Every worker needs this
package, and the model at the same path.
"""

# ruff: noqa: E402
import os

from cac_tf import lazy

lazy.require("apache_beam", "beam")

import apache_beam as beam
from apache_beam.ml.inference import base
from apache_beam.options.pipeline_options import PipelineOptions

from cac_tf import file_lock
from cac_tf.batch import answers
from cac_tf.batch import chunks
from cac_tf.batch import parts
from cac_tf.batch.classifier import Classifier
from cac_tf.batch.rejected import RejectedSoFar

__all__ = ["ClassifierHandler", "Classify"]

FAILED = "failed"
# As many photos as `cac-predict` classifies at once.
_AT_ONCE = 32


class ClassifierHandler(base.ModelHandler):
    """Lets Beam's `RunInference` use a `Classifier`.

    (Beam's own TensorFlow handler loads folders with `keras.models.load_model`,
    which cannot load a SavedModel in Keras 3.)

    Args:
        model: path, as in `Classifier.load`.
        threshold: as in `Classifier.classify`.
        **kwargs: of Beam's `ModelHandler`, such as `max_batch_size`, which is
            32 by default.

    Example:

    >>> handler = ClassifierHandler("runs/photos", max_batch_size=8)
    >>> handler.batch_elements_kwargs()
    {'max_batch_size': 8}
    """

    def __init__(self, model, threshold=None, **kwargs):
        super().__init__(**{"max_batch_size": _AT_ONCE, **kwargs})
        self._model, self._threshold = str(model), threshold

    def load_model(self):
        """The `Classifier`; called once in each worker."""
        return Classifier.load(self._model)

    def run_inference(self, batch, model, inference_args=None):
        """List of an `Answer` for each input of a list.

        Args:
            batch: inputs: contents of files, bytes; arrays, one row each; or
                texts.
            model: `Classifier`.
            inference_args: not used.
        """
        found = [None] * len(batch)
        of_files = [
            isinstance(one, bytes) and not model.takes_texts for one in batch
        ]
        for is_file in set(of_files):
            places = [i for i, it in enumerate(of_files) if it == is_file]
            values = [batch[i] for i in places]
            chunk = chunks.Chunk(places, values, {})
            if not is_file:
                chunk = chunks.chunk_of_rows(places, values, model, {})
            of_chunk = answers.answers_of_chunk(model, chunk, self._threshold)
            for place, answer in zip(places, of_chunk, strict=True):
                found[place] = answer
        return found

    def get_num_bytes(self, batch):
        """Size of the inputs, for Beam's metrics."""
        return sum(getattr(one, "nbytes", None) or len(one) for one in batch)

    def get_metrics_namespace(self):
        """The first part of the names of Beam's metrics."""
        return "cac_tf"


class Classify(beam.PTransform):
    """Transforms keyed inputs into keyed answers.

    Takes a collection of pairs of a key and an input: an image file's content,
    as bytes, or an array, one row of what `predict_open_set` takes. Keys of any
    type are passed through.

    The result has two collections of pairs of a key and an `Answer`: `answers`,
    and `failed`, where `error` says why there is no answer.

    Args:
        model: path, as in `Classifier.load`; every worker loads it.
        threshold: a number in place of the model's own.
        **kwargs: of Beam's `ModelHandler`, such as `max_batch_size`, which is
            32 by default.

    Example:

    >>> import os, tempfile, keras, numpy as np, cac_tf
    >>> network = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(network, ["left", "right"])
    >>> model.set_threshold(1e6)
    >>> path = os.path.join(tempfile.mkdtemp(), "saved")
    >>> model.export(path)
    >>> rows = [("a", np.float32([1, 2])), ("b", np.float32([3]))]
    >>> with beam.Pipeline("BundleBasedDirectRunner") as pipeline:
    ...     found = pipeline | beam.Create(rows) | Classify(path)
    ...     _ = found.failed | beam.MapTuple(lambda key, one: print(key))
    b
    """

    def __init__(self, model, threshold=None, **kwargs):
        super().__init__()
        self._handler = ClassifierHandler(model, threshold, **kwargs)

    def expand(self, keyed_inputs):
        """Asks the model, and separates the answers from the failures."""
        asked = keyed_inputs | base.RunInference(
            base.KeyedModelHandler(self._handler)
        )
        return asked | beam.Map(_routed).with_outputs(FAILED, main="answers")


def _routed(pair):
    _, answer = pair
    return beam.pvalue.TaggedOutput(FAILED, pair) if answer.error else pair


def write_parts(
    made, positions, model, threshold=None, options=(), keeps_rejected=False
):
    """Writes parts by a pipeline of its own, and waits for them.

    They are the same, byte for byte, as those of `cac-predict` alone. All
    workers must see the folder, the inputs and the model. A part that another
    process is writing is left to it.

    Args:
        made: `Parts`.
        positions: of the parts to write.
        model: path, as in `Classifier.load`.
        threshold: as in `Classifier.classify`.
        options: Beam's options, such as "--runner=FlinkRunner".
        keeps_rejected: whether the `Rejected` of each block are written, too.
    """
    work = [(made.path(i), made.blocks[i]) for i in positions]
    with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
        _ = (
            pipeline
            | beam.Create(work)
            # So that not one worker gets all.
            | beam.Reshuffle()
            | beam.ParDo(_WritePart(str(model), threshold, keeps_rejected))
        )


class _WritePart(beam.DoFn):
    def __init__(self, model, threshold, keeps_rejected=False):
        self._model, self._threshold = model, threshold
        self._keeps_rejected = keeps_rejected

    def setup(self):
        self._classifier = Classifier.load(self._model, self._keeps_rejected)

    def process(self, element):
        path, block = element
        # Another process may have finished it since the pipeline was made.
        if os.path.exists(path):
            return
        rejected = None
        if self._keeps_rejected:
            rejected = RejectedSoFar(self._classifier)
        try:
            with parts.writing(path) as write:
                for key, answer in answers.answers_of(
                    self._classifier, block, self._threshold, rejected
                ):
                    write(key, answer)
                if rejected is not None:
                    rejected.finish().save(parts.rejected_path(path))
        except file_lock.LockedError:
            return
