# SPDX-License-Identifier: Apache-2.0
"""cac-predict: classifies photos, or reports that they show no known class.

Example: cac-predict --model=runs/photos photo.jpg

Or many: cac-predict --model=runs/photos --output=answers.csv photos/ more/*.jpg

An input is a file, a folder (its files at any depth), a pattern, or - for paths
on standard input. A file ending in .npz, .npy, .csv, .txt, .jsonl, .tfrecord or
.parquet contains many inputs. Several answers are printed as CSV, or written to
--output. An unreadable input never stops the run; its row holds the error. The
exit status is 1 if an input could not be read, or a photo could not be copied.
"""

import collections
import contextlib
import gc
import importlib.util
import io
import os
import re
import shlex
import sys

import tqdm

from cac_tf import batch
from cac_tf import file_lock
from cac_tf import lazy
from cac_tf.counted import counted
from cac_tf.decision.p_values import discovery_level
from cac_tf.plain_text import for_terminal
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet

# Texts of an answer in which there may be names.
_OF_DATA = ("label", "predicted_class", "error")


def define_flags(values):
    """Defines the flags of `cac-predict`."""
    flag_kinds.define_text(
        values,
        "model",
        None,
        "The .keras file, the folder of the run that contains it, a "
        "SavedModel, or a TF Serving folder, whose newest version is used.",
        required=True,
    )
    flag_kinds.define_number(
        values,
        "threshold",
        None,
        "The threshold. Default: the model's own.",
    )
    flag_kinds.define_number(
        values,
        "false_discovery_rate",
        None,
        "Also report the p-value up to which inputs can be called unknown "
        "such that, on average, at most this fraction of them is known.",
    )
    flag_kinds.define_text(
        values,
        "output",
        None,
        "File for the answers (.csv, .jsonl or .parquet), which appears once "
        "it is complete. Or a folder, which is filled in parts: after an "
        "interruption, the same command continues, and several processes can "
        "share the work (--shard).",
    )
    flag_kinds.define_choice(
        values,
        "format",
        "csv",
        batch.FORMATS,
        "Format of the parts in a folder.",
    )
    flag_kinds.define_whole_number(
        values,
        "files_per_part",
        1024,
        "Photos per part. (A file with many inputs is always one part.)",
        lower_bound=1,
    )
    flag_kinds.define_text(
        values,
        "shard",
        None,
        "Write only the i-th of n shares of the parts: i/n, such as 1/4.",
    )
    flag_kinds.define_text(
        values,
        "image_column",
        None,
        "Column of tables, field of JSON, or feature of tf.Examples that "
        'contains the inputs. Default: "image", in tf.Examples first '
        '"image/encoded"; for a model that does not take images, the '
        'columns it was trained on, in tf.Examples "features"; for a model '
        'of texts, "text" or the only text column.',
    )
    flag_kinds.define_text(
        values,
        "key_column",
        None,
        "Column or feature with the keys. Default: the file's path and the "
        "row number.",
    )
    flag_kinds.define_text(
        values,
        "copy_to",
        None,
        "Folder to copy the photos into, each in a subfolder named after its "
        "answer.",
    )
    flag_kinds.define_text(
        values,
        "group_unknown",
        None,
        "New folder for the rejected inputs, grouped by similarity: a table, "
        "an HTML page, and a file for each group. Needs the model's .keras "
        "file.",
    )
    flag_kinds.define_text(
        values,
        "runner",
        None,
        "Apache Beam runner that writes the parts: DirectRunner, "
        "FlinkRunner, SparkRunner, DataflowRunner, ... All workers must be "
        "able to read the model and the inputs and write to the folder. "
        "Needs the extra beam.",
    )
    flag_kinds.define_text(
        values,
        "beam_options",
        None,
        "Beam options, such as '--direct_num_workers=2 "
        "--direct_running_mode=multi_processing'.",
    )


def main(values, inputs):
    """Classifies what the inputs name.

    Returns:
        The exit status: 1 if an input could not be read, or not be copied.
    """
    if not inputs:
        raise ValueError(
            "Specify the photos: files, folders, patterns, or - to read "
            "paths from standard input."
        )
    into_parts = values.output is not None and _is_folder(values.output)
    if not into_parts:
        _check_no_effect(
            values,
            ("format", "files_per_part"),
            "unless --output is a folder, such as answers/.",
        )
    elif values.false_discovery_rate is not None:
        raise ValueError(
            "--false_discovery_rate needs all answers in one output file."
        )
    if values.false_discovery_rate is not None:
        discovery_level([], [], values.false_discovery_rate)
    shard = _shard(values.shard, into_parts)
    groups = values.group_unknown
    if groups is not None and os.path.exists(groups) and not into_parts:
        raise ValueError(
            f"--group_unknown: {groups} already exists. Choose a new folder."
        )
    _check_runner(values, into_parts)
    if values.output is not None and not into_parts:
        batch.check_ending(values.output)
    if isinstance(sys.stdin, io.TextIOWrapper):
        # Names of files may hold bytes that are no UTF-8.
        sys.stdin.reconfigure(errors="surrogateescape")
    written = {
        name: values[name].value
        for name in ("output", "copy_to", "group_unknown")
        if values[name].value is not None
    }
    paths = batch.not_written(batch.paths_of(inputs, sys.stdin), written)
    if values.runner is not None:
        # Its workers start in other folders.
        paths = map(os.path.abspath, paths)
    blocks = batch.blocks_of(
        paths,
        values.files_per_part,
        values.image_column,
        values.key_column,
    )
    with_columns = (batch.ParquetRows, batch.TFRecords, batch.JsonLines)
    if not any(isinstance(block, with_columns) for block in blocks):
        _check_no_effect(
            values,
            ("image_column", "key_column"),
            "with photos and arrays, only with CSV, JSON, Parquet and "
            "TFRecord files.",
        )
    if not any(isinstance(block, batch.Photos) for block in blocks):
        _check_no_effect(values, ("copy_to",), "if no input is a photo.")
    lazy.require("tensorflow", "tensorflow")
    quiet.load("tensorflow")
    classifier = batch.Classifier.load(values.model, groups is not None)
    # The garbage collector would look at all that TensorFlow has made again and
    # again while rows are written, and take most of the time.
    gc.collect()
    gc.freeze()
    photos = [block for block in blocks if isinstance(block, batch.Photos)]
    if photos and not classifier.takes_files:
        raise ValueError(
            f"{photos[0].files[0]} cannot be read by this model, which does "
            "not take images with 1 or 3 channels: provide its inputs as "
            ".npz, .npy, .csv, .txt, .jsonl, .tfrecord or .parquet."
        )
    work = _Work(classifier, values.threshold, values.copy_to)
    unknown = None if groups is None else batch.UnknownGroups()
    if into_parts:
        parts = _write_parts(values, shard, blocks, classifier, work)
        if unknown is not None and not _has_all(parts):
            unknown = None
        elif unknown is not None:
            for position, block in enumerate(blocks):
                path = batch.rejected_path(parts.path(position))
                unknown.add(block, batch.Rejected.load(path))
    else:
        with (
            _writer(values.output, blocks, classifier) as write,
            _progress(blocks, is_shown=values.output is not None) as progress,
        ):
            for block in blocks:
                rejected = work.answer(
                    block, write, progress, unknown is not None
                )
                if unknown is not None:
                    unknown.add(block, rejected)
    if sum(work.counts) > 1 or values.output is not None:
        print(work.counts.in_words(), file=sys.stderr)
    if values.false_discovery_rate is not None:
        screened = _screened(work.p_values, values.false_discovery_rate)
        print(screened, file=sys.stderr)
    if unknown is not None:
        _write_groups(unknown, groups, classifier)
    if work.first_error is not None:
        _complain(f"cac-predict: could not read {work.first_error}")
    return 1 if work.counts.failed or work.not_copied else 0


def _complain(line):
    print(for_terminal(line), file=sys.stderr)


def _check_no_effect(values, names, why):
    given = [name for name in names if values[name].present]
    if given:
        raise ValueError(f"--{given[0]} has no effect {why}")


class _Work:
    """Answers blocks, and counts."""

    def __init__(self, classifier, threshold, copy_to):
        self._classifier, self._threshold = classifier, threshold
        self._copy_to = copy_to
        self.counts, self.first_error = batch.Counts(), None
        self.not_copied = 0
        # How many inputs have a p-value.
        self.p_values = collections.Counter()

    @quiet.without_lines_of_libraries()
    def answer(self, block, write, progress, keeps_rejected=False):
        """Hands every answer of a block to `write`.

        Returns:
            The `Rejected` of the block, if they are kept.
        """
        rejected = None
        if keeps_rejected:
            rejected = batch.RejectedSoFar(self._classifier)
        can_be_copied = self._copy_to is not None and isinstance(
            block, batch.Photos
        )
        for key, answer in batch.answers_of(
            self._classifier, block, self._threshold, rejected
        ):
            write(key, answer)
            self.counts = self.counts.and_one(answer)
            if not answer.error:
                self.p_values[answer.p_value] += 1
            if answer.error and self.first_error is None:
                self.first_error = f"{key}: {answer.error}"
            if can_be_copied:
                self._copy(key, answer)
            progress.update()
        return None if rejected is None else rejected.finish()

    def _copy(self, path, answer):
        try:
            batch.copy_by_answer(path, answer, self._copy_to)
        except OSError as error:
            self.not_copied += 1
            _complain(f"could not copy {path}: {error.strerror or error}")


def _write_parts(values, shard, blocks, classifier, work):
    settings = {
        "model": classifier.sha256(),
        "threshold": values.threshold,
        "image_column": values.image_column,
        "key_column": values.key_column,
    }
    if values.copy_to is not None:
        # Photos are copied as their part is written.
        settings["copy_to"] = values.copy_to
    keeps_rejected = values.group_unknown is not None
    if keeps_rejected:
        # As its part is written.
        settings["group_unknown"] = True
    parts = batch.Parts(values.output, blocks, values.format, settings)
    own = parts.of_shard(*shard)
    there = [position for position in own if parts.is_finished(position)]
    missing = sorted({*own} - {*there})
    if values.runner is not None and missing:
        _write_with_beam(values, parts, missing)
        there, missing = [i for i in own if parts.is_finished(i)], []
        if len(there) < len(own):
            rest = counted(len(own) - len(there), "part")
            print(f"Other processes are still writing {rest}.", file=sys.stderr)
    elif there:
        print(
            f"{len(there)} of {counted(len(own), 'part')} already written.",
            file=sys.stderr,
        )
    for position in there:
        work.counts = work.counts.and_those(parts.counts(position))
    with _progress([blocks[position] for position in missing]) as progress:
        for position in missing:
            if parts.is_finished(position):  # By another process meanwhile.
                counts = parts.counts(position)
                work.counts = work.counts.and_those(counts)
                progress.update(sum(counts))
                continue
            before = work.not_copied
            try:
                with batch.writing(parts.path(position)) as write:
                    rejected = work.answer(
                        blocks[position], write, progress, keeps_rejected
                    )
                    if keeps_rejected:
                        path = batch.rejected_path(parts.path(position))
                        rejected.save(path)
                    # The same command copies again what is not copied yet.
                    parts.mark(position, work.not_copied > before)
            except file_lock.LockedError as error:
                # Another process is at it.
                print(error, file=sys.stderr)
    return parts


def _has_all(parts):
    missing = sum(not parts.is_finished(i) for i, _ in enumerate(parts.blocks))
    if missing:
        print(
            f"{missing} of {counted(len(parts.blocks), 'part')} missing. Once "
            "all are written, run the same command to group the inputs.",
            file=sys.stderr,
        )
    return not missing


@quiet.without_lines_of_libraries()
def _write_groups(unknown, folder, classifier):
    if os.path.exists(folder):
        print(f"The groups in {folder} already exist.", file=sys.stderr)
        return
    said = unknown.write(folder, classifier)
    print(f"{said} See {os.path.join(folder, 'groups.html')}.", file=sys.stderr)


def _write_with_beam(values, parts, positions):
    from cac_tf.batch import beam

    beam.write_parts(
        parts,
        positions,
        os.path.abspath(values.model),
        values.threshold,
        [f"--runner={values.runner}", *shlex.split(values.beam_options or "")],
        values.group_unknown is not None,
    )


def _check_runner(values, into_parts):
    try:
        shlex.split(values.beam_options or "")
    except ValueError as error:
        raise ValueError(f"beam_options cannot be read: {error}.") from error
    if values.runner is None:
        if values.beam_options is not None:
            raise ValueError("--beam_options has no effect without --runner.")
        return
    if importlib.util.find_spec("apache_beam") is None:
        raise ValueError(
            "--runner needs Apache Beam: pip install 'cac-tf[beam]'."
        )
    if not into_parts:
        raise ValueError(
            "--runner needs a folder as --output, such as answers/."
        )
    if values.copy_to is not None:
        raise ValueError("--copy_to cannot be combined with --runner.")


def _is_folder(path):
    has_ending = bool(os.path.splitext(path)[1]) and path[-1] not in "/\\"
    return os.path.isdir(path) or not has_ending


def _shard(text, into_parts):
    """The pair (i, n)."""
    if text is None:
        return 1, 1
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(
            f"shard must be i/n with i from 1 to n, such as 2/4; got {text!r}."
        )
    if not into_parts:
        raise ValueError(
            "--shard needs a folder as --output, such as answers/."
        )
    return int(match[1]), int(match[2])


def _progress(blocks, is_shown=True):
    return tqdm.tqdm(
        # What cannot be read is one row.
        total=sum(block.num_rows or 1 for block in blocks),
        unit=" inputs",
        # Not where rows are printed, nor into a log.
        disable=None if is_shown else True,
    )


def _writer(output, blocks, classifier):
    if output is not None:
        return batch.rows_file(output)
    if [block.num_rows for block in blocks] == [1]:
        return contextlib.nullcontext(_in_words(classifier))
    write = batch.csv_rows(sys.stdout)
    if not sys.stdout.isatty():
        return contextlib.nullcontext(write)

    def write_shown(key, answer):
        texts = {n: for_terminal(getattr(answer, n)) for n in _OF_DATA}
        write(for_terminal(key), answer._replace(**texts))

    return contextlib.nullcontext(write_shown)


def _in_words(classifier):
    def write(key, answer):
        if answer.error:
            return
        print(for_terminal(f"{key}: {answer.label}"))
        sign = ">" if answer.is_unknown else "<="
        done = "rejected" if answer.is_unknown else "accepted"
        print(
            f"  {done}: score {answer.unknown_score:.4g} {sign} threshold "
            f"{answer.threshold:.4g}"
        )
        nearest = ", ".join(
            f"{name} {share:.0%}" for name, share in classifier.nearest(answer)
        )
        print(for_terminal(f"  nearest classes: {nearest}"))

    return write


def _screened(p_values, rate):
    level = discovery_level([*p_values], [*p_values.values()], rate)
    called = sum(count for one, count in p_values.items() if one <= level)
    which = f", with a p-value up to {level:.4g}" if called else ""
    return (
        f"At a false-discovery rate of {rate:g}, {counted(called, 'input')} "
        f"can be called unknown{which}."
    )


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__, takes_inputs=True)


if __name__ == "__main__":
    run()
