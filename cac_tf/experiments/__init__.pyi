# SPDX-License-Identifier: Apache-2.0
from .benchmark import arrays_of as arrays_of
from .benchmark import run_benchmark as run_benchmark
from .benchmark import state_of as state_of
from .benchmark_plan import configurations as configurations
from .benchmark_plan import plan as plan
from .compare import compare_runs as compare_runs
from .config import EvaluationConfig as EvaluationConfig
from .config import ExperimentConfig as ExperimentConfig
from .config import scores_named as scores_named
from .enroll_saved import EnrollingConfig as EnrollingConfig
from .enroll_saved import enroll_saved as enroll_saved
from .evaluate_saved import evaluate_saved as evaluate_saved
from .evaluation import evaluate as evaluate
from .released_weights import (
    data_of_released_weights as data_of_released_weights,
)
from .released_weights import import_weights as import_weights
from .released_weights import (
    parts_with_released_weights as parts_with_released_weights,
)
from .results_csv import read_results as read_results
from .run_data import data_of_run as data_of_run
from .run_folder import FORMAT as FORMAT
from .run_folder import RunFolder as RunFolder
from .run_folder import read_config as read_config
from .speed import estimated_seconds as estimated_seconds
from .train import train as train
