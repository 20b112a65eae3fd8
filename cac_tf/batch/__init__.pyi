# SPDX-License-Identifier: Apache-2.0
from .answers import FORMATS as FORMATS
from .answers import Counts as Counts
from .answers import answers_of as answers_of
from .answers import check_ending as check_ending
from .answers import copy_by_answer as copy_by_answer
from .answers import csv_rows as csv_rows
from .answers import rows_file as rows_file
from .classifier import Classifier as Classifier
from .inputs import ParquetRows as ParquetRows
from .inputs import Photos as Photos
from .inputs import TFRecords as TFRecords
from .inputs import blocks_of as blocks_of
from .lines import JsonLines as JsonLines
from .parts import Parts as Parts
from .parts import writing as writing
from .paths import paths_of as paths_of
from .whole import inputs_in as inputs_in
