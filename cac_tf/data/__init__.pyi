# SPDX-License-Identifier: Apache-2.0
from . import sources as sources
from .class_splits import class_split as class_split
from .class_splits import has_class_split as has_class_split
from .load import load_open_set_dataset as load_open_set_dataset
from .open_set_dataset import Examples as Examples
from .open_set_dataset import OpenSetDataset as OpenSetDataset
from .options import DataOptions as DataOptions
from .sources.benchmark_sets import BENCHMARK_SETS as BENCHMARK_SETS
from .sources.benchmark_sets import BenchmarkImages as BenchmarkImages
from .sources.npz_arrays import dump_arrays as dump_arrays
