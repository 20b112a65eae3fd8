# SPDX-License-Identifier: Apache-2.0
"""A batch job: classifies a folder of images into one table.

    python examples/batch/score_folder.py --model=runs/photos \
        --output=answers.parquet photos/

Writes a row for every image, even unreadable ones, and prints the count of each
answer. At the end it lists the images accepted with a score close to the
threshold: review these first.

`cac-predict` does the same on the command line, also on many machines. Use this
script if the answers go elsewhere, such as into a database.
"""

import argparse
import collections
import heapq

from cac_tf import batch


def score(model, inputs, output, num_close=5):
    """Classifies images and writes the table.

    Args:
        model: folder of a run, `.keras` file or SavedModel.
        inputs: files, folders and patterns.
        output: path that ends in .csv, .jsonl or .parquet. The file appears
            when all rows are there.
        num_close: how many accepted images to return.

    Returns:
        A `Counter` of labels and errors, and a list of pairs of a path and
        how far below the threshold its score is, the closest first.
    """
    classifier = batch.Classifier.load(model)
    counts, close = collections.Counter(), []
    with batch.rows_file(output) as write_row:
        for path, answer in batch.classify_files(classifier, inputs):
            write_row(path, answer)
            counts[answer.error or answer.label] += 1
            if not answer.error and not answer.is_unknown:
                margin = answer.threshold - answer.unknown_score
                # Of any number of images, only the closest are kept.
                heapq.heappush(close, (-margin, path))
                if len(close) > num_close:
                    heapq.heappop(close)
    return counts, [(path, -less) for less, path in sorted(close)[::-1]]


def main(arguments=None):
    """Scores what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("inputs", nargs="+")
    flags = parser.parse_args(arguments)
    counts, close = score(flags.model, flags.inputs, flags.output)
    for label, count in counts.most_common():
        print(f"{count:6} {label}")
    for path, margin in close:
        print(f"{path}: {margin:.3g} below the threshold")
    return counts


if __name__ == "__main__":
    main()
