# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.batch import answers as answers
from cac_tf.batch import beam as beam
from cac_tf.batch import classifier as classifier
from cac_tf.batch import inputs as inputs
from cac_tf.batch import parts as parts
from cac_tf.batch import paths as paths
from cac_tf.batch.answers import COLUMNS as COLUMNS
from cac_tf.batch.answers import Counts as Counts
from cac_tf.batch.answers import FORMATS as FORMATS
from cac_tf.batch.answers import answers_of as answers_of
from cac_tf.batch.answers import check_ending as check_ending
from cac_tf.batch.answers import copy_by_answer as copy_by_answer
from cac_tf.batch.answers import csv_rows as csv_rows
from cac_tf.batch.answers import rows_file as rows_file
from cac_tf.batch.classifier import Answer as Answer
from cac_tf.batch.classifier import Classifier as Classifier
from cac_tf.batch.inputs import Chunk as Chunk
from cac_tf.batch.inputs import NpzArray as NpzArray
from cac_tf.batch.inputs import ParquetRows as ParquetRows
from cac_tf.batch.inputs import Photos as Photos
from cac_tf.batch.inputs import TFRecords as TFRecords
from cac_tf.batch.inputs import blocks_of as blocks_of
from cac_tf.batch.parts import Parts as Parts
from cac_tf.batch.parts import writing as writing
from cac_tf.batch.paths import paths_of as paths_of
