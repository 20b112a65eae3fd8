# SPDX-License-Identifier: Apache-2.0
"""cac-predict: says what is on photos, or that it is nothing known.

Example: cac-predict --model=runs/photos photo.jpg

Or many: cac-predict --model=runs/photos --output=answers.csv photos/ more/*.jpg

An input is a file, a folder (its files at any depth), a pattern, or - for paths
on standard input. Many answers are printed as CSV, or written to --output. A
file that cannot be read is a row with its error; then the exit status is 1.
"""

import contextlib
import sys

import tqdm
from absl import flags

from cac_tf import batch
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet


def define_flags(values):
    """Defines the flags of `cac-predict`."""
    flag_kinds.define_text(
        values,
        "model",
        None,
        "The .keras file, the folder of the run that it is in, a SavedModel, "
        "or a folder of TF Serving, whose newest version is taken.",
    )
    flag_kinds.define_number(
        values,
        "threshold",
        None,
        "Theta. Default: the model's own.",
    )
    flag_kinds.define_text(
        values,
        "output",
        None,
        "File for the answers, .csv or .jsonl; it appears when all are there.",
    )
    flag_kinds.define_text(
        values,
        "copy_to",
        None,
        "Folder into which the files are copied, each into a folder named "
        "like its answer.",
    )
    flags.mark_flag_as_required("model", flag_values=values)


def main(values, inputs):
    """Classifies what the inputs name.

    Returns:
        The exit status: 1 if a file could not be read.
    """
    if not inputs:
        raise ValueError(
            "Name the photos: files, folders, patterns, or - for paths on "
            "standard input."
        )
    paths = list(batch.paths_of(inputs, sys.stdin))
    quiet.load("tensorflow")
    classifier = batch.FileClassifier.load(values.model)
    found = batch.answer_files(classifier, paths, values.threshold)
    counts = batch.Counts()
    first_error = None
    with _writer(values.output, len(paths)) as write:
        progress = tqdm.tqdm(
            found,
            total=len(paths),
            unit=" files",
            # Not where rows are printed, nor into a log.
            disable=True if values.output is None else None,
        )
        for path, answer in progress:
            write(path, answer)
            counts = counts.and_one(answer)
            if answer.error and first_error is None:
                first_error = f"{path}: {answer.error}"
            if values.copy_to is not None:
                batch.copy_by_answer(path, answer, values.copy_to)
    if len(paths) > 1 or values.output is not None:
        print(_summary(counts), file=sys.stderr)
    if counts.failed:
        print(f"cac-predict: not read: {first_error}", file=sys.stderr)
    return 1 if counts.failed else 0


def _writer(output, number):
    if output is not None:
        return batch.rows_file(output)
    if number == 1:
        return contextlib.nullcontext(_print_in_words)
    return contextlib.nullcontext(batch.csv_rows(sys.stdout))


def _print_in_words(path, answer):
    if answer.error:
        return
    print(f"{path}: {answer.label}")
    sign = ">" if answer.is_unknown else "<="
    done = "rejected" if answer.is_unknown else "accepted"
    print(
        f"  {done}: score {answer.unknown_score:.4g} {sign} threshold "
        f"{answer.threshold:.4g}"
    )
    nearest = ", ".join(f"{name} {share:.0%}" for name, share in answer.nearest)
    print(f"  nearest classes: {nearest}")


def _summary(counts):
    return (
        f"{sum(counts)} files: {counts.accepted} of known classes, "
        f"{counts.rejected} unknown, {counts.failed} not read."
    )


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__, takes_inputs=True)


if __name__ == "__main__":
    run()
